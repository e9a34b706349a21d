"""The process that forks Spark's Python workers. It imports what they need, so that a new worker starts quickly."""

from __future__ import annotations

from contextlib import suppress

import pyspark.daemon

from ppa_core.terminal import logs

with suppress(ImportError):  # on a cluster a package may be missing: a task can report that, a process that exited cannot
    import ppa_core.worker.stage  # noqa: F401 - loading it is the purpose

if __name__ == "__main__":
    logs.to_stderr()
    pyspark.daemon.manager()
