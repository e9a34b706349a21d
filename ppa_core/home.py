"""The folder for what is kept from run to run: the operator's hash and key, the monitor's history."""

from __future__ import annotations

import os
from pathlib import Path

FOLDER_VARIABLE = "PPA_FOLDER"
FOLDER = Path(os.environ.get(FOLDER_VARIABLE) or ".ppa")
"""Where the program is started, unless the environment names another."""
