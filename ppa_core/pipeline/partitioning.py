"""Checks, when a pipeline is defined, that tuples with equal keys reach the same task wherever that is required. Pure.

`full` partitions by ranges of the key's hash. The stream stays partitioned by that key through one-to-one, merge, and split by
the same key, as long as the steps in between do not change the key. *Evenly* means that the ranges are those of `full`: two
inputs are partitioned alike only if both are.
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
    """Equal values of the column `key` are in one task; `evenly`: in the task that `full` would choose."""

    key: str
    evenly: bool = True


def partitioned(stream: Stream, upstream: Partitioned | None) -> Partitioned | None:
    """How a stream is partitioned, given the partitioning upstream; None if equal keys may be in different tasks."""
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
    """How the output of a step is partitioned: like its inputs, if the step is known not to change their key."""
    first = inputs[0] if inputs else None
    if first is None or any(each is None or each.key != first.key for each in inputs):
        return None
    kept = first.key in getattr(step, "keyed_by", ()) or getattr(step, "keeps_columns", False)
    return Partitioned(first.key, all(each is not None and each.evenly for each in inputs)) if kept else None


def check(place: str, join: bool, keys: tuple[str, ...], inputs: Mapping[Stream, Partitioned | None]) -> None:
    """Refuse inputs in which tuples with equal keys may be in different tasks although the operator needs them in one.

    One-to-one and merge inputs of an aggregate are accepted: their results are partial, to be combined downstream.
    """
    named = " and ".join(keys)
    for stream, found in inputs.items():
        spread = stream.partitioning in (Partitioning.FULL, Partitioning.SPLIT)
        here = f"{place}, input {stream.source!r}"
        if spread and stream.key not in keys:
            need = f"tuples with the same {named} must be in one task; partition by {' or '.join(keys)}"
            raise BadInput(here, f"partitioned by {stream.key!r}, but {need}")
        remedy = f'partition it as ("full", {str(stream.key if spread else keys[0])!r})'
        if found is None and (join or spread):
            reason = f"tuples with the same {named} may be in different tasks: {_why(stream)}"
            raise BadInput(here, f"{reason}; {remedy}")
        if join and found is not None and (found.key not in keys or not found.evenly):
            reason = f"tuples with the same {named} may be in other tasks than those of the other inputs"
            raise BadInput(here, f"{reason}, because the numbers of tasks are not multiples; {remedy}")
    used = {found.key for stream, found in inputs.items() if found and (join or stream.key)}
    if len(used) > 1:
        raise BadInput(
            place, f"its inputs are partitioned by {' and by '.join(sorted(used))}; use the same key for all of them"
        )


def _why(stream: Stream) -> str:
    if stream.partitioning is Partitioning.SPLIT:
        return f"{stream.source!r} has {stream.up_tasks} tasks and is not partitioned by {stream.key!r}"
    return f"{stream.partitioning} does not repartition them, and {stream.source!r} is not partitioned by a key"
