"""Topology files: a mutated one is a topology, which is the same when written and read again, or refused."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

from ppa_core.errors import TopologyError
from ppa_core.queries.tree import tree
from ppa_core.topology import dumps, load, loads, to_dict
from tests.engine.truth import small_topology
from tests.fuzz.mutating import mutant, mutant_document
from tests.fuzz.target import must

_A_ROUND = 10


class Topologies:
    def __init__(self, folder: Path) -> None:
        self.path = folder / "mutant.json"
        known = (small_topology(), tree(tasks=(4, 2, 1)).topology(), small_topology(2))
        self.documents: list[Any] = [to_dict(topology) for topology in known]
        self.documents[0]["measured"] = {"A.1>B.1": 3.5, "B.1>D.1": 1}
        for document in self.documents:
            loads(json.dumps(document))

    def round(self, random: Random) -> int:
        for _ in range(_A_ROUND):
            document = random.choice(self.documents)
            if random.random() < 0.6:
                content = json.dumps(mutant_document(document, random)).encode()
            else:
                content = mutant(json.dumps(document).encode(), random)
            self.path.write_bytes(content)
            try:
                found = load(self.path)
            except TopologyError as error:
                must(error.place and error.reason, error)
                continue
            assert loads(dumps(found)) == found, "written and read again it is another one"
        return _A_ROUND


@contextmanager
def topologies(folder: Path) -> Iterator[Topologies]:
    yield Topologies(folder)
