"""Spark: metrics of the streaming query over time."""

from __future__ import annotations

import streamlit as st

from pages.shared import frame, reading
from pages.shared.series import checkpoint_chart, log_chart, overrun_chart, phase_rows, phases_chart, rates_chart

WINDOWS = {"2 minutes": 120.0, "10 minutes": 600.0, "1 hour": 3600.0}
COLUMNS = {
    "mean (ms)": st.column_config.NumberColumn(format="%.1f"),
    "share": st.column_config.NumberColumn("share of the trigger", format="percent"),
}

frame.begin("Spark")
pipeline = frame.require_pipeline()
window = st.segmented_control("Window", list(WINDOWS), default="10 minutes", required=True, key="window", bind="query-params")
seconds = WINDOWS[window]


@frame.panel(every=1)
def metrics() -> None:
    answer = reading.state(pipeline)
    snapshot = answer.value
    frame.show_notices(snapshot, answer.trouble)
    progress = reading.progress(pipeline, seconds).value
    if snapshot is None or not progress:
        st.info("Spark has reported no progress yet.", icon=":material/info:")
        return
    last = progress[-1]
    rate, processed, trigger = st.columns(3)
    rate.metric("Input rate (rows/s)", f"{last.input_rate:,.0f}")
    processed.metric("Processing rate (rows/s)", f"{last.processed_rate:,.0f}")
    trigger.metric("Last trigger (s)", f"{last.durations.get('triggerExecution', 0) / 1000:.2f}")
    left, right = st.columns(2)
    with left:
        st.subheader("Input and processing rate")
        frame.draw(rates_chart(progress), "Input and processing rate over time", "rates")
        st.subheader("Trigger overrun")
        frame.draw(overrun_chart(progress, snapshot.info.batch_seconds), "Trigger overrun over time", "overrun")
        st.caption(f"The time that a trigger took beyond the batch interval of {snapshot.info.batch_seconds:g} s.")
        st.subheader("Mean duration by phase")
        st.dataframe(phase_rows(progress), hide_index=True, key="means", alt="Mean duration by phase", column_config=COLUMNS)
    with right:
        st.subheader("Batch duration by phase")
        frame.draw(phases_chart(progress), "Batch duration by phase over time", "phases")
        st.subheader("Checkpoint cost")
        st.caption("Size of the task checkpoints that were written to standby nodes, per batch")
        frame.draw(
            checkpoint_chart(reading.task_figures(pipeline, seconds).value), "Size of task checkpoints over time", "checkpoints"
        )
        st.caption("Time that Spark took to write its offset log and its commit log")
        frame.draw(log_chart(progress), "Time for Spark's offset and commit logs", "log")


metrics()
