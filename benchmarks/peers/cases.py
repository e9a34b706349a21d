"""The systems and failures of the table."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from benchmarks.peers import flink, ppa, spark
from benchmarks.peers.flink_environment import FlinkEnvironment
from benchmarks.peers.measure import Seen
from benchmarks.peers.watching import watch

Say = Callable[[str], None]
SYSTEMS = ("flink", "spark", "ppa")
FAILURES = ("kill", "hang")


@dataclass(frozen=True)
class Case:
    """A system with its settings, and how to measure one run of it."""

    kind: str
    system: str
    run: Callable[[str], tuple[dict[str, Seen], float]]
    """From a failure to the results by sink, and when watching ended."""


def cases(systems: tuple[str, ...], folder: Path, say: Say) -> Iterator[Case]:
    """All cases of these systems; Flink is installed first."""
    if "ppa" in systems:
        yield Case("ppa", "PPA", lambda how: ppa.run(how, say))
    if "flink" in systems:
        environment = FlinkEnvironment(folder / "venv", say)
        for name, settings, patience in (("tuned", flink.TUNED, 60.0), ("default", flink.DEFAULT, 120.0)):
            yield Case("flink", f"Flink 2.3, {name}", _flink(environment, settings, patience))
    if "spark" in systems:
        for name, settings, patience in (("tuned", spark.TUNED, 90.0), ("default", spark.DEFAULT, 300.0)):
            yield Case("spark", f"Spark {version('pyspark')}, {name}", _spark(settings, patience))


def _flink(
    environment: FlinkEnvironment, settings: dict[str, str], patience: float
) -> Callable[[str], tuple[dict[str, Seen], float]]:
    def run(how: str) -> tuple[dict[str, Seen], float]:
        with flink.FlinkJob(environment, settings) as job:
            return watch(job, how, patience)

    return run


def _spark(settings: dict[str, str], patience: float) -> Callable[[str], tuple[dict[str, Seen], float]]:
    def run(how: str) -> tuple[dict[str, Seen], float]:
        with spark.SparkJob(settings) as job:
            return watch(job, how, patience)

    return run
