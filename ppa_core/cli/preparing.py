"""What `run` and `serve` make sure of before anything is started."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ppa_core.errors import BadInput
from ppa_core.safety.masking import has_password, is_secret
from ppa_core.terminal.output import note

if TYPE_CHECKING:
    from ppa_core.driver.main import Config


_IN_FILE = "name a file that has it, as in redis://HOST:PORT?password-file=FILE"
_REMEDIES = {
    "sink": ("--sink", f"set PPA_SINK_PASSWORD, or {_IN_FILE}#KEY"),
    "monitor_url": ("--monitor-url", "leave the option out and set PPA_MONITOR_URL"),
    "more": ("--set", f"set PPA_SOURCE_PASSWORD, or {_IN_FILE}"),
    "path": ("the url", f"set PPA_SOURCE_PASSWORD, or {_IN_FILE}#KEY"),
}


def warn_of_passwords(arguments: argparse.Namespace) -> None:
    """A command line is there for every user of the machine to read, as long as the program runs."""
    for name, (option, remedy) in _REMEDIES.items():
        given = getattr(arguments, name, None) or []
        texts = given if isinstance(given, list) else [given]
        if any(has_password(text) or (name == "more" and is_secret(text.partition("=")[0])) for text in texts):
            note(f"warning: {option} has a password, which every user of this machine can read in `ps`; {remedy}")


def check_empty(sink: str) -> None:
    """A reader takes the highest revision of a batch: two runs in one folder would be mixed up."""
    kind, _, place = sink.partition(":")
    if kind in ("jsonl", "parquet") and place and Path(place).is_dir() and any(Path(place).iterdir()):
        raise BadInput(f"--sink {sink}", "it has outputs of another run; name another folder, or go on with that run: --name")


def check_folder(folder: Path, embedded: Any) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise BadInput(f"--output {folder}", f"cannot be used as a folder: {reason}") from None
    if embedded is not None and (folder / "offsets").exists():
        raise BadInput(f"--output {folder}", "it has another run whose embedded nodes are gone; name another folder")


@contextmanager
def alone(config: Config) -> Iterator[None]:
    """Nobody else runs under this name on these nodes; said before the monitor, a source or a sink is touched."""
    from ppa_core.nodes.lease import Lease

    lease = Lease(config.nodes, config.run_id, config.owner)
    lease.take(lambda: note(f"run {config.run_id!r}: waiting until the lease of the driver before is over …"))
    try:
        yield
    finally:
        lease.release()
