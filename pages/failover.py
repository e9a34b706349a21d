"""Failover: what lives on each node, whether it can be taken down, and doing it."""

from __future__ import annotations

import streamlit as st

from monitoring.commands import BringBack, Command, FailOver, Kill
from monitoring.views import Snapshot
from pages.shared import acting, frame, reading
from pages.shared.effects import NOT_PUBLISHED, known_nodes, nodes_of, pace_of, verdicts
from pages.shared.tables import audit_rows, effect_lines, living_lines, node_rows
from ppa_core.engine.predictions import predict
from ppa_core.topology import Topology

ACTIONS = {
    "graceful failover": "copy out, then switch: no tentative output",
    "forced failover": "treat it as dead: what has its newest version nowhere else is recovered",
    "kill (drill)": "really kill it: for nodes that this machine runs",
    "bring back": "use a node again",
}
WIDTHS = {
    "rack": 42, "node": 48, "role": 64, "safe?": 48, "OF if it goes": 76, "why": 200, "tasks": 44, "replicas": 56,
    "checkpoints": 56, "state": 58, "heard": 62, "memory": 62,
}  # fmt: skip
LABELS = {"OF if it goes": "OF if gone", "checkpoints": "checkp.", "replicas": "replic."}

frame.begin("Failover")
pipeline = frame.require_pipeline()


@frame.panel(every=1)
def nodes() -> None:
    answer = reading.state(pipeline)
    snapshot, topology = answer.value, reading.loaded_topology(pipeline)
    frame.tell(snapshot, answer.trouble)
    if snapshot is None or topology is None:
        return
    if snapshot.standing is None:
        st.info(NOT_PUBLISHED)
        return
    pace = pace_of(reading.batches(pipeline, 600).value, snapshot.info.batch_seconds)
    found = verdicts(topology, snapshot, snapshot.standing, pace)
    st.dataframe(
        node_rows(snapshot, found, reading.now()),
        hide_index=True,
        height="content",
        key="nodes",
        alt="Racks and their nodes: what lives there, and whether they can be taken down",
        column_config={name: st.column_config.Column(LABELS.get(name, name), width=width) for name, width in WIDTHS.items()},
    )


st.subheader("Nodes by rack: safe to take down?")
nodes()

snapshot, topology = reading.state(pipeline).value, reading.loaded_topology(pipeline)
if snapshot is None or topology is None:
    st.stop()
st.subheader("Dry run")
action, target = st.columns(2)
chosen = action.radio("Action", list(ACTIONS), captions=list(ACTIONS.values()), key="action", bind="query-params")
names = [f"node:{node.name}" for node in known_nodes(snapshot)]
racks = [] if chosen == "bring back" else sorted({f"rack:{node.rack}" for node in known_nodes(snapshot)})
where = target.selectbox("Node or rack", [*names, *racks], key="target", bind="query-params")


def predicted(snapshot: Snapshot, topology: Topology) -> list[str]:
    """What the action would do now, in lines of text."""
    pace = pace_of(reading.batches(pipeline, 600).value, snapshot.info.batch_seconds)
    if snapshot.standing is None:
        return [NOT_PUBLISHED]
    chosen_nodes, nodes = nodes_of(snapshot, [where]), known_nodes(snapshot)
    found = predict(snapshot.standing, chosen_nodes, topology, pace)
    gone, idle = [node.name for node in nodes if not node.alive], [node.name for node in nodes if node.drained]
    return effect_lines(chosen, sorted(chosen_nodes), found, gone, idle)


@frame.panel(every=1)
def dry_run() -> None:
    snapshot, topology = reading.state(pipeline).value, reading.loaded_topology(pipeline)
    if snapshot is not None and topology is not None:
        lines = [*living_lines(snapshot, nodes_of(snapshot, [where])), "", *predicted(snapshot, topology)]
        st.text("\n".join(lines))


with target, st.container(border=True):
    dry_run()

if frame.operator() is None:
    st.caption("Log in as operator to carry it out.")
else:
    command: Command
    match chosen:
        case "graceful failover":
            command = FailOver(where, "graceful")
        case "forced failover":
            command = FailOver(where, "forced")
        case "kill (drill)":
            command = Kill(where)
        case _:
            command = BringBack(where.removeprefix("node:"))
    if action.button("Carry it out …", key="carry out", type="primary"):
        acting.ask("failover", pipeline, [command], predicted(snapshot, topology))
acting.confirm("failover", pipeline)


@frame.panel(every=2)
def log() -> None:
    found = reading.audit(pipeline).value
    rows = audit_rows(found.lines)
    if not found.intact:
        st.error("The audit log was tampered with, or lines of it were lost.", icon=":material/gpp_bad:")
    if rows or not found.intact:
        st.text(found.said)
    if rows:
        widths = {"time": 150, "who": 80, "command": 150, "outcome": 70, "text": 270, "id": 70}
        columns = {name: st.column_config.Column(width=width) for name, width in widths.items()}
        st.dataframe(rows, hide_index=True, key="audit", alt="Who sent what, and what came of it", column_config=columns)
    else:
        st.caption("No command has reached this pipeline yet.")


st.subheader("Audit log")
log()
