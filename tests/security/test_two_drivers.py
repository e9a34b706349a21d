"""Two drivers of one name on the same nodes: the second is refused before it does harm; who lost its lease stops."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from redis import Redis

from ppa_core.cli import main
from ppa_core.driver.config import Config
from ppa_core.driver.records import Settings
from ppa_core.engine.run_events import DriverRestarted, OutputPublished, RunEvent
from ppa_core.errors import BadInput
from ppa_core.nodes import lease
from ppa_core.nodes.embedded import EmbeddedNodes, launch
from ppa_core.nodes.errors import LeaseLost
from ppa_core.nodes.lease import Lease, new_owner
from ppa_core.process.driver import Driver


@pytest.fixture
def nodes() -> Iterator[EmbeddedNodes]:
    with launch(2, 1, 2, 64) as running:
        yield running


def everything(nodes: EmbeddedNodes) -> list[dict[bytes, bytes | None]]:
    found = []
    for name in nodes.pids:
        with Redis.from_url(nodes.cluster[name].url) as client:
            found.append({key: client.get(key) for key in client.scan_iter()})
    return found


def wait_for(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_a_second_run_of_the_name_is_refused_in_one_line_before_it_touches_anything(
    nodes: EmbeddedNodes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "nodes.json"
    described = [{"name": n.name, "rack": n.rack, "role": n.role, "url": n.url} for n in nodes.cluster.nodes]
    file.touch(mode=0o600)
    file.write_text(json.dumps({"nodes": described}))
    words = ["run", "tree", "--nodes-file", str(file), "--name", "twice", "--output", str(tmp_path / "out")]
    monitor = tmp_path / "monitor"
    with Lease(nodes.cluster.nodes, "twice", new_owner()):
        before = everything(nodes)
        assert main([*words, "--monitor", "--monitor-directory", str(monitor)]) == 2
        assert everything(nodes) == before
    told = capsys.readouterr().err
    assert "error: run 'twice': another driver runs it on these nodes; stop that driver first, or choose another --name" in told
    assert "Traceback" not in told
    assert not monitor.exists()
    assert everything(nodes) == [{}, {}, {}], "a lease that is given back leaves nothing"


def test_the_drivers_of_one_owner_follow_each_other_at_once(nodes: EmbeddedNodes) -> None:
    owner = new_owner()
    for _ in range(3):
        Lease(nodes.cluster.nodes, "run", owner).take(lambda: pytest.fail("it waits"))
    Lease(nodes.cluster.nodes, "another", new_owner()).take(lambda: pytest.fail("it waits"))


def test_a_lease_that_nobody_renews_is_taken_over_and_one_that_is_renewed_is_not(
    nodes: EmbeddedNodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease, "SECONDS", 2.0)
    gone = Lease(nodes.cluster.nodes, "run", new_owner())
    gone.take()
    waited: list[int] = []
    next_one = Lease(nodes.cluster.nodes, "run", new_owner())
    next_one.take(lambda: waited.append(1))
    assert waited == [1]
    next_one.release()
    monkeypatch.setattr(lease, "SECONDS", 30.0)
    with Lease(nodes.cluster.nodes, "run", new_owner()):
        began = time.monotonic()
        with pytest.raises(LeaseLost):
            Lease(nodes.cluster.nodes, "run", new_owner()).take()
        assert time.monotonic() - began < 25, "that it is renewed is seen before it could lapse"


def test_of_many_that_come_together_one_gets_it(nodes: EmbeddedNodes) -> None:
    got: list[Lease] = []
    refused: list[Exception] = []
    start = threading.Barrier(6)

    def come() -> None:
        mine = Lease(nodes.cluster.nodes, "run", new_owner())
        start.wait()
        try:
            mine.__enter__()
            got.append(mine)
        except LeaseLost as error:
            refused.append(error)

    threads = [threading.Thread(target=come) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(got), len(refused)) == (1, 5)
    got[0].__exit__(None, None, None)
    assert everything(nodes) == [{}, {}, {}]


def test_nodes_that_die_or_hang_do_not_end_a_lease_and_any_that_is_left_keeps_others_out(nodes: EmbeddedNodes) -> None:
    lost: list[LeaseLost] = []
    with Lease(nodes.cluster.nodes, "run", new_owner(), lost.append) as held:
        nodes.kill("n1")
        held.renew()
        nodes.restart("n1")  # empty: another would get the lease there
        with pytest.raises(LeaseLost):
            Lease(nodes.cluster.nodes, "run", new_owner()).take()
        nodes.kill("n1")
        nodes.kill("n2")
        held.renew()
        nodes.kill("s1")
        held.renew()
        held.ensure_held()
    assert lost == []


def test_who_lost_the_lease_is_told_once_and_publishes_nothing(nodes: EmbeddedNodes, monkeypatch: pytest.MonkeyPatch) -> None:
    lost: list[LeaseLost] = []
    with Lease(nodes.cluster.nodes, "run", new_owner(), lost.append) as held:
        with Redis.from_url(nodes.cluster["n2"].url) as client:
            client.set("ppa:lease:run", "another", ex=60)
        wait_for(lambda: bool(lost))
        held._renewed -= lease.SECONDS  # as if the process had stood still
        with pytest.raises(LeaseLost, match="another driver runs it"):
            held.ensure_held()
    with Redis.from_url(nodes.cluster["n2"].url) as client:
        assert client.get("ppa:lease:run") == b"another", "the other's lease is not given back by this one"


@pytest.mark.drill
def test_a_driver_goes_on_after_a_killed_one_and_stops_when_another_takes_over(nodes: EmbeddedNodes, tmp_path: Path) -> None:
    settings = Settings(batches=200, checkpoint_every=3, interval=0.3)
    options = {"rate": 20, "window": 4.0, "batch_seconds": 1.0}

    def config(owner: str) -> Config:
        return Config("tree", options, nodes.cluster.nodes, (), settings, "mine", tmp_path, owner=owner)

    def until(driver: Driver, batch: int) -> list[RunEvent]:
        events = []
        for event in driver.events():
            events.append(event)
            if isinstance(event, OutputPublished) and event.batch >= batch:
                break
        return events

    with Driver(config(new_owner())) as driver:
        until(driver, 3)
    with Driver(config(new_owner())) as driver:
        assert any(isinstance(event, DriverRestarted) for event in until(driver, 6))
        for name in nodes.pids:
            with Redis.from_url(nodes.cluster[name].url) as client:
                client.set("ppa:lease:mine", "another", ex=300)
        with pytest.raises(BadInput, match="another driver runs it on these nodes"):
            until(driver, 190)
