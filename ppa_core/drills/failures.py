"""What a drill makes fail, and how: killed, hung (nobody says anything), cut off, or slow."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ppa_core.errors import BadInput
from ppa_core.placement.nodes import Cluster

KINDS = "none, primaries, standbys, driver, executor, worker, rack:NAME, host:NAME, node:NAME[,NAME]"
HOWS = "kill, hang, cut, slow:MILLISECONDS"


@dataclass(frozen=True)
class PlannedFailure:
    """What fails after batch `at` is published, and how; after `seconds` it is back, None: it stays so.

    What was killed is started again then, empty.
    """

    what: str
    at: int
    how: str = "kill"
    seconds: float | None = None
    later: float = 0.0
    """Seconds from the end of batch `at` to the failure."""
    alone: bool = False
    """Whether it waits until earlier failures are over, as far as they end."""

    def __post_init__(self) -> None:
        if not re.fullmatch(r"none|primaries|standbys|driver|executor|worker|rack:[^,]+|host:[^,]+|node:.+", self.what):
            raise BadInput(f"--fail {self.what}", f"not one of {KINDS}")
        if self.at < 0:
            raise BadInput(f"--at {self.at}", "batches are numbered from 0")
        if not re.fullmatch(r"kill|hang|cut|slow:[1-9]\d{0,4}", self.how):
            raise BadInput(f"--how {self.how}", f"not one of {HOWS}")
        if self.seconds is not None and not 0 < self.seconds < 3600:
            raise BadInput(f"--for {self.seconds:g}", "it must be more than 0 and less than 3600 seconds")
        if self.seconds is not None and self.how == "kill" and self.what in ("driver", "executor"):
            raise BadInput(f"--for {self.seconds:g}", f"a killed {self.what} is started again anyway; remove --for")
        if self.what in ("driver", "executor", "worker") and self.how not in ("kill", "hang"):
            raise BadInput(f"--how {self.how}", f"not for {self.what}; use kill or hang")
        if self.how == "cut" and self.what.partition(":")[0] not in ("host", "rack"):
            raise BadInput("--how cut", f"not for {self.what}; only a host or a rack has a link: host:NAME or rack:NAME")

    @property
    def link(self) -> dict[str, str]:
        """The link that is cut, as a test bed names it."""
        kind, _, name = self.what.partition(":")
        return {kind: name}

    @property
    def delay(self) -> float:
        """Seconds by which answers are delayed."""
        return int(self.how.removeprefix("slow:")) / 1000 if self.how.startswith("slow:") else 0.0

    def nodes(self, cluster: Cluster) -> tuple[str, ...]:
        """The nodes that fail. Raises BadInput for unknown names."""
        kind, _, names = self.what.partition(":")
        known = {node.name: node for node in cluster.nodes}
        if kind in ("rack", "host"):
            found = tuple(node.name for node in cluster.nodes if getattr(node, kind) == names)
            if not found:
                all_ = ", ".join(sorted({getattr(node, kind) for node in cluster.nodes}))
                raise BadInput(f"--fail {self.what}", f"unknown {kind}; the {kind}s are {all_}")
            return found
        if kind == "node":
            for name in names.split(","):
                if name not in known:
                    raise BadInput(f"--fail {self.what}", f"unknown node {name!r}; the nodes are {', '.join(known)}")
            return tuple(names.split(","))
        role = {"primaries": "primary", "standbys": "standby"}.get(kind)
        return tuple(node.name for node in cluster.nodes if node.role == role) if role else ()
