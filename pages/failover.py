"""Failover: tasks and copies on each node, whether it is safe to take down, and the commands for nodes."""

from __future__ import annotations

import streamlit as st

from monitoring.commands import read
from monitoring.views import Snapshot
from pages.shared import acting, frame, reading
from pages.shared.effects import NOT_PUBLISHED, known_nodes, nodes_of, pace_of, targets, verdicts
from pages.shared.tables import audit_rows, contents_lines, effect_lines, node_rows
from ppa_core.engine.predictions import predict
from ppa_core.topology import Topology

ACTIONS = {
    "drain": "move all tasks and copies away before it is taken down; no output becomes tentative",
    "undrain": "use it again after a drain",
    "fail": "treat it as lost although it still answers; tasks without an up-to-date copy are recovered",
    "kill": "kill its process; only for embedded nodes",
    "restore": "use it again after a drain, fail or kill; a killed embedded node is started again, empty",
}
WIDTHS = {
    "rack": 42, "node": 48, "role": 64, "safe?": 48, "OF if lost": 76, "why": 200, "tasks": 44, "replicas": 56,
    "checkpoints": 56, "state": 58, "heartbeat": 66, "memory": 62,
}  # fmt: skip
LABELS = {"checkpoints": "checkp.", "replicas": "replic."}
HELP = {
    "safe?": "Safe to take down now, without warning: every task continues on another node.",
    "OF if lost": "Predicted output fidelity if it is lost now, until recovery is complete.",
    "replicas": "Replicas of tasks of other nodes.",
    "checkpoints": "Checkpoints of tasks of other nodes.",
    "heartbeat": "Time since its last heartbeat.",
}

frame.begin("Failover")
pipeline = frame.require_pipeline()


@frame.panel(every=1)
def nodes() -> None:
    answer = reading.state(pipeline)
    snapshot, topology = answer.value, reading.loaded_topology(pipeline)
    frame.show_notices(snapshot, answer.trouble)
    if snapshot is None or topology is None:
        return
    if snapshot.standing is None:
        st.info(NOT_PUBLISHED)
        return
    pace = pace_of(reading.batches(pipeline, 600).value, snapshot.info.batch_seconds)
    node_verdicts = verdicts(topology, snapshot, snapshot.standing, pace)
    st.dataframe(
        node_rows(snapshot, node_verdicts, reading.now()),
        hide_index=True,
        height="content",
        key="nodes",
        alt="Racks and nodes: their tasks and copies, and whether they are safe to take down",
        column_config={
            name: st.column_config.Column(LABELS.get(name, name), width=width, help=HELP.get(name))
            for name, width in WIDTHS.items()
        },
    )


st.subheader("Nodes by rack: safe to take down?")
nodes()

snapshot, topology = reading.state(pipeline).value, reading.loaded_topology(pipeline)
if snapshot is None or topology is None:
    st.stop()
st.subheader("Dry run")
action, target = st.columns(2)
chosen = action.radio("Action", list(ACTIONS), captions=list(ACTIONS.values()), key="action", bind="query-params")
where: str | None = target.selectbox("Node or rack", targets(chosen, snapshot), key="target", bind="query-params")


def predicted(where: str, snapshot: Snapshot, topology: Topology) -> list[str]:
    """The effect of the action now, as lines of text."""
    pace = pace_of(reading.batches(pipeline, 600).value, snapshot.info.batch_seconds)
    if snapshot.standing is None:
        return [NOT_PUBLISHED]
    chosen_nodes = nodes_of(snapshot, [where])
    prediction = predict(snapshot.standing, chosen_nodes, topology, pace)
    return effect_lines(chosen, sorted(chosen_nodes), prediction, known_nodes(snapshot))


@frame.panel(every=1)
def dry_run(where: str) -> None:
    snapshot, topology = reading.state(pipeline).value, reading.loaded_topology(pipeline)
    if snapshot is not None and topology is not None:
        lines = [*contents_lines(snapshot, nodes_of(snapshot, [where])), "", *predicted(where, snapshot, topology)]
        st.text("\n".join(lines))


with target, st.container(border=True):
    if where is None:
        st.text(f"There is no node to {chosen}.")
    else:
        dry_run(where)

if frame.operator() is None:
    st.caption("Log in as operator to send commands.")
elif where is not None and action.button(f"{chosen.capitalize()} …", key="send", type="primary"):
    acting.ask("failover", pipeline, read({"command": chosen, "target": where}), predicted(where, snapshot, topology))
acting.confirm("failover", pipeline)


@frame.panel(every=2)
def log() -> None:
    audit = reading.audit(pipeline).value
    rows = audit_rows(audit.lines)
    if not audit.intact:
        st.error("The audit log was tampered with, or lines of it were lost.", icon=":material/gpp_bad:")
    if rows or not audit.intact:
        st.text(audit.summary)
    if rows:
        widths = {"time": 150, "who": 80, "command": 150, "outcome": 70, "text": 270, "id": 70}
        columns = {name: st.column_config.Column(width=width) for name, width in widths.items()}
        st.dataframe(
            rows, hide_index=True, key="audit", alt="Commands, who sent them, and their outcomes", column_config=columns
        )
    else:
        st.caption("This pipeline has received no commands yet.")


st.subheader("Audit log")
log()
