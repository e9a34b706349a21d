"""Where a topology comes from: a file, a shipped example, standard input, or bytes that someone uploaded."""

from __future__ import annotations

import os
import sys

from ppa_core.errors import TopologyError
from ppa_core.topology import Topology, load, loads
from ppa_core.topology.examples import load_example, names
from ppa_core.topology.operators import MAX_TASKS

STANDARD_INPUT = "-"


def open_topology(name: str) -> Topology:
    """The topology in the file `name`, or the shipped example `name` where there is no such file, or standard input for '-'."""
    if name == STANDARD_INPUT:
        if sys.stdin is None:
            raise TopologyError("standard input", "closed; give a topology file on it, or a file's name in place of '-'")
        try:
            return from_bytes(sys.stdin.buffer.read(), "standard input")
        except OSError as error:
            raise TopologyError("standard input", f"cannot be read: {error.strerror}") from error
    if os.path.exists(name) and not os.path.isdir(name):  # noqa: PTH110, PTH112 - they take any text for a name, Path does not
        return load(name)
    if name in names():
        return load_example(name)
    raise TopologyError(name, f"there is no such file, and no shipped example of that name; shipped are {', '.join(names())}")


def from_bytes(content: bytes, place: str, max_tasks: int = MAX_TASKS) -> Topology:
    """The topology in the bytes of a file of at most so many tasks; `place` names them in a refusal."""
    try:
        return loads(content.decode("utf-8"), max_tasks)
    except UnicodeDecodeError as error:
        raise TopologyError(place, f"not UTF-8 text (byte {error.start}); a topology file is JSON") from error
    except TopologyError as error:
        raise TopologyError(f"{place}: {error.place}", error.reason) from error
