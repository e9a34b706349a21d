"""The nodes file: the servers that a user runs, with their racks and roles."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

from ppa_core.errors import BadInput
from ppa_core.runtime.nodes import Cluster, Node, Role

_FIELDS = ("name", "rack", "role", "url")
_MAX_BYTES = 1 << 20


def load_cluster(path: str | Path) -> Cluster:
    """Read a cluster from a file like {"nodes": [{"name": "n1", "rack": "r1", "role": "primary", "url": "redis://…"}, …]}.

    Urls are those of redis-py: redis://, rediss:// (TLS) or unix://. Whatever is wrong ends in BadInput with place and reason,
    which never show a url.
    """
    path = Path(path)
    try:
        content = path.read_bytes()
    except OSError as error:
        raise BadInput(str(path), f"cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise BadInput(repr(str(path)), f"not the name of a file: {error}") from error
    try:
        return _cluster(_document(content))
    except BadInput as error:
        raise BadInput(f"{path}: {error.place}", error.reason) from error


def _document(content: bytes) -> Any:
    if len(content) > _MAX_BYTES:
        raise BadInput("file", f"larger than {_MAX_BYTES >> 20} MiB; this is no list of nodes")
    try:
        return json.loads(content.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise BadInput(f"byte {error.start}", "not UTF-8 text; a list of nodes is JSON") from None
    except json.JSONDecodeError as error:
        raise BadInput(f"line {error.lineno} column {error.colno}", f"not valid JSON: {error.msg}") from None
    except (RecursionError, ValueError):
        raise BadInput("file", "not a list of nodes as JSON") from None


def _cluster(document: Any) -> Cluster:
    if not isinstance(document, dict) or not isinstance(document.get("nodes"), list):
        raise BadInput("file", 'not {"nodes": [{"name", "rack", "role", "url"}, …]}')
    for key in document:
        if key != "nodes":
            raise BadInput(key, "unknown; there is only 'nodes'")
    return Cluster(_node(f"nodes[{i}]", entry) for i, entry in enumerate(document["nodes"]))


def _node(place: str, entry: Any) -> Node:
    if not isinstance(entry, dict):
        raise BadInput(place, "not an object with name, rack, role and url")
    for key in entry:
        if key not in _FIELDS:
            raise BadInput(f"{place}.{key}", f"unknown; a node has {', '.join(_FIELDS)}")
    for key in _FIELDS:
        if not isinstance(entry.get(key), str):
            raise BadInput(f"{place}.{key}", "not text" if key in entry else "missing")
    return Node(entry["name"], entry["rack"], cast(Role, entry["role"]), entry["url"])
