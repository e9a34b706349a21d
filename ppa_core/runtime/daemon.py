"""The process that forks Spark's Python workers on this machine: it has loaded what they need, so a new one works at once."""

from __future__ import annotations

import pyspark.daemon

import ppa_core.runtime.work  # noqa: F401 - loading it is the purpose

if __name__ == "__main__":
    pyspark.daemon.manager()
