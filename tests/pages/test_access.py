"""The operator's password: its hash, its file, and how often one may try."""

from __future__ import annotations

import hashlib
import random
from contextlib import suppress
from pathlib import Path

import pytest

from monitoring.access import (
    HASH_VARIABLE,
    Attempts,
    TooManyAttempts,
    find_hash,
    hash_password,
    make_password,
    verify,
    write_hash,
)
from monitoring.connection import Address
from monitoring.recorded import record
from ppa_core.errors import BadInput
from ppa_core.settings import ProgramSettings
from tests.pages.driving import log_in, opened, said
from tests.pages.recording import QUIET, script

pytestmark = pytest.mark.slow


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
    assert find_hash(path, ProgramSettings()) is None
    known = hash_password("a long password")
    write_hash(known, path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert find_hash(path, ProgramSettings()) == known
    other = hash_password("another password")
    assert find_hash(path, ProgramSettings(operator_password_hash=other)) == other
    path.chmod(0o644)
    with pytest.raises(BadInput, match="others can read"):
        find_hash(path, ProgramSettings())


def test_short_password_is_refused() -> None:
    with pytest.raises(BadInput):
        hash_password("short")


def attempts(moment: list[float], waits: list[float]) -> Attempts:
    return Attempts(clock=lambda: moment[0], sleep=waits.append)


def cheap_hash(password: str) -> str:
    """A hash that is quick to look at, for tests that look at thousands."""
    salt, key = b"0" * 16, hashlib.scrypt(password.encode(), salt=b"0" * 16, n=1 << 10, r=1, p=1, dklen=32)
    return f"scrypt:10:1:1:{salt.hex()}:{key.hex()}"


def test_session_that_is_wrong_often_waits_longer_and_longer_and_others_do_not() -> None:
    moment, known = [0.0], cheap_hash("a long password")
    guard = attempts(moment, [])
    assert not any(guard.verify("wrong", known, "one") for _ in range(5))
    waited = []
    for _ in range(8):
        with pytest.raises(TooManyAttempts) as error:
            guard.verify("a long password", known, "one")  # not even looked at
        waited.append(error.value.seconds)
        moment[0] += error.value.seconds
        assert not guard.verify("wrong", known, "one")
    assert waited[1:] == pytest.approx([2, 4, 8, 16, 30, 30, 30])
    assert guard.verify("a long password", known, "two")
    moment[0] += 30.0
    assert guard.verify("a long password", known, "one")
    assert not any(guard.verify("wrong", known, "one") for _ in range(5))  # a right one has forgiven the wrong ones


@pytest.mark.parametrize(("address", "bound", "by_day"), [(None, 60.0, 1_500_000), ("10.0.0.9", 0.001, 400_000)])
def test_nobody_who_tries_for_ever_keeps_the_operator_out(address: str | None, bound: float, by_day: int) -> None:
    """Someone tries 20 times a second from ever new sessions; the operator tries again every few seconds, and gets in."""
    moment, waits, dice, known = [0.0], list[float](), random.Random(4), cheap_hash("a long password")
    guard, looked, seconds = attempts(moment, waits), 0, 300
    wrong = [(dice.uniform(0, seconds), "") for _ in range(seconds * 20)]
    right = [(begin + 4.0 * i, f"operator {begin}") for begin in range(60, seconds - 60, 30) for i in range(30)]
    inside: dict[str, float] = {}
    for at, who in sorted(wrong + right):
        moment[0] = at
        try:
            if not who:
                assert not guard.verify("wrong", known, f"{at}", address)
                looked += 1
            elif who not in inside:
                assert guard.verify("a long password", known, who)
                inside[who] = at + waits[-1] - float(who.split()[1])
        except TooManyAttempts:
            pass
    assert len(inside) == 6
    assert max(inside.values()) < bound
    assert looked / seconds * 86_400 < by_day
    assert by_day * 365 * 1_000 / 2**96 < 1e-16  # the chance to guess a password made here, in a thousand years


def test_a_line_that_is_always_full_closes_nothing() -> None:
    """Someone keeps the line full from ever new sessions, and is always there first."""
    moment, known = [0.0], cheap_hash("a long password")
    guard, number = attempts(moment, []), 0

    def tried() -> bool:
        try:
            return guard.verify("a long password", known, "operator")
        except TooManyAttempts:
            return False

    for _ in range(300):  # seconds: by chance alone, one in 10^13 would not get in
        moment[0] += 1.0
        for _ in range(20):
            number += 1
            with suppress(TooManyAttempts):
                guard.verify("wrong", known, f"session {number}")
        if tried():
            return
    pytest.fail("the operator was kept out")


def test_those_whom_only_a_header_tells_of_do_not_hold_up_this_machine() -> None:
    waits: list[float] = []
    guard, known = attempts([0.0], waits), cheap_hash("a long password")
    for i in range(100):
        guard.verify("wrong", known, f"session {i}", "")
    guard.verify("wrong", known, "another", None)
    assert waits[-2:] == pytest.approx([9.9, 0.0])


def test_addresses_of_one_network_are_one() -> None:
    waits: list[float] = []
    guard, known = attempts([0.0], waits), cheap_hash("a long password")
    for i in range(6):
        guard.verify("wrong", known, f"{i}", f"2001:db8::{i}")
    guard.verify("wrong", known, "other", "2001:db8:0:1::1")
    assert waits == pytest.approx([0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.0])


def test_wrong_passwords_on_the_page_are_limited(address: Address, run: str, password: str) -> None:
    page = opened("failover", pipeline=str(record(address, script(run, QUIET))))
    for _ in range(5):
        assert "Wrong password." in said(log_in(page, "wrong"))
    assert "Too many attempts." in said(log_in(page, password))
    assert not any(button.label.startswith("Drain") for button in page.button)


def test_login_is_of_one_session_and_ends_with_the_password(
    address: Address, run: str, password: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = str(record(address, script(run, QUIET)))
    page = log_in(opened("failover", pipeline=pipeline), password, "<b>anna</b>")
    assert "Operator: <b>anna</b>" in [text.value for text in page.text]
    assert any(button.label.startswith("Drain") for button in page.button)
    assert not any(button.label.startswith("Drain") for button in opened("failover", pipeline=pipeline).button)
    monkeypatch.setenv(HASH_VARIABLE, hash_password("another password"))
    page.run()
    assert not any(button.label.startswith("Drain") for button in page.button)


def test_broken_hash_leaves_the_page_for_viewers(address: Address, run: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(HASH_VARIABLE, "broken")
    page = opened("failover", pipeline=str(record(address, script(run, QUIET))))
    assert "the operator's password cannot be checked" in said(page)


def test_server_open_to_others_shows_nothing_before_login(
    address: Address, run: str, password: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pages.server.hosts.LOOPBACK", ())
    pipeline = str(record(address, script(run, QUIET)))
    for name in ("live", "failover", "incidents", "spark", "what_if", "planners"):
        page = opened(name, pipeline=pipeline)
        assert "reached from other machines" in said(page)
        assert not page.metric
        assert not page.dataframe
        assert not page.selectbox
        assert pipeline not in said(page)
    assert log_in(opened("live", pipeline=pipeline), password).metric
    assert log_in(opened("what_if", planner="greedy"), password).metric


def test_open_page_shows_nothing_more_after_a_change_of_the_password(
    address: Address, run: str, password: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pages.server.hosts.LOOPBACK", ())
    page = log_in(opened("live", pipeline=str(record(address, script(run, QUIET)))), password)
    assert page.metric
    monkeypatch.setenv(HASH_VARIABLE, hash_password("another password"))
    page.run()
    assert not page.metric
    assert "reached from other machines" in said(page)
