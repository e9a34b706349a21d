"""The nodes file: the user's own servers, with their racks and roles."""

from __future__ import annotations

import json
import os
import shlex
import stat
from pathlib import Path
from typing import Any, cast

from ppa_core.errors import BadInput
from ppa_core.placement.nodes import Cluster, Node, Role

_FIELDS = ("name", "rack", "role", "url")
_OPTIONAL = ("host",)
_MAX_BYTES = 1 << 20
_OTHERS = stat.S_IRWXG | stat.S_IRWXO


def load_cluster(path: str | Path) -> Cluster:
    """Read a cluster from a file like {"nodes": [{"name": "n1", "rack": "r1", "role": "primary", "url": "redis://…"}, …]}.

    URLs are those of redis-py: redis://, rediss:// (TLS) or unix://. A node may also have a "host": the machine that it fails
    together with. A file with passwords must be readable by its owner only. Errors are BadInput with place and reason, and
    never show a URL.
    """
    path = Path(path)
    try:
        with path.open("rb") as file:
            mode, content = os.fstat(file.fileno()).st_mode, file.read(_MAX_BYTES + 1)
    except OSError as error:
        raise BadInput(str(path), f"cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise BadInput(repr(str(path)), f"not a valid file name: {error}") from error
    try:
        cluster = _cluster(_document(content))
    except BadInput as error:
        raise BadInput(f"{path}: {error.place}", error.reason) from error
    holds_passwords = any(node.password for node in cluster.nodes)
    if mode & (stat.S_IWOTH | (_OTHERS if holds_passwords else 0)):
        why = "it contains passwords, and other users can read or change it" if holds_passwords else "every user can change it"
        raise BadInput(str(path), f"{why}; make it private with 'chmod 600 {shlex.quote(str(path))}'")
    return cluster


def _document(content: bytes) -> Any:
    if len(content) > _MAX_BYTES:
        raise BadInput("file", f"larger than {_MAX_BYTES >> 20} MiB; this is not a nodes file")
    try:
        return json.loads(content.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise BadInput(f"byte {error.start}", "not UTF-8 text; a nodes file is JSON") from None
    except json.JSONDecodeError as error:
        raise BadInput(f"line {error.lineno} column {error.colno}", f"not valid JSON: {error.msg}") from None
    except (RecursionError, ValueError):
        raise BadInput("file", "not a JSON nodes file") from None


def _cluster(document: Any) -> Cluster:
    if not isinstance(document, dict) or not isinstance(document.get("nodes"), list):
        raise BadInput("file", 'not {"nodes": [{"name", "rack", "role", "url"}, …]}')
    for key in document:
        if key != "nodes":
            raise BadInput(key, "unknown field; the only field is 'nodes'")
    return Cluster(_node(f"nodes[{i}]", entry) for i, entry in enumerate(document["nodes"]))


def _node(place: str, entry: Any) -> Node:
    if not isinstance(entry, dict):
        raise BadInput(place, "not an object with name, rack, role and url")
    for key in entry:
        if key not in (*_FIELDS, *_OPTIONAL):
            raise BadInput(
                f"{place}.{key}", f"unknown field; a node has {', '.join(_FIELDS)}, and optionally {', '.join(_OPTIONAL)}"
            )
    for key in (*_FIELDS, *(key for key in _OPTIONAL if key in entry)):
        if not isinstance(entry.get(key), str):
            raise BadInput(f"{place}.{key}", "not a string" if key in entry else "missing")
    return Node(entry["name"], entry["rack"], cast(Role, entry["role"]), entry["url"], entry.get("host", ""))
