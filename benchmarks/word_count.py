"""The same word count here and as plain Spark Structured Streaming, on the same input: how long a trigger takes.

Both output the running count of every word in the batch. Here it is a step with its state in nodes, checkpoints and half of the
tasks replicated; in plain Spark it is `applyInPandasWithState` with Spark's own state store.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import Any

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
import pyarrow as pa
import pyarrow.compute as pc

from ppa_core.driver.config import Config
from ppa_core.driver.host import new_run_id
from ppa_core.driver.records import Settings
from ppa_core.engine.run_events import BatchProgress
from ppa_core.nodes.embedded import launch
from ppa_core.pipeline.definition import Context, Pipeline, Result
from ppa_core.pipeline.operators import flat_map
from ppa_core.pipeline.sources.generators import Generated
from ppa_core.planners import plan
from ppa_core.process.driver import Driver
from ppa_core.safety.owned import temporary

LINES, WORDS, VOCABULARY, TASKS = 2_500, 8, 5_000, 4
BATCHES, WARMING = 30, 8
SCHEMA = pa.schema({"line": pa.string()})
COUNTS = pa.schema({"word": pa.string(), "count": pa.int64()})


def lines(random: np.random.Generator, task: int, batch: int) -> pa.Table:
    """Lines of eight words, the frequent ones far more often than the others."""
    numbers = np.minimum(random.zipf(1.3, (LINES, WORDS)), VOCABULARY)
    words = np.char.add("w", numbers.astype(str))
    return pa.table({"line": [" ".join(row) for row in words]}, schema=SCHEMA)


def split(table: pa.Table) -> pa.Table:
    return pa.table({"word": pc.list_flatten(pc.utf8_split_whitespace(table["line"]))})


def totals(context: Context, state: Mapping[str, pa.Table], inputs: Sequence[pa.Table], /) -> Result:
    """The count so far of every word that was seen in the batch."""
    seen = inputs[0].group_by("word").aggregate([("word", "count")]).rename_columns(["word", "count"])
    both = pa.concat_tables([state["totals"], seen]) if "totals" in state else seen
    summed = both.group_by("word").aggregate([("count", "sum")]).rename_columns(["word", "count"]).sort_by("word")
    current = summed.filter(pc.is_in(summed["word"], seen["word"].combine_chunks()))
    return Result(current.cast(COUNTS), {"totals": summed.cast(COUNTS)})


def words() -> Pipeline:
    return (
        Pipeline("words")
        .source("lines", TASKS, Generated(SCHEMA, LINES, lines, seed=3))
        .operator("words", TASKS, {"lines": "one-to-one"}, flat_map(split, selectivity=WORDS))
        .operator("counts", TASKS, {"words": ("full", "word")}, totals, schema=COUNTS, selectivity=0.1)
    )


def ours() -> float:
    """Milliseconds of a trigger, as Spark measures it, with all that makes it fault tolerant."""
    chosen = plan(words().topology(), TASKS)
    with launch(4, 4, 2, 1024) as nodes, temporary("ppa-bench-") as folder:
        config = Config(
            "benchmarks.word_count:words", {}, tuple(nodes.cluster.nodes), chosen.tasks, Settings(batches=BATCHES),
            new_run_id(), folder, detailed=True,
        )  # fmt: skip
        with Driver(config) as driver:
            seen = [event for event in driver.events() if isinstance(event, BatchProgress) and event.input_rows]
    return float(median(event.durations["triggerExecution"] for event in seen if event.batch >= WARMING))


def plain() -> float:
    """The same of plain Spark, in a process of its own."""
    run = subprocess.run([sys.executable, "-m", "benchmarks.word_count"], capture_output=True, text=True, check=True)
    return float(json.loads(run.stdout.splitlines()[-1])["milliseconds"])


def _plain() -> float:
    from pyspark.sql import SparkSession
    from pyspark.sql import functions as f
    from pyspark.sql.streaming.state import GroupState

    from ppa_core.driver.ingest import data_source
    from ppa_core.worker.layout import Layout

    def count(key: tuple[Any, ...], frames: Iterator[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
        total = (state.get[0] if state.exists else 0) + sum(len(frame) for frame in frames)
        state.update((total,))
        yield pd.DataFrame({"word": [key[0]], "count": [total]})

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    spark = (
        SparkSession.builder.master("local[4]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.log.level", "ERROR")
        .config("spark.driver.memory", "2g")
        .getOrCreate()
    )
    spark.dataSource.register(data_source(Layout.of(words(), 2), 1.0, BATCHES))
    rows = spark.readStream.format("ppa").load()
    counted = (
        rows.select(f.explode(f.split(rows["c0_0"], " ")).alias("word"))
        .groupBy("word")
        .applyInPandasWithState(count, "word string, count long", "total long", "update", "NoTimeout")
    )
    with temporary("ppa-bench-") as folder:
        query = counted.writeStream.outputMode("update").format("noop").option("checkpointLocation", str(folder)).start()
        seen: dict[int, float] = {}
        while max(seen, default=-1) < BATCHES - 1:
            seen |= {p["batchId"]: p["durationMs"]["triggerExecution"] for p in query.recentProgress if p["numInputRows"]}
            time.sleep(0.2)
        query.stop()
    return median(spent for batch, spent in seen.items() if batch >= WARMING)


if __name__ == "__main__":
    argparse.ArgumentParser(description="Measure plain Spark's word count; it takes a while.").parse_args()
    print(json.dumps({"milliseconds": _plain()}))
