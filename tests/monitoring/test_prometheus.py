"""The metrics: what an alert would want, from a monitor that may be away or full of nonsense."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.request import urlopen

import pytest
from prometheus_client.parser import text_string_to_metric_families

from monitoring import keys
from monitoring.connection import Address, Connection
from monitoring.prometheus import serve
from monitoring.reader import MonitorReader
from monitoring.recorded import Scenario, record
from ppa_core.errors import Unavailable
from tests.monitoring.tester import run

DOCS = Path(__file__).parents[2] / "docs"
LAST = Scenario(run="metrics", batches=70)
"""It ends in the middle of an incident."""


def scraped(address: Address) -> dict[tuple[str, str], float]:
    server, thread = serve(MonitorReader(address), "127.0.0.1", 0)
    try:
        assert server.server_address[0] == "127.0.0.1"
        with urlopen(f"http://127.0.0.1:{server.server_port}/metrics") as answer:
            text = answer.read().decode()
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
    return {
        (sample.name, sample.labels.get("node") or sample.labels.get("pipeline", "")): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_the_figures_an_alert_would_want(address: Address) -> None:
    record(address, LAST)
    found = scraped(address)
    assert found["ppa_monitor_up", ""] == 1
    assert 0 < found["ppa_output_fidelity", "tree"] < 1
    assert found["ppa_tentative_seconds_total", "tree"] == 9
    assert found["ppa_recovering_tasks", "tree"] == 5
    assert found["ppa_incident_open", "tree"] == 1
    assert found["ppa_replica_lag_batches", "tree"] == 0
    assert found["ppa_checkpoint_age_batches", "tree"] >= 9
    assert found["ppa_batch_seconds", "tree"] > 0.5
    assert found["ppa_monitor_dropped_records_total", "tree"] == 0
    assert found["ppa_node_up", "n1"] == 0
    assert found["ppa_node_up", "n2"] == 1


def test_a_monitor_that_is_away_is_a_metric_and_no_error() -> None:
    assert scraped(Address("redis://127.0.0.1:1")) == {("ppa_monitor_up", ""): 0}


def test_hostile_names_are_labels_and_nonsense_is_counted(address: Address, connection: Connection) -> None:
    name = 'a"} 1\nppa_forged 7\\'
    pipeline = record(address, Scenario(name=name, run="1", batches=2))
    run(connection, ("HSET", keys.now(pipeline), "nodes", "nonsense"))
    found = scraped(address)
    assert found["ppa_output_fidelity", name] == 1
    assert not any("forged" in metric for metric, _ in found)
    assert found["ppa_monitor_bad_records_total", ""] == 1


def test_a_port_that_is_taken_is_one_clear_error(address: Address) -> None:
    server, thread = serve(MonitorReader(address), "127.0.0.1", 0)
    with pytest.raises(Unavailable, match="choose another --port"):
        serve(MonitorReader(address), "127.0.0.1", server.server_port)
    server.shutdown()
    server.server_close()
    thread.join()


def test_the_documented_alerts_name_metrics_that_are_there(address: Address) -> None:
    record(address, LAST)
    there = {name for name, _ in scraped(address)}
    named = set(re.findall(r"\bppa_\w+", (DOCS / "prometheus" / "alerts.yml").read_text()))
    assert named
    assert named <= there
    described = set(re.findall(r"`(ppa_\w+)`", (DOCS / "monitoring.md").read_text()))
    assert described == {name for name in there if not name.endswith("_created")}
