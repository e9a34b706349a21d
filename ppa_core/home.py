"""The folder for data that outlives a run: the operator's hash and key, the monitor's history."""

from __future__ import annotations

import os
from pathlib import Path

FOLDER_VARIABLE = "PPA_FOLDER"
FOLDER = Path(os.environ.get(FOLDER_VARIABLE) or ".ppa")
"""In the current directory, unless the environment variable names another folder."""
