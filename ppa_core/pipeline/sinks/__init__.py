"""Sinks: where published records go, and how they are read back: `open_sink("jsonl:out")`, `read_sink("jsonl:out")`."""

from ppa_core.pipeline.sinks.opening import open_sink, read_sink
from ppa_core.pipeline.sinks.records import Mode, Published, Record, Sink

__all__ = ["Mode", "Published", "Record", "Sink", "open_sink", "read_sink"]
