"""Q1: the top pages, against counting by hand; what is lost, and what accuracy and OF say of it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest

from ppa_core.errors import BadInput
from ppa_core.pipeline.sources.day66 import Day66
from ppa_core.pipeline.sources.worldcup98 import WorldCup98
from ppa_core.planners import plan
from ppa_core.queries import Query, load_query
from ppa_core.topology import derive
from tests.queries.failing import Trial
from tests.support.worldcup98 import from_table


def top(query: Query, batch: int, window: int, k: int) -> list[tuple[int, int]]:
    source = query.pipeline.by_name["servers"].source
    assert source is not None
    counts: Counter[int] = Counter()
    for b in range(max(0, batch + 1 - window), batch + 1):
        for task in range(query.pipeline.by_name["servers"].tasks):
            counts.update(source.read(task, b)["object"].to_pylist())
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:k]


def rows(table: pa.Table) -> list[tuple[int, int]]:
    return list(zip(table["object"].to_pylist(), table["requests"].to_pylist(), strict=True))


def test_every_batch_has_the_top_of_the_window() -> None:
    trial = Trial(load_query("q1", rate=20, window=3, top=10), 6)
    for batch, output in trial.outputs.items():
        assert rows(output) == top(trial.query, batch, 3, 10)


def test_a_replay_gives_the_same_bytes() -> None:
    trial = Trial(load_query("q1", rate=20, window=3), 5)
    assert trial.without((), 2) == {batch: trial.outputs[batch] for batch in range(2, 5)}


def test_by_default_it_is_the_day_48_times_as_fast() -> None:
    topology = load_query("q1").pipeline.topology()
    assert derive(topology).input[list(topology.span["servers"])].sum() == pytest.approx(40_718, abs=1)
    assert [len(topology.span[name]) for name in ("servers", "O1", "O2", "O3")] == [29, 8, 4, 1]


def test_rate_is_the_mean_of_a_source_task_over_the_day() -> None:
    topology = load_query("q1", rate=100).pipeline.topology()
    assert derive(topology).input[list(topology.span["servers"])].mean() == pytest.approx(100)


def test_the_declared_rates_are_about_those_seen() -> None:
    # The day begins at 0.46 of its mean rate; the window is full and the declared rates are those of that load.
    trial = Trial(load_query("q1", rate=100, window=5), 6)
    begin = load_query("q1", rate=100 * 702_744 * 48 / 73_291_868, window=5).pipeline.topology()
    for name in ("O1", "O2"):
        seen = sum(rate for key, rate in trial.rates[5].items() if key.startswith(f"{name}."))
        span = begin.span[name]
        assert seen == pytest.approx(derive(begin).output[span.start : span.stop].sum(), rel=0.15)


def test_the_users_log_is_read_at_the_rate_asked_for(tmp_path: Path) -> None:
    made = pa.concat_tables([Day66(1, speedup=1.0, share=0.5).read(0, batch) for batch in range(20)])
    (tmp_path / "wc_day66_1").write_bytes(from_table(made))
    query = load_query("q1", logs=str(tmp_path), window=2, top=10, speedup=4.0)
    assert isinstance(query.pipeline.by_name["servers"].source, WorldCup98)
    trial = Trial(query, 4)
    assert all(rows(output) == top(query, batch, 2, 10) for batch, output in trial.outputs.items())
    slow = load_query("q1", logs=str(tmp_path), rate=2).pipeline.by_name["servers"].source
    assert slow is not None
    assert sum(slow.rate(task) for task in range(29)) == pytest.approx(58)


def test_losses_are_felt_at_once_in_the_counts_and_follow_of() -> None:
    trial = Trial(load_query("q1", rate=300, window=4), 8)
    for lost in (("O1.1",), ("O2.4",), ("O1.8", "O2.1", "O2.2")):
        tentative = trial.without(lost, 6)[6]
        share = sum(tentative["requests"].to_pylist()) / sum(trial.outputs[6]["requests"].to_pylist())
        assert share == pytest.approx(trial.fidelity(lost), abs=0.05)


@pytest.mark.parametrize("metric", ["of", "ic"])
@pytest.mark.parametrize(("rate", "window"), [(14, 1), (700, 3)])
def test_accuracy_is_about_of_with_few_and_with_many_requests_in_a_window(metric: str, rate: float, window: float) -> None:
    trial = Trial(load_query("q1", rate=rate, window=window), 6)
    gaps = []
    for budget in (3, 5, 8, 10):
        chosen = plan(trial.query.pipeline.topology(), budget, "structure_aware", metric)
        lost = set(trial.local.tasks) - set(chosen.tasks)
        gaps.append(abs(trial.accuracy(lost, 4) - chosen.of))
    assert sum(gaps) / len(gaps) <= 0.1


def test_with_many_requests_in_a_window_few_servers_name_most_of_the_top() -> None:
    trial = Trial(load_query("q1", rate=700, window=3), 6)
    lost = {"O1.3", "O1.4", "O1.5", "O1.6", "O1.7", "O1.8", "O2.2", "O2.3", "O2.4"}
    named = trial.query.also["pages_named"]
    assert trial.fidelity(lost) < 0.3
    for batch, tentative in trial.without(lost, 4).items():
        assert 0.7 < (named(tentative, trial.outputs[batch]) or 0) < 1


def test_without_its_last_task_nothing_is_left() -> None:
    assert Trial(load_query("q1", rate=20, window=2), 4).accuracy({"O3.1"}, 2) == 0


def test_accuracy_is_the_share_of_the_requests_and_of_the_pages() -> None:
    query = load_query("q1", rate=1)

    def output(**pages: int) -> pa.Table:
        numbers = [int(page[1:]) for page in pages]
        return pa.table({"object": pa.array(numbers, pa.int64()), "requests": pa.array(list(pages.values()), pa.int64())})

    def both(tentative: pa.Table, accurate: pa.Table) -> tuple[float | None, float | None]:
        return query.accuracy(tentative, accurate), query.also["pages_named"](tentative, accurate)

    accurate = output(p4=10, p1=6, p2=3, p3=1)
    assert both(output(p1=6, p4=4, p9=3), accurate) == (0.5, 0.5)
    assert both(output(p1=6, p2=3, p3=1, p4=10), accurate) == (1.0, 1.0)
    assert both(output(p4=20), accurate) == (0.5, 0.25), "more requests than there were are no more right"
    assert both(output(), accurate) == (0, 0)
    assert both(output(p1=1), output()) == both(output(), output()) == (1, 1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tasks": (29, 8, 4)}, "four numbers"),
        ({"tasks": (29, 8, 4, 2)}, "O3 must have one task"),
        ({"tasks": (29, 8, 9, 1)}, "merge"),
        ({"rate": 0}, "positive"),
        ({"window": -1}, "positive"),
        ({"window": 2.5}, "whole number"),
        ({"top": 0}, "at least 1"),
        ({"logs": "/nowhere/wc_day66_1"}, "nowhere"),
        ({"users": 5}, "unknown option"),
    ],
)
def test_what_does_not_fit_is_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        load_query("q1", **options)
