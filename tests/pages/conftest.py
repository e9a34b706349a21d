"""One real monitor for the tests of a module; every test has pipelines of its own in it, and a server without a memory."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest
import streamlit as st

from monitoring.access import HASH_VARIABLE, Attempts, hash_password
from monitoring.connection import READ_URL_VARIABLE, URL_VARIABLE, Address
from monitoring.server import MonitorServer, start
from monitoring.signing import KEY_VARIABLE
from pages.shared import frame
from tests.pages.driving import KEY, PASSWORD

_NUMBERS = count()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MonitorServer]:
    with start(tmp_path_factory.mktemp("monitor") / "m") as started:
        yield started


@pytest.fixture(autouse=True)
def no_memory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What a server remembers for all viewers is forgotten, and nothing of this machine is found or written to."""
    st.cache_resource.clear()
    monkeypatch.setattr("monitoring.connection.DIRECTORY", tmp_path / "monitor")
    monkeypatch.setattr(frame, "ATTEMPTS", Attempts())
    monkeypatch.setenv(URL_VARIABLE, "redis://127.0.0.1:1")
    monkeypatch.delenv(READ_URL_VARIABLE, raising=False)
    monkeypatch.setenv(KEY_VARIABLE, KEY)
    monkeypatch.delenv(HASH_VARIABLE, raising=False)


@pytest.fixture
def address(server: MonitorServer, monkeypatch: pytest.MonkeyPatch) -> Address:
    monkeypatch.setenv(URL_VARIABLE, server.address.current("sender"))
    monkeypatch.setenv(READ_URL_VARIABLE, server.address.current("reader"))
    return server.address


@pytest.fixture
def run() -> str:
    """A name for a run that no other test has."""
    return f"run{next(_NUMBERS)}"


@pytest.fixture
def password(monkeypatch: pytest.MonkeyPatch) -> str:
    """Sets the operator's password."""
    monkeypatch.setenv(HASH_VARIABLE, hash_password(PASSWORD))
    return PASSWORD
