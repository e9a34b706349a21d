"""Partitioning: by which key an operator's input lies in its tasks, so that what must meet is seen to meet. Pure.

`full` partitions by ranges of the key's hash. What comes after it one-to-one, merged or split by the same key stays so, as long
as the steps on the way leave the key as it is. *Evenly* means that the ranges are those of `full`: only so do two inputs agree.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ppa_core.errors import BadInput
from ppa_core.pipeline.streams import Stream
from ppa_core.topology import Partitioning


@dataclass(frozen=True)
class Partitioned:
    """Equal values of the column `key` are in one task; `evenly`: in that of `full`."""

    key: str
    evenly: bool = True


def partitioned(stream: Stream, upstream: Partitioned | None) -> Partitioned | None:
    """How a stream partitions its tuples, given how they lie upstream; None where equal keys need not meet."""
    match stream.partitioning:
        case Partitioning.FULL:
            return Partitioned(str(stream.key))
        case Partitioning.ONE_TO_ONE:
            return upstream
        case Partitioning.MERGE:
            whole = stream.up_tasks % stream.down_tasks == 0
            return Partitioned(upstream.key, upstream.evenly and whole) if upstream else None
        case Partitioning.SPLIT:
            if stream.up_tasks == 1:
                return Partitioned(str(stream.key))
            whole = stream.down_tasks % stream.up_tasks == 0
            return Partitioned(upstream.key, upstream.evenly and whole) if upstream and upstream.key == stream.key else None


def output(step: Any, schema: Any, inputs: list[Partitioned | None]) -> Partitioned | None:
    """How the output of a step lies in its tasks: as its inputs do, if it is known to leave their key alone."""
    first = inputs[0] if inputs else None
    if first is None or any(each is None or each.key != first.key for each in inputs):
        return None
    kept = first.key in getattr(step, "keyed_by", ()) or getattr(step, "keeps_columns", False)
    return Partitioned(first.key, all(each is not None and each.evenly for each in inputs)) if kept else None


def check(place: str, join: bool, keys: tuple[str, ...], inputs: Mapping[Stream, Partitioned | None]) -> None:
    """Refuse inputs whose tuples with the same keys would not meet, where the one who wrote it must believe that they do.

    One-to-one and merged inputs of an aggregate may be partial: whoever leaves tuples where they are adds them up later.
    """
    named = " and ".join(keys)
    for stream, found in inputs.items():
        spread = stream.partitioning in (Partitioning.FULL, Partitioning.SPLIT)
        here = f"{place}, input {stream.source!r}"
        if spread and stream.key not in keys:
            need = f"tuples with the same {named} must meet in one task; partition by {' or '.join(keys)}"
            raise BadInput(here, f"partitioned by {stream.key!r}, but {need}")
        remedy = f'partition it as ("full", {str(stream.key if spread else keys[0])!r})'
        if found is None and (join or spread):
            reason = f"tuples with the same {named} need not meet in one task: {_why(stream)}"
            raise BadInput(here, f"{reason}; {remedy}")
        if join and found is not None and (found.key not in keys or not found.evenly):
            reason = f"tuples with the same {named} would not meet those of the other inputs"
            raise BadInput(here, f"{reason}, for the numbers of tasks do not divide; {remedy}")
    dealt_by = {found.key for stream, found in inputs.items() if found and (join or stream.key)}
    if len(dealt_by) > 1:
        raise BadInput(place, f"its inputs are partitioned by {' and by '.join(sorted(dealt_by))}; choose one for all of them")


def _why(stream: Stream) -> str:
    if stream.partitioning is Partitioning.SPLIT:
        return f"{stream.source!r} has {stream.up_tasks} tasks, and is not partitioned by {stream.key!r} itself"
    return f"{stream.partitioning} leaves them where they are, and {stream.source!r} is not partitioned by a key"
