"""`serve`: nodes, monitor, a pipeline and the dashboard, started and stopped together."""

from __future__ import annotations

import argparse
import logging
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

from ppa_core import settings
from ppa_core.cli.running import add_common, add_run_options, config_of, event_printer, options_of
from ppa_core.errors import BadInput, PpaError, Unavailable
from ppa_core.home import FOLDER
from ppa_core.safety.owned import temporary
from ppa_core.settings import SETTINGS_FROM_STDIN, ProgramSettings
from ppa_core.terminal.arguments import positive
from ppa_core.terminal.output import note

_log = logging.getLogger(__name__)

_READY_SECONDS = 60.0
_END_SECONDS = 10.0


def register(commands: Any) -> None:
    parser = commands.add_parser("serve", help="run a pipeline with its monitor and the dashboard")
    add_common(parser, budget="half of the tasks that can fail")
    add_run_options(parser)
    parser.add_argument("--batches", type=positive, metavar="N", help="stop after N batches (default: run until stopped)")
    parser.add_argument("--port", type=positive, default=8501, metavar="PORT", help="port of the dashboard (default: 8501)")
    parser.add_argument(
        "--address",
        default="127.0.0.1",
        metavar="HOST",
        help="address that the dashboard listens on (default: 127.0.0.1, this machine only)",
    )
    parser.add_argument(
        "--allowed-host",
        action="append",
        default=[],
        metavar="NAME",
        help="a host name that browsers use for the dashboard (may be repeated)",
    )
    parser.set_defaults(command=serve, output=None, nodes_file=None, budget=None)


def serve(arguments: argparse.Namespace) -> None:
    """Start everything, print the addresses, and run until stopped."""
    from ppa_core.nodes.embedded import launch
    from ppa_core.queries import load_query

    arguments.monitor = True
    if arguments.budget is None:
        pipeline = load_query(arguments.query, **options_of(arguments)).pipeline
        arguments.budget = sum(operator.tasks for operator in pipeline.operators if operator.source is None) // 2
    _check_port(arguments.address, arguments.port)
    with ExitStack() as stack:
        note("[1/4] operator password")
        password = _password()
        note("[2/4] monitor")
        given = stack.enter_context(_monitor(arguments))
        note(f"[3/4] nodes: {arguments.primaries} primaries, {arguments.standbys} standbys")
        nodes = stack.enter_context(launch(arguments.primaries, arguments.standbys, arguments.racks, arguments.memory))
        note("[4/4] dashboard and pipeline")
        place = stack.enter_context(_dashboard(given, arguments.address, arguments.port, arguments.allowed_host))
        note("")
        note(f"    dashboard            {place}")
        again = f"delete {FOLDER / 'operator.hash'} to create a new one"
        shown = f"{password}   (shown only once; {again})" if password else f"unchanged   ({again})"
        note(f"    operator password    {shown}")
        note("    press Ctrl-C to stop everything")
        note("")
        FOLDER.mkdir(mode=0o700, exist_ok=True)
        _run(arguments, nodes, stack.enter_context(temporary("run-", FOLDER)))


def _run(arguments: argparse.Namespace, nodes: Any, folder: Path) -> None:
    """Run the pipeline; if it fails, the dashboard keeps running, so that the user can see what happened."""
    from ppa_core.application.running import run_on

    printed_to = sys.stderr if arguments.json else None
    try:
        run_on(
            arguments.query, config_of(arguments), nodes.cluster.nodes, nodes, folder, event_printer(arguments.json), printed_to
        )
    except BadInput:
        raise
    except PpaError as error:
        _log.info("the pipeline ended", exc_info=True)
        note(f"error: {error}")
        note("the dashboard keeps running; press Ctrl-C to stop it")
        over = threading.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: over.set())
        over.wait()
        raise


def _password() -> str | None:
    """Create a password if there is none; None if there is one. Only the hash is stored."""
    from monitoring import access

    if access.find_hash() is not None:
        return None
    password = access.make_password()
    access.write_hash(access.hash_password(password))
    return password


@contextmanager
def _monitor(arguments: argparse.Namespace) -> Iterator[ProgramSettings]:
    """Start the embedded monitor, unless another one is configured; it must run before the dashboard starts.

    Yields the dashboard's settings: the monitor to use, without secrets that the dashboard does not need.
    """
    from monitoring import server
    from monitoring.connection import Address

    directory = Path(arguments.monitor_directory)
    address = Address.find(arguments.monitor_url, directory, patched=arguments.patched_redis)
    address.check()
    own = settings.current()
    given = replace(
        own, monitor_folder=directory, monitor_url=address.url, patched_redis=own.patched_redis or address.patched,
        sink_password=None, source_password=None,
    )  # fmt: skip
    if address.url is not None:
        yield given
        return
    with server.start(directory) as started:
        started.keep()
        yield given


@contextmanager
def _dashboard(given: ProgramSettings, address: str, port: int, names: Sequence[str]) -> Iterator[str]:
    """Streamlit as a child process that ends with this one, even if it is killed. It gets its settings on standard input."""
    from ppa_core.process.supervisor import die_with

    parent = os.getpid()
    errors_file = tempfile.TemporaryFile()  # noqa: SIM115 - closed below; a pipe that nobody reads would fill up
    child = subprocess.Popen(
        [
            sys.executable, "-m", "pages", SETTINGS_FROM_STDIN, "--server.port", str(port),
            "--server.address", address, *(part for name in names for part in ("--server.allowedHosts", name)),
        ],
        stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=errors_file, env=settings.without_variables(os.environ),
        preexec_fn=lambda: die_with(parent), start_new_session=True,
    )  # fmt: skip
    try:
        assert child.stdin
        with suppress(BrokenPipeError), child.stdin:  # it has ended; the error is read below
            child.stdin.write(settings.to_json(given))
        _await_health(child, address, port, errors_file)
        yield f"http://{'127.0.0.1' if address == '0.0.0.0' else address}:{port}"
    finally:
        child.terminate()
        try:
            child.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
        errors_file.close()


def _await_health(child: subprocess.Popen[bytes], address: str, port: int, errors_file: IO[bytes]) -> None:
    host = "127.0.0.1" if address == "0.0.0.0" else address
    end = time.monotonic() + _READY_SECONDS
    while time.monotonic() < end:
        if child.poll() is not None:
            errors_file.seek(0)
            lines = errors_file.read().decode(errors="replace").strip().splitlines()
            raise Unavailable(f"the dashboard did not start: {lines[-1] if lines else 'no reason given'}")
        with suppress(OSError), urllib.request.urlopen(f"http://{host}:{port}/_stcore/health", timeout=1) as answer:
            if answer.status == 200:
                return
        time.sleep(0.2)
    raise Unavailable(f"the dashboard does not answer after {_READY_SECONDS:.0f} s")


def _check_port(address: str, port: int) -> None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
        except (OSError, OverflowError) as error:
            raise BadInput(
                f"--port {port}", f"cannot be used ({error}); choose another port, for example make run PORT=8600"
            ) from None
