"""Sinks: writing published records and reading them back: `open_sink("jsonl:out")`, `read_sink("jsonl:out")`."""

from ppa_core.pipeline.sinks.opening import open_sink, read_sink
from ppa_core.pipeline.sinks.records import Mode, Published, Sink, SinkRecord

__all__ = ["Mode", "Published", "Sink", "SinkRecord", "open_sink", "read_sink"]
