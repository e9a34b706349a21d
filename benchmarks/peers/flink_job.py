"""The work as a Flink job: Flink SQL between Flink's number source and two sinks. Runs in the environment of its own.

Rows go to files, exactly once, which appear with the checkpoints, and to standard output as soon as they are computed, where
a restart repeats some. Nothing of the job runs in Python.
"""

from __future__ import annotations

import json
import sys

from pyflink.common import WatermarkStrategy
from pyflink.common.serialization import Encoder
from pyflink.common.typeinfo import Types
from pyflink.datastream import StreamExecutionEnvironment
from pyflink.datastream.connectors.file_system import BucketAssigner, FileSink, RollingPolicy
from pyflink.datastream.connectors.number_seq import NumberSequenceSource
from pyflink.java_gateway import get_gateway
from pyflink.table import Schema, StreamTableEnvironment
from pyflink.util.java_utils import add_jars_to_context_class_loader, to_jarray


def main() -> None:
    job = json.loads(sys.argv[1])
    java = get_gateway().jvm
    settings = java.org.apache.flink.configuration.Configuration.fromMap(job["settings"])
    remote = java.org.apache.flink.streaming.api.environment.StreamExecutionEnvironment.createRemoteEnvironment
    jars = to_jarray(java.String, [job["jar"]])
    environment = StreamExecutionEnvironment(remote(job["host"], job["port"], settings, jars))
    add_jars_to_context_class_loader([f"file://{job['jar']}"])
    tables = StreamTableEnvironment.create(environment)
    tables.create_java_temporary_system_function("pace", "Pace")
    numbers = environment.from_source(
        NumberSequenceSource(0, job["sources"] * job["length"] - 1), WatermarkStrategy.no_watermarks(), "numbers", Types.LONG()
    ).set_parallelism(job["sources"])
    schema = Schema.new_builder().column("f0", "BIGINT NOT NULL")
    for name, expression in job["columns"].items():
        schema.column_by_expression(name, expression)
    tables.create_temporary_view("tuples", tables.from_data_stream(numbers, schema.watermark("ts", "ts").build()))
    results = tables.to_data_stream(tables.sql_query(job["query"]))._j_data_stream
    files = (
        FileSink.for_row_format(job["output"], Encoder.simple_string_encoder())
        .with_bucket_assigner(BucketAssigner.base_path_bucket_assigner())
        .with_rolling_policy(RollingPolicy.on_checkpoint_rolling_policy())
        .build()
    )
    results.sinkTo(files.get_java_function())
    results.print()
    environment.execute_async("peers")


if __name__ == "__main__":
    main()
