"""Word counts over sources that are fed while the pipeline runs."""

from __future__ import annotations

import pyarrow as pa

from ppa_core.pipeline.definition import Pipeline, Source
from ppa_core.pipeline.operators import count, tumbling
from ppa_core.pipeline.sources.files import open_files
from ppa_core.pipeline.sources.redis_stream import RedisStream
from ppa_core.pipeline.sources.server import RedisServer


def from_stream(url: str) -> Pipeline:
    return _counted(RedisStream(RedisServer(url), "words", pa.schema({"word": pa.string()}), 2))


def from_files(folder: str) -> Pipeline:
    return _counted(open_files(folder, "csv", tasks=2))


def _counted(source: Source) -> Pipeline:
    each_batch = count(by="word", window=tumbling(1, "batches"))
    return Pipeline("words").source("in", 2, source).operator("counts", 4, {"in": ("full", "word")}, each_batch)
