"""What is made sure of before a run is started."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ppa_core.driver.main import Config
from ppa_core.errors import BadInput
from ppa_core.nodes.lease import Lease
from ppa_core.terminal.output import note


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
    lease = Lease(config.nodes, config.run_id, config.owner)
    lease.take(lambda: note(f"run {config.run_id!r}: waiting until the lease of the driver before is over …"))
    try:
        yield
    finally:
        lease.release()
