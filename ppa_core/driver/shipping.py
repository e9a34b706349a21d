"""What Spark's workers need on a cluster: this package is shipped to them, and what cannot be shipped is looked for there."""

from __future__ import annotations

import hashlib
import io
import os
import platform
import sys
import time
import zipfile
from collections.abc import Iterable, Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from pyspark import SparkContext, SparkFiles

from ppa_core.errors import Unavailable

NEEDED = ("numpy", "pandas", "pyarrow", "redis", "ppa_core")
"""Packages that a worker's Python must have; the last one is shipped."""

_PACKAGE = Path(__file__).parents[1]
_EPOCH = (1980, 1, 1, 0, 0, 0)
_EXECUTOR_SECONDS = 60.0
_LOOK_AGAIN = 0.1


def prepare(context: SparkContext, master: str, slots: int) -> None:
    """Make the workers of a cluster ready: this package is on their path, also when Spark starts others later.

    Unavailable if no worker gives an executor, or one lacks what it needs.
    """
    _await_executor(context, master)
    _ship(context)

    def lacking_there(
        _: Iterable[int],
    ) -> Iterator[str]:  # sent as it is: where something lacks, imports may fail
        missing = [name for name in NEEDED if find_spec(name) is None]
        if missing:
            yield f"{platform.node()}: {sys.executable} lacks {', '.join(missing)}"

    try:
        lacking = sorted(set(context.parallelize(range(slots), slots).mapPartitions(lacking_there).collect()))
    except Exception as error:
        told = [line.strip() for line in str(error).splitlines() if "Error" in line or "Exception" in line]
        reason = next((line for line in told if "Cannot run program" in line), told[-1] if told else str(error))
        raise Unavailable(f"{master}: its workers cannot run Python: {reason[-300:]}; {_REMEDY}") from error
    if lacking:
        raise Unavailable(f"{master}: {'; '.join(lacking)}; {_REMEDY}")


_REMEDY = "every worker needs the packages of requirements.txt in the Python that PYSPARK_PYTHON names (see docs/cluster.md)"


@cache
def package() -> tuple[str, bytes]:
    """This package as a zip file, and a name for it that says what is in it: the same content, the same name and bytes."""
    content, made = hashlib.blake2b(digest_size=8), io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(_PACKAGE.rglob("*.py")):
            name, data = path.relative_to(_PACKAGE.parent).as_posix(), path.read_bytes()
            archive.writestr(zipfile.ZipInfo(name, _EPOCH), data, zipfile.ZIP_DEFLATED)
            content.update(f"{name} {len(data)} ".encode() + data)
    return f"ppa_core-{content.hexdigest()}.zip", made.getvalue()


def _ship(context: SparkContext) -> None:
    """Executors fetch the file into their folder before their first task; there the Python processes they start find it."""
    name, data = package()
    folder = Path(SparkFiles.getRootDirectory()) / "shipped"  # goes with the application
    folder.mkdir(exist_ok=True)
    (folder / name).write_bytes(data)
    context.addPyFile(str(folder / name))
    path = context.environment.get("PYTHONPATH")
    context.environment["PYTHONPATH"] = os.pathsep.join(filter(None, (name, path)))


def _await_executor(context: SparkContext, master: str) -> None:
    """Spark itself would wait without end for a worker that has room."""
    end = time.monotonic() + _EXECUTOR_SECONDS
    while context._jsc.sc().getExecutorMemoryStatus().size() < 2:  # the driver counts as one
        if time.monotonic() > end:
            memory = context.getConf().get("spark.executor.memory", "1g")
            raise Unavailable(
                f"{master}: no worker has given an executor in {_EXECUTOR_SECONDS:g} s; start one that has a core and {memory} "
                "of memory free, or stop what holds them (see docs/cluster.md)"
            )
        time.sleep(_LOOK_AGAIN)
