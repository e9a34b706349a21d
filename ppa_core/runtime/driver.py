"""The driver process: a host in a process of its own. It is told what to run, and tells what happens.

`python -m ppa_core.runtime.driver` reads one JSON document, then writes a JSON line for everything that happens. Outputs go to
`outputs/` in the run's folder as Arrow files, each written under another name first, so that a file that is there is whole.
Started again with the same document it goes on where it was.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from ppa_core.errors import PpaError
from ppa_core.queries import load_query
from ppa_core.runtime.host import Host, Note, Record, Settings
from ppa_core.runtime.nodes import Node
from ppa_core.runtime.session import open_session
from ppa_core.runtime.tables import decode, digest, encode


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
        return cls(nodes=nodes, settings=settings, folder=folder, **{**known, "plan": tuple(known["plan"])})


@dataclass
class OutputLog:
    """The published outputs of a run, as files."""

    folder: Path
    lock: threading.Lock = field(default_factory=threading.Lock)

    def write(self, record: Record) -> dict[str, Any]:
        """Keep a record's table; the line that tells of it."""
        self.folder.mkdir(parents=True, exist_ok=True)
        content = encode(record.table)
        path = self.path(record.batch, record.revision)
        with self.lock:
            draft = path.with_suffix(".part")
            draft.write_bytes(content)
            draft.replace(path)
        return {
            "kind": "output", "at": record.at, "batch": record.batch, "revision": record.revision, "status": record.status,
            "of": record.of, "missing": record.missing, "rows": record.table.num_rows, "digest": digest(content),
        }  # fmt: skip

    def read(self, batch: int, revision: int) -> pa.Table:
        return decode(self.path(batch, revision).read_bytes())

    def path(self, batch: int, revision: int) -> Path:
        return self.folder / f"{batch:08d}-{revision}.arrow"


def run(config: Config, tell: Any, stop: threading.Event | None = None) -> None:
    """Run a config to its end in this process; `tell` gets a line (a dict) for everything that happens."""
    query = load_query(config.query, **config.options)
    spark = open_session(config.master, config.settings.partitions)
    log = OutputLog(config.folder / "outputs")

    def watch(seen: Record | Note) -> None:
        if isinstance(seen, Record):
            tell(log.write(seen))
        else:
            tell({"kind": seen.kind, "at": seen.at, "batch": seen.batch, **seen.figures})

    offsets = config.folder / "offsets"
    host = Host(spark, query.pipeline, config.nodes, frozenset(config.plan), config.settings, watch, config.run_id, offsets)
    tell({"kind": "placed", "homes": host.machine.placement.primaries, "replicas": host.machine.placement.replicas,
          "checkpoints": host.machine.placement.checkpoints})  # fmt: skip
    if stop is not None:
        threading.Thread(target=_stop_with, args=(stop, host), daemon=True).start()
    host.run()
    tell({"kind": "ended"})


def _stop_with(stop: threading.Event, host: Host) -> None:
    stop.wait()
    host.stop()


def main() -> int:
    config = Config.from_json(sys.stdin.readline())
    lock = threading.Lock()
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # whatever else is printed here is no line of ours

    def tell(line: dict[str, Any]) -> None:
        with lock:
            out.write(json.dumps(line) + "\n")
            out.flush()

    try:
        run(config, tell)
    except PpaError as error:
        tell({"kind": "failed", "reason": str(error)})
        return 1
    return 0


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    os._exit(code)  # Spark's threads would keep the process; nothing is left to do
