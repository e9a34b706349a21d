"""Names that become part of a path or of a Redis key: one rule for all, checked first."""

from __future__ import annotations

import re

from ppa_core.errors import BadInput
from ppa_core.safety.masking import masked

_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,99}")
_RULE = "a name must have 1 to 100 letters, digits, dots, dashes or underscores, and must not begin with a dot"

TAKEN = ("epoch", "lease", "monitor", "source")
"""Reserved names: keys such as `ppa:monitor:…` do not belong to a run."""


def check_name(what: str, name: object) -> str:
    """The name, if it is safe as a file name and as part of a key; else BadInput, which says what it is the name of."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise BadInput(f"{what} {masked(str(name))[:60]!r}", _RULE)
    return name


def check_run(name: object) -> str:
    """The name of a run."""
    if check_name("run", name) in TAKEN:
        raise BadInput(f"run {name!r}", "this name is reserved; choose another")
    return str(name)
