"""A small program in the driver's place."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.process.programs import Program


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Program:
    return Program(tmp_path, monkeypatch)
