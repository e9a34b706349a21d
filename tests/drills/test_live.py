"""Live sources in a running pipeline: everything that is fed while nodes and the driver are killed is counted once, no more."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from redis import Redis

from ppa_core.drills.drill import DrillEvent, Setup, drill
from ppa_core.drills.failures import PlannedFailure
from ppa_core.driver.config import Config
from ppa_core.driver.records import Settings
from ppa_core.engine.run_events import Ended, OutputPublished
from ppa_core.nodes.embedded import EmbeddedNodes, launch
from ppa_core.pipeline.sinks import read_sink
from ppa_core.process.driver import Driver
from tests.support.stored import EVERYTHING

pytestmark = pytest.mark.drill

ROUNDS, BATCHES = 40, 14
WORDS = [f"w{n % 7}" for n in range(50)]
Feed = Callable[[int], None]


def run(query: str, options: dict[str, object], sink: str, nodes: EmbeddedNodes, folder: Path, feed: Feed) -> None:
    """Runs until all is counted; feeds it meanwhile; kills two nodes after batch 3 and the driver after batch 6."""
    settings = Settings(batches=BATCHES, checkpoint_every=3, interval=0.5)
    cluster, plan = tuple(nodes.cluster.nodes), ("counts.1",)
    config = Config(f"tests.support.live:{query}", options, cluster, plan, settings, "live", folder, sinks=(sink,))

    def feed_all() -> None:
        for number in range(ROUNDS):
            feed(number)
            time.sleep(0.1)

    feeding = threading.Thread(target=feed_all)
    dead = False
    with Driver(config) as driver:
        for event in driver.events():
            if not isinstance(event, OutputPublished):
                continue
            if not feeding.ident:
                feeding.start()
            if event.batch >= 3 and not dead:
                dead = True
                nodes.kill("n1")
                nodes.kill("n2")
            if event.batch == 6:
                break
        driver.kill()
    feeding.join()
    with Driver(config) as driver:
        assert [event for event in driver.events() if isinstance(event, Ended)]


def counted(sink: str) -> Counter[str]:
    records = list(read_sink(sink, "accurate"))
    assert [record.batch for record in records] == list(range(BATCHES))
    total: Counter[str] = Counter()
    for record in records:
        total.update(dict(zip(record.table["word"].to_pylist(), record.table["count"].to_pylist(), strict=True)))
    return total


WANTED = Counter(WORDS * ROUNDS)


def test_every_entry_of_a_redis_stream_is_counted_once(tmp_path: Path) -> None:
    with launch(2, 2, 2, 64) as nodes, launch(1, 1, 1, 64, EVERYTHING) as server:
        url = server.cluster["n1"].url
        with Redis.from_url(url) as client:

            def feed(number: int) -> None:
                with client.pipeline() as pipe:
                    for word in WORDS:
                        pipe.xadd("words", {"word": word})
                    pipe.execute()

            run("from_stream", {"url": url}, f"{url}#counts", nodes, tmp_path, feed)
        assert counted(f"{url}#counts") == WANTED


def test_a_drill_of_arriving_files_reads_what_was_fixed_once_more_for_its_twin(tmp_path: Path) -> None:
    (tmp_path / "0.csv").write_text("word\n")

    def feed(event: DrillEvent) -> None:
        if isinstance(event, OutputPublished):
            draft = tmp_path / f"{event.batch}.csv.part"
            draft.write_text("\n".join(["word", *WORDS]) + "\n")
            draft.rename(tmp_path / f"{event.batch + 1}.csv")

    settings = Settings(batches=13, checkpoint_every=3, interval=0.5)
    setup = Setup("tests.support.live:from_files", {"folder": str(tmp_path)}, 1, (PlannedFailure("node:n1", 4),), settings)
    report = drill(setup, feed)
    assert report["equal_to_failure_free"] is True
    assert report["lost_tasks"]
    assert [path.name for path in (tmp_path / ".ppa").iterdir()] == ["schema.json"]
