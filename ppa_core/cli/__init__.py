"""The command line: `python -m ppa_core COMMAND …`."""

from ppa_core.cli.main import main

__all__ = ["main"]
