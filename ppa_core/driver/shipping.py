"""What Spark's workers need on a cluster: this package is sent to them; for all else, a check that it is installed there."""

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
"""Packages that a worker's Python must have; the last one is sent."""

_PACKAGE = Path(__file__).parents[1]
_EPOCH = (1980, 1, 1, 0, 0, 0)
_EXECUTOR_SECONDS = 60.0
_LOOK_AGAIN = 0.1


def prepare(context: SparkContext, master: str, slots: int) -> None:
    """Prepare the workers of a cluster: this package is on their path, also on executors that Spark starts later.

    Unavailable if no worker provides an executor, or if a package is missing there.
    """
    _await_executor(context, master)
    _ship(context)

    def lacking_there(
        _: Iterable[int],
    ) -> Iterator[str]:  # runs on the workers, where imports of this project may fail
        missing = [name for name in NEEDED if find_spec(name) is None]
        if missing:
            yield f"{platform.node()}: {sys.executable} does not have {', '.join(missing)}"

    try:
        lacking = sorted(set(context.parallelize(range(slots), slots).mapPartitions(lacking_there).collect()))
    except Exception as error:
        lines = [line.strip() for line in str(error).splitlines() if "Error" in line or "Exception" in line]
        reason = next((line for line in lines if "Cannot run program" in line), lines[-1] if lines else str(error))
        raise Unavailable(f"{master}: its workers cannot run Python: {reason[-300:]}; {_REMEDY}") from error
    if lacking:
        raise Unavailable(f"{master}: {'; '.join(lacking)}; {_REMEDY}")


_REMEDY = "every worker needs the packages of requirements.txt in the Python that PYSPARK_PYTHON names (see docs/cluster.md)"


@cache
def package() -> tuple[str, bytes]:
    """The name and content of this package as a zip file; the name contains a digest of the content."""
    content, made = hashlib.blake2b(digest_size=8), io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(_PACKAGE.rglob("*.py")):
            name, data = path.relative_to(_PACKAGE.parent).as_posix(), path.read_bytes()
            archive.writestr(zipfile.ZipInfo(name, _EPOCH), data, zipfile.ZIP_DEFLATED)
            content.update(f"{name} {len(data)} ".encode() + data)
    return f"ppa_core-{content.hexdigest()}.zip", made.getvalue()


def _ship(context: SparkContext) -> None:
    """Executors download the file into their folder before their first task; their Python processes import it from there."""
    name, data = package()
    folder = Path(SparkFiles.getRootDirectory()) / "shipped"  # removed with the application
    folder.mkdir(exist_ok=True)
    (folder / name).write_bytes(data)
    context.addPyFile(str(folder / name))
    path = context.environment.get("PYTHONPATH")
    context.environment["PYTHONPATH"] = os.pathsep.join(filter(None, (name, path)))


def _await_executor(context: SparkContext, master: str) -> None:
    """Wait for an executor, with a time limit: Spark itself would wait forever."""
    end = time.monotonic() + _EXECUTOR_SECONDS
    while context._jsc.sc().getExecutorMemoryStatus().size() < 2:  # the driver counts as one
        if time.monotonic() > end:
            memory = context.getConf().get("spark.executor.memory", "1g")
            raise Unavailable(
                f"{master}: no executor within {_EXECUTOR_SECONDS:g} s; start a worker with a free core and {memory} of "
                "memory, or stop other applications (see docs/cluster.md)"
            )
        time.sleep(_LOOK_AGAIN)
