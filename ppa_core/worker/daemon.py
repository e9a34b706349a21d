"""The process that forks Spark's Python workers: it has loaded what they need, so a new one works at once."""

from __future__ import annotations

from contextlib import suppress

import pyspark.daemon

from ppa_core.terminal import logs

with suppress(ImportError):  # on a cluster's worker a package may be missing: a task can say so, a process that ended cannot
    import ppa_core.worker.stage  # noqa: F401 - loading it is the purpose

if __name__ == "__main__":
    logs.to_stderr()
    pyspark.daemon.manager()
