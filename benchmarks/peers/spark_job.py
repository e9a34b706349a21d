"""The work in plain Spark Structured Streaming: the rate source, a native sliding window with Spark's state store.

Prints the time of the first tuple, then the result of every window as soon as a batch has completed it.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from benchmarks.peers.work import KEYS, LENGTH, MIXED, RATE, SOURCES, WINDOW


def main() -> None:
    job = json.loads(sys.argv[1])
    builder = SparkSession.builder.master(job["master"]).appName("peers")
    for key, value in job["settings"].items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    rows = (
        spark.readStream.format("rate")
        .option("rowsPerSecond", SOURCES * RATE)
        .option("numPartitions", job["partitions"])
        .load()
    )
    tuples = rows.selectExpr(f"value % {SOURCES} * {LENGTH} + value div {SOURCES} AS number").selectExpr(
        f"timestamp_millis(number % {LENGTH}) AS ts", f"{MIXED.format(number='number')} AS mixed"
    )
    results = (
        tuples.selectExpr("ts", f"mixed % {KEYS} AS k", f"mixed div {KEYS} % {KEYS} AS v")
        .withWatermark("ts", "0 seconds")
        .groupBy(f.window("ts", f"{WINDOW} seconds", "1 second"), "k")
        .agg(f.count("*").alias("n"), f.sum("v").alias("total"))
        .selectExpr("unix_seconds(window.end) AS w", "k", "n", "total")
    )
    checkpoint = Path(job["checkpoint"])
    query = (
        results.writeStream.outputMode("update")
        .trigger(processingTime="1 second")
        .option("checkpointLocation", str(checkpoint))
        .foreachBatch(emit)
        .start()
    )
    query.awaitTermination()


def emit(batch: DataFrame, number: int) -> None:
    """Print the windows that are complete. A batch has whole seconds, so the newest window has got its first second only."""
    table = batch.toArrow()
    if table.num_rows:
        newest = pc.max(table["w"]).as_py()
        complete = table.filter(pc.less_equal(table["w"], newest - WINDOW + 1))
        columns = (column.to_pylist() for column in complete.columns)
        print("\n".join(str(list(row)) for row in zip(*columns, strict=True)), flush=True)


if __name__ == "__main__":
    main()
