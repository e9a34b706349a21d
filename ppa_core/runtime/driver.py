"""The driver process: a host in a process of its own. It is told what to run and what to do, and tells what happens.

`python -m ppa_core.runtime.driver` reads one JSON document, then commands, one a line, and writes a JSON line for everything
that happens. It ends when its input does: whoever started it is gone. Outputs go to `outputs/` in the run's folder as Arrow
files, each written under another name first, so that a file that is there is whole. Started again with the same document it
goes on where it was.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

import pyarrow as pa

from ppa_core.errors import BadInput, PpaError, Unavailable
from ppa_core.queries import load_query
from ppa_core.runtime.nodes import Node
from ppa_core.runtime.records import Note, Record, Settings
from ppa_core.runtime.tables import decode, digest, encode
from ppa_core.runtime.writing import TaskStats

Line = dict[str, Any]
Tell = Callable[[Line], None]

_STATS = tuple(field.name for field in fields(TaskStats))


@dataclass(frozen=True)
class Config:
    """What a driver runs, and where."""

    query: str
    options: dict[str, Any]
    nodes: tuple[Node, ...]
    plan: tuple[str, ...]
    settings: Settings
    run_id: str
    folder: Path
    master: str | None = None
    budget: int = 0
    planner: str = "default"
    metric: str = "of"
    sinks: tuple[str, ...] = ()
    keep: int | None = None
    """Batches whose outputs stay in the folder; None: all."""
    input: str = ""
    """The run whose seals live sources have, if not this one's: for two runs over the same input."""
    detailed: bool = False
    """Whether lines tell of every task, every heartbeat and Spark's progress: a monitor wants that."""
    trusted_network: bool = False
    """Whether a Spark cluster may be used that has no authentication."""

    def to_json(self) -> str:
        """With the nodes' passwords: for a pipe, never for a file or a log."""
        nodes = [{"name": n.name, "rack": n.rack, "role": n.role, "url": n.url} for n in self.nodes]
        plain = {**self.__dict__, "nodes": nodes, "settings": asdict(self.settings), "folder": str(self.folder)}
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

    def write(self, record: Record) -> Line:
        """Keep a record's table; the line that tells of it."""
        self.folder.mkdir(parents=True, exist_ok=True)
        content = encode(record.table)
        path = self.path(record.batch, record.revision)
        with self.lock:
            draft = path.with_suffix(".part")
            draft.write_bytes(content)
            draft.replace(path)
            if self.keep is not None:
                for old in self.folder.glob(f"{record.batch - self.keep:08d}-*.arrow"):
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
    if note.kind == "heartbeat" and not detailed:
        return None
    stats = figures.pop("stats", None)
    if isinstance(stats, list) and detailed:
        figures["stats"] = {name: [getattr(one, name) for one in stats] for name in _STATS}
    return {"kind": note.kind, "at": note.at, "batch": note.batch, **figures}


def note_of(line: Line) -> Note:
    """The note that a line tells of, with the tasks' statistics as they were."""
    figures = {name: value for name, value in line.items() if name not in ("kind", "at", "batch")}
    columns = figures.get("stats")
    if isinstance(columns, dict):
        figures["stats"] = [TaskStats(*row) for row in zip(*(columns[name] for name in _STATS), strict=True)]
    return Note(line["kind"], line["at"], line["batch"], figures)


def run(config: Config, tell: Tell, commands: Callable[[], Line | None] | None = None) -> None:
    """Run a config to its end in this process; `tell` gets a line for everything that happens.

    `commands` waits for the next command; None means that there will be no more, and the run is to stop.
    """
    from ppa_core.runtime.controls import Controls
    from ppa_core.runtime.host import Host
    from ppa_core.runtime.replanning import Wish
    from ppa_core.runtime.session import check_reach, open_session
    from ppa_core.runtime.sinks import open_sink
    from ppa_core.runtime.sources.live import of_run

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

    def watch(seen: Record | Note) -> None:
        if isinstance(seen, Record):
            for sink in sinks:
                sink(seen)
            tell(log.write(seen))
        elif (line := line_of(seen, config.detailed)) is not None:
            tell(line)

    plan = frozenset(config.plan)
    host = Host(spark, pipeline, config.nodes, plan, config.settings, watch, config.run_id, config.folder / "offsets")
    controls = Controls(host, Wish(config.budget, config.planner, config.metric))
    if config.detailed:
        from ppa_core.runtime.progress import Listener

        spark.streams.addListener(Listener(tell))
    if commands is not None:
        threading.Thread(target=_obey, args=(commands, controls, tell), daemon=True).start()
    try:
        host.run()
    finally:
        for sink in sinks:
            sink.close()
    tell({"kind": "ended", "at": time.time(), "batch": host.machine.head})


def _obey(commands: Callable[[], Line | None], controls: Any, tell: Tell) -> None:
    while (command := commands()) is not None:
        threading.Thread(target=_answer, args=(command, controls, tell), daemon=True).start()
    controls.host.stop()


def _answer(command: Line, controls: Any, tell: Tell) -> None:
    """Carry out a command in a thread of its own, for it may take a while, and say what came of it."""
    try:
        text = controls.do(command["do"], command.get("arguments", {}), command.get("id", ""))
        outcome = "done"
    except PpaError as error:
        outcome, text = "failed", str(error)
    except Exception as error:  # noqa: BLE001 - a command that cannot be carried out must not end the run
        outcome, text = "failed", f"{type(error).__name__}: {error}"
    tell({"kind": "answer", "id": command.get("id", ""), "outcome": outcome, "text": text})


def main() -> int:
    config = Config.from_json(sys.stdin.readline())
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

    try:
        run(config, tell, commands)
    except PpaError as error:
        kind = "unavailable" if isinstance(error, Unavailable) else "failed"
        line: Line = {"kind": kind, "at": time.time(), "batch": -1, "reason": str(error)}
        if isinstance(error, BadInput):
            line["bad_input"] = [error.place, error.reason]
        tell(line)
        return 1
    return 0


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    os._exit(code)  # Spark's threads would keep the process; nothing is left to do
