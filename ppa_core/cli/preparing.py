"""Warnings about passwords on the command line, before a command starts."""

from __future__ import annotations

import argparse

from ppa_core.safety.masking import has_password, is_secret
from ppa_core.terminal.output import note

_IN_FILE = "put it into a file: redis://HOST:PORT?password-file=FILE"
_REMEDIES = {
    "sink": ("--sink", f"set PPA_SINK_PASSWORD, or {_IN_FILE}#KEY"),
    "monitor_url": ("--monitor-url", "set PPA_MONITOR_URL instead"),
    "more": ("--set", f"set PPA_SOURCE_PASSWORD, or {_IN_FILE}"),
    "path": ("the URL", f"set PPA_SOURCE_PASSWORD, or {_IN_FILE}#KEY"),
}


def warn_of_passwords(arguments: argparse.Namespace) -> None:
    """Every user of the machine can read the command line of a running program."""
    for name, (option, remedy) in _REMEDIES.items():
        given = getattr(arguments, name, None) or []
        texts = given if isinstance(given, list) else [given]
        if any(has_password(text) or (name == "more" and is_secret(text.partition("=")[0])) for text in texts):
            note(f"warning: {option} contains a password, which every user of this machine can see with `ps`; {remedy}")
