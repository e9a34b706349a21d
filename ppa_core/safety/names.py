"""Names that become part of a path or of a key in a server: one rule for all of them, checked before anything is done."""

from __future__ import annotations

import re

from ppa_core.errors import BadInput
from ppa_core.safety.masking import masked

_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,99}")
_RULE = "a name has 1 to 100 letters, digits, dots, dashes or underscores, and does not begin with a dot"

TAKEN = ("lease", "monitor", "source")
"""What stands in keys of this program where the name of a run stands: `ppa:monitor:…` is no run's."""


def check_name(what: str, name: object) -> str:
    """The name, if it names one entry of a folder and one key; else BadInput, with what it was to be the name of."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise BadInput(f"{what} {masked(str(name))[:60]!r}", _RULE)
    return name


def check_run(name: object) -> str:
    """The name of a run."""
    if check_name("run", name) in TAKEN:
        raise BadInput(f"run {name!r}", "this program uses the name itself; take another")
    return str(name)
