"""Open a topology: from a file, a built-in example, standard input, or uploaded bytes."""

from __future__ import annotations

import os
import sys

from ppa_core.errors import TopologyError
from ppa_core.topology import Topology, load, loads
from ppa_core.topology.examples import load_example, names
from ppa_core.topology.operators import MAX_TASKS

STANDARD_INPUT = "-"


def open_topology(name: str) -> Topology:
    """The topology in the file `name`, or the built-in example `name` if there is no such file, or standard input for '-'."""
    if name == STANDARD_INPUT:
        if sys.stdin is None:
            raise TopologyError("standard input", "closed; pipe a topology file into it, or give a file name instead of '-'")
        try:
            return from_bytes(sys.stdin.buffer.read(), "standard input")
        except OSError as error:
            raise TopologyError("standard input", f"cannot be read: {error.strerror}") from error
    if os.path.exists(name) and not os.path.isdir(name):  # noqa: PTH110, PTH112 - they take any text for a name, Path does not
        return load(name)
    if name in names():
        return load_example(name)
    raise TopologyError(name, f"no such file or built-in example; the examples are {', '.join(names())}")


def from_bytes(content: bytes, place: str, max_tasks: int = MAX_TASKS) -> Topology:
    """The topology in the bytes of a file, with at most `max_tasks` tasks; `place` names the file in errors."""
    try:
        return loads(content.decode("utf-8"), max_tasks)
    except UnicodeDecodeError as error:
        raise TopologyError(place, f"not UTF-8 text (byte {error.start}); a topology file is JSON") from error
    except TopologyError as error:
        raise TopologyError(f"{place}: {error.place}", error.reason) from error
