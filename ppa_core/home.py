"""The folder for what is kept from run to run: the operator's hash and key, the monitor's history."""

from __future__ import annotations

from ppa_core import settings

FOLDER = settings.current().folder
"""Where the program is started, unless PPA_FOLDER names another."""
