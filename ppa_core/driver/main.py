"""The driver process: a host in a process of its own. It is told what to run and what to do, and tells what happens.

`python -m ppa_core.driver.main` reads one JSON document, then commands, one a line, and writes a JSON line for everything
that happens. It ends when its input does: whoever started it is gone. Outputs go to `outputs/` in the run's folder as Arrow
files, each written under another name first, so that a file that is there is whole. Started again with the same document it
goes on where it was.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ppa_core.driver.records import Note, PublishedOutput, Settings
from ppa_core.engine.standing import MeasuredRates, Standing
from ppa_core.errors import BadInput, PpaError, Unavailable
from ppa_core.pipeline.tables import decode, digest, encode
from ppa_core.placement.nodes import Node
from ppa_core.queries import load_query
from ppa_core.safety.masking import is_secret, masked, remember_more
from ppa_core.safety.names import check_run
from ppa_core.safety.owned import written_whole
from ppa_core.terminal import logs
from ppa_core.worker.writing import TaskStats

if TYPE_CHECKING:
    from ppa_core.nodes.lease import Lease

Line = dict[str, Any]
Tell = Callable[[Line], None]
Lost = Callable[[PpaError], None]

_STATS = tuple(field.name for field in fields(TaskStats))
_QUIET = {"batch": logging.DEBUG, "heartbeat": logging.DEBUG, "placed": logging.DEBUG}
_WARNINGS = {"node lost", "copy lost", "job failed", "planning failed", "stream restarted", "source silent"}

_log = logging.getLogger("ppa_core.driver.main")  # as a program this module has another name


@dataclass(frozen=True)
class Config:
    """What a driver runs, and where."""

    query: str
    options: dict[str, Any] = field(repr=False)
    """With passwords, if there are any."""
    nodes: tuple[Node, ...]
    plan: tuple[str, ...]
    settings: Settings
    run_id: str
    folder: Path
    master: str | None = None
    budget: int = 0
    planner: str = "default"
    metric: str = "of"
    sinks: tuple[str, ...] = field(default=(), repr=False)
    keep: int | None = None
    """Batches whose outputs stay in the folder; None: all."""
    input: str = ""
    """The run whose seals live sources have, if not this one's: for two runs over the same input."""
    owner: str = field(default="", repr=False)
    """Who holds the run's lease, over all drivers that it starts; none where nobody else knows the nodes."""
    detailed: bool = False
    """Whether lines tell of every task, every heartbeat and Spark's progress: a monitor wants that."""
    trusted_network: bool = False
    """Whether a Spark cluster may be used that has no authentication."""
    log_level: str = "warning"
    """Log records of this level and above come out as lines; standard error has those of `info` at least."""

    def __post_init__(self) -> None:
        check_run(self.run_id)
        if self.input:
            check_run(self.input)

    def hide_passwords(self) -> None:
        """Hide from now on, in whatever this process logs or prints, the passwords that are in here."""
        named = (f"?password={value}" for name, value in self.options.items() if is_secret(name))
        options = (value for value in self.options.values() if isinstance(value, str))
        remember_more([*(node.url for node in self.nodes), *self.sinks, *options, *named])

    def to_json(self) -> str:
        """With the nodes' passwords: for a pipe, never for a file or a log."""
        plain = {
            **self.__dict__,
            "nodes": [asdict(node) for node in self.nodes],
            "settings": asdict(self.settings),
            "folder": str(self.folder),
        }
        return json.dumps(plain)

    @classmethod
    def from_json(cls, text: str) -> Config:
        known = json.loads(text)
        nodes = tuple(Node(**node) for node in known.pop("nodes"))
        settings, folder = Settings(**known.pop("settings")), Path(known.pop("folder"))
        known |= {name: tuple(known[name]) for name in ("plan", "sinks")}
        return cls(nodes=nodes, settings=settings, folder=folder, **known)


@dataclass
class OutputLog:
    """The published outputs of a run, as files; those of the last `keep` batches."""

    folder: Path
    keep: int | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)

    def write(self, record: PublishedOutput) -> Line:
        """Keep a record's table; the line that tells of it."""
        self.folder.mkdir(parents=True, exist_ok=True)
        content = encode(record.table)
        path = self.path(record.batch, record.revision)
        with self.lock:
            with written_whole(path) as file:
                file.write(content)
            if self.keep is not None:
                for old in self.folder.glob(f"{record.batch - self.keep:08d}-[0-9]*.arrow"):
                    old.unlink(missing_ok=True)
        return {
            "kind": "output", "at": record.at, "batch": record.batch, "revision": record.revision, "status": record.status,
            "of": record.of, "missing": record.missing, "rows": record.table.num_rows, "digest": digest(content),
        }  # fmt: skip

    def read(self, batch: int, revision: int) -> pa.Table:
        return decode(self.path(batch, revision).read_bytes())

    def path(self, batch: int, revision: int) -> Path:
        return self.folder / f"{batch:08d}-{revision}.arrow"


def line_of(note: Note, detailed: bool) -> Line | None:
    """The line that tells of a note; None for what only a monitor wants."""
    figures = dict(note.figures)
    if isinstance(reason := figures.get("reason"), str):
        figures["reason"] = masked(reason)
    if note.kind in ("heartbeat", "standing", "rates") and not detailed:
        return None
    figures |= {name: asdict(value) for name, value in figures.items() if isinstance(value, Standing | MeasuredRates)}
    stats = figures.pop("stats", None)
    if isinstance(stats, list) and detailed:
        figures["stats"] = {name: [getattr(one, name) for one in stats] for name in _STATS}
    return {"kind": note.kind, "at": note.at, "batch": note.batch, **figures}


def note_of(line: Line) -> Note:
    """The note that a line tells of, with the tasks' statistics, the standing and the rates as they were."""
    figures = {name: value for name, value in line.items() if name not in ("kind", "at", "batch")}
    columns = figures.get("stats")
    if isinstance(columns, dict):
        figures["stats"] = [TaskStats(*row) for row in zip(*(columns[name] for name in _STATS), strict=True)]
    for name, kind in (("standing", Standing), ("rates", MeasuredRates)):
        if isinstance(value := figures.get(name), dict):
            figures[name] = kind(**{field: _frozen(item) for field, item in value.items()})
    return Note(line["kind"], line["at"], line["batch"], figures)


def _frozen(value: Any) -> Any:
    """Lists, as JSON has them, as tuples."""
    return tuple(map(_frozen, value)) if isinstance(value, list) else value


def run(config: Config, tell: Tell, commands: Callable[[], Line | None] | None = None, lost: Lost = lambda error: None) -> None:
    """Run a config to its end in this process; `tell` gets a line for everything that happens.

    `commands` waits for the next command; None means that there will be no more, and the run is to stop. `lost` is called if
    another driver has taken over the run.
    """
    from ppa_core.nodes.lease import Lease

    with Lease(config.nodes, config.run_id, config.owner, lost) as lease:
        _run(config, tell, commands, lease)


def _run(config: Config, tell: Tell, commands: Callable[[], Line | None] | None, lease: Lease) -> None:
    from ppa_core.driver.controls import Controls
    from ppa_core.driver.host import Host
    from ppa_core.driver.session import check_reach, open_session
    from ppa_core.engine.replanning import PlanRequest
    from ppa_core.pipeline.sinks import open_sink
    from ppa_core.pipeline.sources.live import of_run

    query = load_query(config.query, **config.options)
    pipeline = of_run(query.pipeline, config.input or config.run_id)
    log = OutputLog(config.folder / "outputs", config.keep)
    sinks = [open_sink(text) for text in config.sinks]
    check_reach(config.master, config.nodes)

    def starting(what: str) -> None:
        tell({"kind": "starting", "at": time.time(), "batch": -1, "what": what})

    starting("Spark's session")
    spark = open_session(config.master, config.settings.partitions, config.trusted_network)
    starting("its workers, and the first batch")

    def watch(seen: PublishedOutput | Note) -> None:
        _log_seen(seen)
        if isinstance(seen, PublishedOutput):
            lease.assure()
            for sink in sinks:
                sink(seen)
            tell(log.write(seen))
        elif (line := line_of(seen, config.detailed)) is not None:
            tell(line)

    plan = frozenset(config.plan)
    host = Host(spark, pipeline, config.nodes, plan, config.settings, watch, config.run_id, config.folder / "offsets")
    controls = Controls(host, PlanRequest(config.budget, config.planner, config.metric))
    if config.detailed:
        from ppa_core.driver.progress import Listener

        spark.streams.addListener(Listener(tell))
    if commands is not None:
        threading.Thread(target=_obey, args=(commands, controls, tell), daemon=True).start()
    if commands is not None and config.detailed:
        threading.Thread(target=_tell_numbers, args=(controls, tell), daemon=True).start()
    try:
        host.run()
    finally:
        for sink in sinks:
            sink.close()
    tell({"kind": "ended", "at": time.time(), "batch": host.machine.head})


def _log_seen(seen: PublishedOutput | Note) -> None:
    if isinstance(seen, PublishedOutput):
        told = ("output: %s, revision %d, OF %.4f, %d tasks missing", seen.status, seen.revision, seen.of, len(seen.missing))
        _log.log(logging.INFO if seen.missing else logging.DEBUG, *told, extra={"batch": seen.batch})
        return
    level = logging.WARNING if seen.kind in _WARNINGS else _QUIET.get(seen.kind, logging.INFO)
    if _log.isEnabledFor(level):
        figures = {name: value for name, value in seen.figures.items() if name not in ("stats", "cause")}
        _log.log(level, "%s: %s", seen.kind, figures, extra={"batch": seen.batch, "cause": seen.figures.get("cause", "")})


def _tell_numbers(controls: Any, tell: Tell) -> None:
    """Once the ledger is read: which commands were carried out by the drivers before this one."""
    controls.host.begun.wait()
    numbers = controls.carried_out
    tell({"kind": "carried out", "at": time.time(), "batch": controls.host.machine.head, "numbers": numbers})


def _obey(commands: Callable[[], Line | None], controls: Any, tell: Tell) -> None:
    """One with an id is taken first, in the order they come; without an id it is from the process that started this one."""
    while (command := commands()) is not None:
        id_ = command.get("id", "")
        try:
            if id_:
                controls.take(id_)
        except Exception as error:  # noqa: BLE001 - it must not end the looking for others
            _log.exception("command %s could not be taken", id_, extra={"cause": id_})
            text = str(error) if isinstance(error, PpaError) else f"{type(error).__name__}: {error}"
            tell({"kind": "answer", "id": id_, "outcome": "failed", "text": text})
            continue
        threading.Thread(target=_answer, args=(command, controls, tell), daemon=True).start()
    controls.host.stop()


def _answer(command: Line, controls: Any, tell: Tell) -> None:
    """Carry out a command in a thread of its own, for it may take a while, and say what came of it."""
    with logs.about(cause=command.get("id", "")):
        try:
            text = controls.do(command["do"], command.get("arguments", {}), command.get("id", ""))
            outcome = "done"
            _log.info("command %s: %s", command["do"], text)
        except PpaError as error:
            _log.info("command %s failed", command["do"], exc_info=True)
            outcome, text = "failed", str(error)
        except Exception as error:  # noqa: BLE001 - a command that cannot be carried out must not end the run
            _log.exception("command %s failed", command.get("do"))
            outcome, text = "failed", f"{type(error).__name__}: {error}"
    tell({"kind": "answer", "id": command.get("id", ""), "outcome": outcome, "text": text})


def main() -> int:
    config = Config.from_json(sys.stdin.readline())
    config.hide_passwords()
    logs.of_run(config.run_id)
    lock = threading.Lock()
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # whatever else is printed here is no line of ours

    def tell(line: Line) -> None:
        with lock:
            out.write(json.dumps(line) + "\n")
            out.flush()

    def commands() -> Line | None:
        text = sys.stdin.readline()
        return json.loads(text) if text else None

    def lost(error: PpaError) -> None:
        """At once, in the middle of whatever it does: the other one must not find this one writing."""
        tell(_failure(error))
        os._exit(1)

    with logs.configured(logs.LogSettings(config.log_level), tell):
        try:
            run(config, tell, commands, lost)
        except PpaError as error:
            _log.info("the run failed", exc_info=True)
            failure = _failure(error)
        except Exception:
            _log.exception("the driver failed")  # whoever started it starts another one
            raise
        else:
            return 0
    tell(failure)
    return 1


def _failure(error: PpaError) -> Line:
    kind = "unavailable" if isinstance(error, Unavailable) else "failed"
    line: Line = {"kind": kind, "at": time.time(), "batch": -1, "reason": str(error)}
    if isinstance(error, BadInput):
        line["bad_input"] = [error.place, error.reason]
    return line


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    os._exit(code)  # Spark's threads would keep the process; nothing is left to do
