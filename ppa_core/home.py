"""The folder for data that outlives a run: the operator's hash and key, the monitor's history."""

from __future__ import annotations

from ppa_core import settings

FOLDER = settings.current().folder
"""In the current directory, unless the environment variable names another folder."""
