"""Checks before a run is started."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ppa_core.driver.config import Config
from ppa_core.errors import BadInput
from ppa_core.nodes.lease import Lease
from ppa_core.terminal.output import note


def check_empty(sink: str) -> None:
    """Refuse a sink with outputs of another run: readers take the highest revision of a batch and would mix up two runs."""
    kind, _, place = sink.partition(":")
    if kind in ("jsonl", "parquet") and place and Path(place).is_dir() and any(Path(place).iterdir()):
        raise BadInput(
            f"--sink {sink}", "it contains outputs of another run; choose another folder, or resume that run with --name"
        )


def check_folder(folder: Path, embedded: Any) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise BadInput(f"--output {folder}", f"cannot be used as an output folder: {reason}") from None
    if embedded is not None and (folder / "outputs").exists():
        raise BadInput(
            f"--output {folder}",
            "it contains another run, which cannot be resumed because its embedded nodes are gone; choose another folder",
        )


@contextmanager
def alone(config: Config) -> Iterator[None]:
    """Hold the lease of this run name on these nodes. Taken before the monitor, a source or a sink is touched."""
    lease = Lease(config.nodes, config.run_id, config.owner, strict=config.strict_lease, witness=config.witness)
    lease.take(lambda: note(f"run {config.run_id!r}: waiting for the previous driver's lease to expire …"), reserve=True)
    try:
        yield
    finally:
        lease.release(everybody=True)
