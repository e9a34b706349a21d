"""Sinks by a text, as the command line has them: "jsonl:out", "parquet:out", "redis://…#key", "console"."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ppa_core.errors import BadInput
from ppa_core.pipeline.sinks.console import Console
from ppa_core.pipeline.sinks.lines import JsonLines, read_lines
from ppa_core.pipeline.sinks.parquet import ParquetFiles, read_parquet
from ppa_core.pipeline.sinks.records import Mode, Sink, SinkRecord
from ppa_core.pipeline.sinks.redis_stream import RedisSink, read_stream
from ppa_core.pipeline.sources.server import split_key
from ppa_core.settings import current

KINDS = "jsonl:DIRECTORY, parquet:DIRECTORY, redis://host:6379#KEY, console"
_URLS = ("redis://", "rediss://", "unix://")


def open_sink(text: str, epoch: int = 1, **options: Any) -> Sink:
    """Open the sink with this name, for the driver of this epoch; `options` are those of its class (`max_bytes`, `keep`,
    `max_entries`, `most_rows`)."""
    kind, directory = _parse(text)
    try:
        if kind == "jsonl":
            return JsonLines(directory, epoch=epoch, **options)
        if kind == "parquet":
            return ParquetFiles(directory, **options)
        if kind == "console":
            return Console(**options)
        return RedisSink(*split_key(text, current().sink_password), **options)
    except TypeError:
        raise BadInput(f"sink {kind}", f"it does not have all of the options {', '.join(options)}") from None


def read_sink(text: str, mode: Mode | str = Mode.LATEST) -> Iterator[SinkRecord]:
    """The records written by the sink with this name: the valid one of each batch, in the order of batches."""
    kind, directory = _parse(text)
    try:
        wanted = Mode(mode)
    except ValueError:
        raise BadInput(f"mode {mode!r}", f"choose one of {', '.join(Mode)}") from None
    if kind == "console":
        raise BadInput("sink console", "printed output cannot be read back; use another sink")
    if kind == "redis":
        return read_stream(*split_key(text, current().sink_password), wanted)
    return (read_lines if kind == "jsonl" else read_parquet)(directory, wanted)


def _parse(text: str) -> tuple[str, str]:
    """The kind and the directory. Errors do not quote the text, which may contain a password."""
    if text == "console":
        return "console", ""
    if text.startswith(_URLS):
        return "redis", ""
    kind, found, directory = text.partition(":")
    if kind in ("jsonl", "parquet") and found:
        if not directory:
            raise BadInput(f"sink {kind}:", f"no directory; write {kind}:DIRECTORY")
        return kind, directory
    raise BadInput("sink", f"unknown sink; write one of {KINDS}")
