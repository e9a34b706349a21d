"""What a job in this process came to: rates and outputs."""

from __future__ import annotations

from ppa_core.pipeline.tables import encode
from ppa_core.worker.stage import StageResult


def rates(result: StageResult, seconds: float) -> dict[str, float]:
    """Tuples/s by substream that carried some, in a batch of so many seconds."""
    return {
        f"{flow.stream.source}.{up + 1}>{flow.stream.target}.{down + 1}": rows / seconds
        for flow in result.flows
        for up, down, rows in zip(flow.up.tolist(), flow.down.tolist(), flow.rows.tolist(), strict=True)
    }


def outputs(result: StageResult) -> dict[tuple[str, int], bytes]:
    """The sinks' outputs as bytes, by task and batch."""
    return {(task, batch): encode(table) for task, batch, table in result.sinks}
