"""The package's own table of modules names every module, and no other."""

from __future__ import annotations

import re
from pathlib import Path

import monitoring


def test_the_table_of_modules_is_complete_and_has_nothing_else() -> None:
    named = re.findall(r"`(\w+)\.py`", monitoring.__doc__ or "")
    there = {path.stem for path in Path(monitoring.__path__[0]).glob("*.py")} - {"__init__", "__main__"}
    assert (sorted(named), len(named)) == (sorted(there), len(set(named)))
