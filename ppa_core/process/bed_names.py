"""Names of test beds. A name says which process made the bed, so that beds of dead processes can be removed.

A bed is removed when its process ends, also if that is killed (`supervisor.py`). What is left if the supervisor is killed too
is removed here.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
import signal
import tempfile
from contextlib import suppress
from itertools import count
from pathlib import Path

from ppa_core.process.namespaces import Namespace, all_names, signal_until

CONTROL = "control"
SWITCHES = "switches"

_BED = re.compile(r"(ppa-bed-(\d+)-(\d+)-\d+)-(.+)")
"""ppa-bed-PID-START-NUMBER-PART: two processes with the same id have not started at the same time."""
_numbers = count()

_log = logging.getLogger(__name__)


def new_bed_name() -> str:
    """A name that no other bed has or had since the machine started."""
    return f"ppa-bed-{os.getpid()}-{_started(os.getpid())}-{next(_numbers)}"


def bed_namespace(bed: str, part: str) -> Namespace:
    """The namespace of a host, or of another part of a bed."""
    return Namespace(f"{bed}-{part}")


def remove_stale_beds() -> list[str]:
    """Remove the namespaces, processes and folders of beds whose process has ended; the names of the beds."""
    found: dict[str, list[Namespace]] = {}
    for name in all_names():
        if (match := _BED.fullmatch(name)) and _started(int(match[2])) != int(match[3]):
            found.setdefault(match[1], []).append(Namespace(name))
    for bed, namespaces in found.items():
        _log.info("the test bed %s is removed: its process has ended", bed)
        for namespace in namespaces:
            if not namespace.name.endswith(f"-{CONTROL}"):  # a driver there was started by someone else, and ends by itself
                signal_until(signal.SIGKILL, namespace.pids)
            namespace.remove()
        for folder in Path(tempfile.gettempdir()).glob(f"{bed}-*"):
            with suppress(OSError):
                if folder.lstat().st_uid == os.geteuid():
                    shutil.rmtree(folder)
    return sorted(found)


def _started(pid: int) -> int | None:
    """When a process started, in clock ticks since the machine did; None if it has ended."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[19])
    except OSError:
        return None
