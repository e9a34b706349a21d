"""For all tests: Ctrl-C is heard, by what they start as well, even if they themselves run in the background of a script.

No test reads or writes the user's `.ppa`, nor finds the user's monitor and key: each has a folder of its own for what would be
there, and so have the processes that it starts.
"""

from __future__ import annotations

import atexit
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

_HOME = Path(tempfile.mkdtemp(prefix="ppa-tests-"))
atexit.register(shutil.rmtree, _HOME, ignore_errors=True)
for _name in ("MONITOR_URL", "OPERATOR_KEY", "OPERATOR_PASSWORD_HASH", "SINK_PASSWORD", "SOURCE_PASSWORD"):
    os.environ.pop(f"PPA_{_name}", None)
os.environ["PPA_FOLDER"] = str(_HOME / "ppa")  # before anything is imported that looks for it


@pytest.fixture(autouse=True)
def own_folder() -> Iterator[Path]:
    """What is kept from run to run: empty before each test, and gone after it."""
    folder = _HOME / "ppa"
    yield folder
    if folder.exists():
        shutil.rmtree(folder)
