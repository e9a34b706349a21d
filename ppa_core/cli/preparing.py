"""Passwords on a command line, of which commands warn before anything is started."""

from __future__ import annotations

import argparse

from ppa_core.safety.masking import has_password, is_secret
from ppa_core.terminal.output import note

_IN_FILE = "name a file that has it, as in redis://HOST:PORT?password-file=FILE"
_REMEDIES = {
    "sink": ("--sink", f"set PPA_SINK_PASSWORD, or {_IN_FILE}#KEY"),
    "monitor_url": ("--monitor-url", "leave the option out and set PPA_MONITOR_URL"),
    "more": ("--set", f"set PPA_SOURCE_PASSWORD, or {_IN_FILE}"),
    "path": ("the url", f"set PPA_SOURCE_PASSWORD, or {_IN_FILE}#KEY"),
}


def warn_of_passwords(arguments: argparse.Namespace) -> None:
    """A command line is there for every user of the machine to read, as long as the program runs."""
    for name, (option, remedy) in _REMEDIES.items():
        given = getattr(arguments, name, None) or []
        texts = given if isinstance(given, list) else [given]
        if any(has_password(text) or (name == "more" and is_secret(text.partition("=")[0])) for text in texts):
            note(f"warning: {option} has a password, which every user of this machine can read in `ps`; {remedy}")
