"""A Prometheus endpoint with the metrics for alerts, read from the monitor at every scrape.

It needs only the monitor, so it can run on any machine, and it still answers after the pipeline has ended. If a pipeline has
several runs, only the latest is exported, so that the number of time series stays bounded.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from wsgiref.simple_server import WSGIServer

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from monitoring.reader import MonitorReader
from monitoring.views import Snapshot
from ppa_core.errors import PpaError, Unavailable

_log = logging.getLogger(__name__)

_GAUGES = {
    "ppa_output_fidelity": "OF of the last output: 1 while no task is missing.",
    "ppa_plan_output_fidelity": "Worst-case OF of the plan in force.",
    "ppa_batch_seconds": "Duration of the last batch.",
    "ppa_batch_interval_seconds": "Batch interval.",
    "ppa_last_output_timestamp_seconds": "Time of the last output.",
    "ppa_deadline_seconds": "Time after the end of its interval by which a batch has an output.",
    "ppa_output_delay_seconds": "Time from the end of its interval to the first output of the last batch.",
    "ppa_worst_output_lateness_seconds": "Time by which the latest output missed its deadline.",
    "ppa_input_rows_per_second": "Input rate, from Spark's progress.",
    "ppa_processed_rows_per_second": "Processing rate, from Spark's progress.",
    "ppa_failed_tasks": "Failed tasks whose recovery has not started.",
    "ppa_recovering_tasks": "Tasks that are being recovered.",
    "ppa_tentative_tasks": "Tasks that run on incomplete input.",
    "ppa_replica_lag_batches": "Batches by which the oldest replica is behind.",
    "ppa_checkpoint_age_batches": "Batches since the oldest checkpoint.",
    "ppa_incident_open": "1 during an incident, from the first failure to the last correction.",
    "ppa_last_heard_timestamp_seconds": "Time of the last data of the run.",
    "ppa_budget_tasks": "Maximum number of tasks with a replica.",
}
_COUNTERS = {
    "ppa_batches": "Batches published.",
    "ppa_tentative_batches": "Batches published with tasks missing.",
    "ppa_tentative_seconds": "Stream time whose first output was tentative.",
    "ppa_corrected_batches": "Tentative batches replaced by their accurate output.",
    "ppa_late_outputs": "Batches whose first output came after their deadline.",
    "ppa_incidents": "Incidents since the run was started.",
    "ppa_monitor_dropped_records": "Records dropped while the monitor was unavailable.",
    "ppa_monitor_refused_records": "Records refused by the monitor.",
}


class StateCollector(Collector):
    """The current state of every pipeline as metrics. A monitor that does not answer is `ppa_monitor_up 0`, not an error."""

    def __init__(self, reader: MonitorReader) -> None:
        self._reader = reader

    def describe(self) -> Iterator[Metric]:
        return iter(())  # so that registration does not read the monitor

    def collect(self) -> Iterator[Metric]:
        up = GaugeMetricFamily("ppa_monitor_up", "1 if the monitor answers.")
        try:
            states = self._states()
        except PpaError:
            _log.info("the monitor does not answer", exc_info=True)
            up.add_metric([], 0)
            yield up
            return
        up.add_metric([], 1)
        yield up
        bad = CounterMetricFamily("ppa_monitor_bad_records", "Values in the monitor that are not valid records.")
        bad.add_metric([], sum(self._reader.bad.values()))
        yield bad
        yield from _families(states)

    def _states(self) -> dict[str, Snapshot]:
        found: dict[str, Snapshot] = {}
        for pipeline in self._reader.pipelines():
            if pipeline.name not in found:
                state = self._reader.state(pipeline)
                if state is not None:
                    found[pipeline.name] = state
        return found


def _families(states: dict[str, Snapshot]) -> Iterator[Metric]:
    gauges = {name: GaugeMetricFamily(name, text, labels=["pipeline"]) for name, text in _GAUGES.items()}
    counters = {name: CounterMetricFamily(name, text, labels=["pipeline"]) for name, text in _COUNTERS.items()}
    node_up = GaugeMetricFamily("ppa_node_up", "1 if the node answers.", labels=["pipeline", "node", "rack"])
    memory = GaugeMetricFamily("ppa_node_memory_bytes", "Memory used by the node.", labels=["pipeline", "node", "rack"])
    for name, state in states.items():
        for metric, value in _values(state).items():
            if value is not None:
                (gauges if metric in gauges else counters)[metric].add_metric([name], float(value))
        for node in state.nodes:
            node_up.add_metric([name, node.name, node.rack], float(node.alive))
            if node.memory is not None:
                memory.add_metric([name, node.name, node.rack], node.memory)
    yield from gauges.values()
    yield from counters.values()
    yield node_up
    yield memory


def _values(state: Snapshot) -> dict[str, float | None]:
    """The metrics of one pipeline; None if not reported yet."""
    count = {kind: sum(task.state == kind for task in state.tasks) for kind in ("failed", "recovering", "tentative")}
    batch, progress, health, totals = state.batch, state.progress, state.health, state.totals
    return {
        "ppa_output_fidelity": state.of,
        "ppa_plan_output_fidelity": state.plan.of if state.plan else None,
        "ppa_batch_seconds": batch.seconds if batch else None,
        "ppa_batch_interval_seconds": state.info.batch_seconds,
        "ppa_last_output_timestamp_seconds": batch.at if batch else None,
        "ppa_deadline_seconds": state.info.deadline_seconds,
        "ppa_output_delay_seconds": totals.delay,
        "ppa_worst_output_lateness_seconds": totals.worst_lateness,
        "ppa_input_rows_per_second": progress.input_rate if progress else None,
        "ppa_processed_rows_per_second": progress.processed_rate if progress else None,
        "ppa_failed_tasks": count["failed"],
        "ppa_recovering_tasks": count["recovering"],
        "ppa_tentative_tasks": count["tentative"],
        "ppa_replica_lag_batches": max((t.replica_lag for t in state.tasks if t.replica_lag is not None), default=None),
        "ppa_checkpoint_age_batches": max(
            (t.checkpoint_age for t in state.tasks if t.checkpoint_age is not None), default=None
        ),
        "ppa_incident_open": state.incident is not None,
        "ppa_last_heard_timestamp_seconds": state.heard,
        "ppa_budget_tasks": state.plan.budget if state.plan else state.info.budget,
        "ppa_batches": totals.batches,
        "ppa_tentative_batches": totals.tentative_batches,
        "ppa_tentative_seconds": totals.tentative_seconds,
        "ppa_corrected_batches": totals.corrected_batches,
        "ppa_late_outputs": totals.late_outputs,
        "ppa_incidents": totals.incidents,
        "ppa_monitor_dropped_records": health.dropped if health else None,
        "ppa_monitor_refused_records": health.refused if health else None,
    }


def serve(reader: MonitorReader, host: str, port: int) -> tuple[WSGIServer, threading.Thread]:
    """Start the endpoint in a thread; port 0 chooses a free one (`server.server_port`). Unavailable if it cannot listen."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(StateCollector(reader))
    try:
        return start_http_server(port, host, registry)
    except OSError as error:
        raise Unavailable(f"metrics: cannot listen on {host}:{port}: {error.strerror}; choose another --port") from error


def wait_forever() -> None:
    while True:
        time.sleep(3600)
