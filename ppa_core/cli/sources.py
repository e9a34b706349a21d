"""The command `inspect`: shows what a source contains."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ppa_core.errors import BadInput
from ppa_core.settings import current
from ppa_core.terminal.output import as_text, console, headline, print_json, table

KINDS = ("worldcup98", "csv", "jsonl", "parquet", "redis-stream")
MOST_REFUSED = 20
"""Number of refused rows shown with their reasons; all are counted."""


def register(commands: Any) -> None:
    inspect = commands.add_parser("inspect", help="show what a log, a directory of files or a Redis stream contains")
    inspect.add_argument("kind", metavar="KIND", choices=KINDS, help=", ".join(KINDS))
    inspect.add_argument("path", metavar="PATH", help="a file or a directory; for redis-stream a URL, redis://HOST:PORT#KEY")
    inspect.add_argument("key", metavar="KEY", nargs="?", help="the key of a Redis stream, if the URL does not end in #KEY")
    inspect.set_defaults(command=show_source)


def show_source(arguments: argparse.Namespace) -> None:
    kind, path = arguments.kind, arguments.path
    if kind == "redis-stream":
        _show(arguments.json, _stream(path, arguments.key), "Redis stream")
        return
    if arguments.key is not None:
        raise BadInput(arguments.key, f"only redis-stream takes a KEY; {kind} takes one PATH")
    _show(arguments.json, _log(path) if kind == "worldcup98" else _files(kind, path), path)


def _log(path: str) -> dict[str, Any]:
    from ppa_core.pipeline.sources.log_summary import summarise

    document = asdict(summarise([path]))
    document["servers"] = {str(number): requests for number, requests in document["servers"].items()}
    return document


def _files(kind: str, path: str) -> dict[str, Any]:
    from ppa_core.pipeline.sources.file_summary import summarise

    found = summarise(kind, Path(path))
    return {
        "files": found.files,
        "rows": found.rows,
        "columns": {field.name: str(field.type) for field in found.schema},
        "refused": found.refusals.count,
        "refusals": [asdict(entry) for entry in found.refusals.first[:MOST_REFUSED]],
    }


def _stream(url: str, key: str | None) -> dict[str, Any]:
    from ppa_core.pipeline.sources.server import RedisServer, split_key
    from ppa_core.pipeline.sources.stream_summary import summarise

    if key is None:
        return asdict(summarise(*split_key(url, current().source_password)))
    return asdict(summarise(RedisServer(url).or_password(current().source_password), key))


def _show(as_json: bool, document: dict[str, Any], title: str) -> None:
    if as_json:
        print_json(document)
        return
    headline(title)
    shown = table("field", "value")
    for name, value in document.items():
        shown.add_row(name.replace("_", " "), as_text(_text(name, value)))
    console().print(shown)


def _text(name: str, value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{key}: {_text(key, item)}" for key, item in value.items()) or "none"
    if name.endswith("_time") and value is not None:
        return f"{value} ({_moment(value)})"
    if isinstance(value, list | tuple):
        entries = [f"{e['file']}: line {e['line']}: {e['reason']}" if isinstance(e, Mapping) else str(e) for e in value]
        return "; ".join(entries) or "none"
    if isinstance(value, int):
        return f"{value:,}"
    return "-" if value is None else str(value)


def _moment(seconds: int) -> str:
    from datetime import UTC, datetime

    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
