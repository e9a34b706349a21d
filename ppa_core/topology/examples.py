"""The built-in example topologies: topology files in the folder `examples` beside this file.

loss_model      the paper's example of the loss model. With O2.2 failed, O3.1 loses 2/5; without its join it would lose 1/4.
mc_trees        the paper's example of MC-trees: 16 of them.
mc_trees_join   the same with a join in O3: 8 of them.
tree            the paper's synthetic topology, 16-8-4-2-1. Its source can fail, as in the paper's planning study.
q1              top-100 pages of the 1998 World Cup site, replayed 48 times faster than on 30 June 1998 (40,718 requests/s). The
                source has one task for each server seen in the log, at that server's share of the requests; neighbouring
                servers go to one task of O1. A slice of 100 requests names 83 different pages, so O1 outputs 0.83 rows a
                request; merging 100 rows leaves 90. O3 outputs 100 entries for every 100 rows.
q2              incidents that cause jams. 100,000 users on 1,000 segments (Zipf, s = 0.5; segment k belongs to task k mod 8)
                send 20,000 locations/s, of which O1 makes 1,000 speeds/s. An incident every 2 s is reported by all on its
                segment, 196 on average: 98 reports/s, of which O2 makes 0.5 incidents/s. Half of them cause a jam: O3 outputs
                0.25 of 1,000.5 tuples/s. O1 and O3 split the segments alike, so O1 feeds O3 one to one; a task of O2 has the
                segments of two tasks of O3. Weights are the users (O1, O3) and the reports (O2) on each task's segments.
"""

from __future__ import annotations

from pathlib import Path

from ppa_core.errors import RequestError
from ppa_core.topology.files import load
from ppa_core.topology.model import Topology

_FOLDER = Path(__file__).parent / "examples"


def names() -> tuple[str, ...]:
    """The names of the built-in topologies, sorted."""
    return tuple(sorted(path.stem for path in _FOLDER.glob("*.json")))


def load_example(name: str) -> Topology:
    """A built-in topology."""
    if name not in names():
        raise RequestError(f"example {name!r}", f"unknown example; choose one of {', '.join(names())}")
    return load(_FOLDER / f"{name}.json")
