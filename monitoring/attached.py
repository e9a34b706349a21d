"""The monitor of a run: writes the driver's events to Redis, and carries out operators' commands.

It runs in the process that supervises the driver: the driver's batches never wait for it, and it continues if the driver ends.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, Protocol

import msgspec

from monitoring.channel import Channel
from monitoring.commands import Kill, Restore, Targeted
from monitoring.connection import Address
from monitoring.inputs import Accuracy
from monitoring.monitor import Monitor
from monitoring.records import PipelineInfo
from monitoring.signing import Signer, Token
from ppa_core.driver.output_log import OutputLog
from ppa_core.engine.event_codec import cut
from ppa_core.engine.run_events import (
    CommandAnswered,
    CommandCarriedOut,
    CommandNumbers,
    DriverDied,
    DriverTookOver,
    OutputPublished,
    RunEvent,
)
from ppa_core.errors import PpaError

POLL = 0.25
"""Seconds between two reads of the stream of commands."""

_log = logging.getLogger(__name__)


class CommandedRun(Protocol):
    """The run that commands are sent to: `ppa_core.process.run.SupervisedRun`."""

    def send(self, word: str, arguments: dict[str, Any] | None = None, id_: str = "") -> bool: ...


class Servers(Protocol):
    """Nodes that can be killed and restarted: `ppa_core.nodes.embedded.EmbeddedNodes`."""

    @property
    def pids(self) -> Mapping[str, int]: ...
    def kill(self, name: str) -> None: ...
    def restart(self, name: str) -> None: ...


class Attached:
    """`handle` is called with every event of the run. Commands are read in a separate thread until `close`."""

    def __init__(
        self, address: Address, info: PipelineInfo, accuracy: Accuracy, log: OutputLog, signer: Signer, servers: Servers | None
    ) -> None:
        self.monitor = Monitor(address, info, accuracy)
        self.info, self.log, self.servers = info, log, servers
        self.channel = Channel(address, info.pipeline, signer)
        self._open: dict[str, Token] = {}
        self._answers: SimpleQueue[tuple[str, str, str]] = SimpleQueue()
        self._ledger: Mapping[str, Any] | None = None
        """The commands in the run's ledger, which were carried out before. No command is read until they are known."""
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._thread: threading.Thread | None = None
        self._batch = -1

    def take_commands(self, run: CommandedRun) -> None:
        """Carry out commands on this run from now on."""
        self._thread = threading.Thread(target=self._poll, args=(run,), name="ppa-commands", daemon=True)
        self._thread.start()

    def handle(self, event: RunEvent) -> None:
        """Queue an event for the monitor; returns at once."""
        match event:
            case OutputPublished(_, batch, revision):
                self._batch = max(self._batch, batch)
                self.monitor.watch(event, partial(self.log.read, batch, revision))
            case CommandAnswered(id=id_, outcome=outcome, text=text):
                self._answered(id_, outcome, text)
            case CommandNumbers(numbers=numbers):
                self._ledger = numbers
            case DriverDied() | DriverTookOver():
                for id_ in list(self._open):
                    self._answered(id_, "unknown", "the driver ended before its outcome was known")
                self.monitor.watch(event)
            case _:
                self.monitor.watch(event)

    def close(self) -> None:
        """Write the remaining records. Commands without an answer stay unanswered."""
        self._over.set()
        if self._thread:
            self._thread.join()
        self._acknowledge(0.0)
        self.channel.close()
        self.monitor.close()

    # ------------------------------------------------------------------------------------------------------------ commands

    def _poll(self, run: CommandedRun) -> None:
        while not self._over.is_set():
            self._acknowledge(POLL)
            if self._ledger is None:
                continue
            self.channel.learn(self._ledger)
            for token in self._read_commands():
                with self._lock:
                    self._open[token.id] = token
                try:
                    self._carry_out(token, run)
                except PpaError as error:
                    _log.info("a command failed", exc_info=True, extra={"cause": token.id})
                    self._answered(token.id, "failed", str(error))
                except Exception as error:  # noqa: BLE001 - the next commands must still be read
                    _log.exception("a command failed", extra={"cause": token.id})
                    self._answered(token.id, "failed", f"{type(error).__name__}: {error}")

    def _read_commands(self) -> list[Token]:
        try:
            return self.channel.poll()
        except Exception:  # noqa: BLE001 - the next read may succeed
            _log.exception("commands could not be read; trying again")
            return []

    def _acknowledge(self, seconds: float) -> None:
        """Report the outcomes of commands; wait up to `seconds` for the first one."""
        with suppress(Empty):
            while True:
                self.channel.acknowledge(*self._answers.get(timeout=seconds) if seconds else self._answers.get_nowait())
                seconds = 0.0

    def _carry_out(self, token: Token, run: CommandedRun) -> None:
        """Kill and restart nodes here: this process owns them. The driver does the rest, after noting it in the ledger."""
        command = token.command
        arguments = msgspec.structs.asdict(command)
        nodes: list[str] = []
        if isinstance(command, Targeted):
            nodes = self._nodes(arguments.pop("target"))
            arguments["nodes"] = nodes
            if not nodes:
                self._answered(token.id, "failed", f"unknown target {command.target!r}; {self._known()}")
                return
        if isinstance(command, Kill):
            self._answered(token.id, *self._kill(nodes))
            return
        if isinstance(command, Restore) and self.servers is not None:
            for name in set(nodes) - set(self.servers.pids):
                self.servers.restart(name)
        if not run.send(command.word, arguments, token.id):
            self._answered(token.id, "failed", "the driver is not running at the moment; try again in a few seconds")

    def _nodes(self, target: str) -> list[str]:
        """The nodes of a target, `node:NAME` or `rack:NAME`."""
        kind, _, name = target.partition(":")
        return [node.name for node in self.info.nodes if name == (node.name if kind == "node" else node.rack)]

    def _kill(self, nodes: Sequence[str]) -> tuple[str, str]:
        if self.servers is None:
            return "failed", "only embedded nodes can be killed from here; stop these where they run"
        for name in nodes:
            self.servers.kill(name)
        return "done", f"killed {', '.join(nodes)}"

    def _known(self) -> str:
        nodes, racks = [node.name for node in self.info.nodes], sorted({node.rack for node in self.info.nodes})
        return f"the nodes are {', '.join(nodes)}, the racks {', '.join(racks)}"

    def _answered(self, id_: str, outcome: str, text: str) -> None:
        with self._lock:
            token = self._open.pop(id_, None)
        if token is not None:
            self._answers.put((id_, outcome, text))
            what = cut(token.command)
            self.monitor.watch(CommandCarriedOut(time.time(), self._batch, cut(token.who), what, outcome, cut(text), cause=id_))
