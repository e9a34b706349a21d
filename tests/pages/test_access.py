"""The operator's password: its hash, its file, and how often one may try."""

from __future__ import annotations

from pathlib import Path

import pytest

from monitoring.access import HASH_VARIABLE, Attempts, TooMany, find_hash, hash_password, make_password, verify, write_hash
from monitoring.connection import Address
from monitoring.recorded import record
from ppa_core.errors import BadInput
from tests.pages.driving import log_in, opened, said
from tests.pages.recording import QUIET, script


def test_password_is_verified_by_its_hash_alone() -> None:
    password = make_password()
    known = hash_password(password)
    assert password not in known
    assert verify(password, known)
    assert not verify(password + "x", known)
    assert not verify("", known)
    assert known != hash_password(password)  # salted


def test_passwords_made_differ_and_are_long() -> None:
    assert len({make_password() for _ in range(100)}) == 100
    assert len(make_password()) >= 16


@pytest.mark.parametrize("known", ["", "x", "scrypt:14:8:1:00:00", "scrypt:40:8:1:" + "0" * 32 + ":" + "0" * 64, "a:b:c:d:e:f"])
def test_what_is_no_hash_is_refused(known: str) -> None:
    with pytest.raises(BadInput):
        verify("a long password", known)


def test_hash_is_found_in_the_environment_and_else_in_a_private_file(tmp_path: Path) -> None:
    path = tmp_path / "ppa" / "operator.hash"
    assert find_hash(path, {}) is None
    known = hash_password("a long password")
    write_hash(known, path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert find_hash(path, {}) == known
    other = hash_password("another password")
    assert find_hash(path, {HASH_VARIABLE: other}) == other
    path.chmod(0o644)
    with pytest.raises(BadInput, match="others can read"):
        find_hash(path, {})


def test_short_password_is_refused() -> None:
    with pytest.raises(BadInput):
        hash_password("short")


def test_attempts_are_limited_over_all_who_try() -> None:
    now = 0.0
    attempts = Attempts(most=3, seconds=60, clock=lambda: now)
    known = hash_password("a long password")
    assert not any(attempts.verify("wrong", known) for _ in range(3))
    with pytest.raises(TooMany) as error:
        attempts.verify("a long password", known)  # not even looked at
    assert error.value.seconds == 60
    now = 61.0
    assert attempts.verify("a long password", known)
    assert not any(attempts.verify("wrong", known) for _ in range(3))  # a right one has forgiven the wrong ones


def test_wrong_passwords_on_the_page_are_limited_across_sessions(address: Address, run: str, password: str) -> None:
    pipeline = str(record(address, script(run, QUIET)))
    first = opened("failover", pipeline=pipeline)
    for _ in range(5):
        assert "That is not the password." in said(log_in(first, "wrong"))
    second = opened("failover", pipeline=pipeline)
    assert "Too many wrong passwords." in said(log_in(second, password))
    assert not any(button.label.startswith("Carry") for button in second.button)


def test_login_is_of_one_session_and_ends_with_the_password(
    address: Address, run: str, password: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = str(record(address, script(run, QUIET)))
    page = log_in(opened("failover", pipeline=pipeline), password, "<b>anna</b>")
    assert "Operator: <b>anna</b>" in [text.value for text in page.text]
    assert any(button.label.startswith("Carry") for button in page.button)
    assert not any(button.label.startswith("Carry") for button in opened("failover", pipeline=pipeline).button)
    monkeypatch.setenv(HASH_VARIABLE, hash_password("another password"))
    page.run()
    assert not any(button.label.startswith("Carry") for button in page.button)


def test_broken_hash_leaves_the_page_for_viewers(address: Address, run: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(HASH_VARIABLE, "broken")
    page = opened("failover", pipeline=str(record(address, script(run, QUIET))))
    assert "the operator's password cannot be checked" in said(page)


def test_server_open_to_others_shows_what_runs_after_login_only(
    address: Address, run: str, password: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pages.shared.frame.LOOPBACK", ())
    page = opened("live", pipeline=str(record(address, script(run, QUIET))))
    assert not page.metric
    assert "open to other machines" in said(page)
    assert log_in(page, password).metric
    files = opened("what_if", planner="greedy", topology="loss_model")
    assert files.metric  # what ships, and files, can be planned by everyone
    assert "running pipeline" not in files.radio(key="source").options
