"""What signals do to a run: the first one stops it, the second one kills it, and afterwards they do what they did before."""

from __future__ import annotations

import signal
import threading

import pytest

from ppa_core.application.stopping import stopping


class Run:
    """Notes what is asked of it."""

    def __init__(self) -> None:
        self.stopped, self.killed = threading.Event(), threading.Event()
        self.blocked = threading.Event()
        self.blocked.set()

    def stop(self) -> None:
        self.blocked.wait(60)
        self.stopped.set()

    def kill(self) -> None:
        self.killed.set()


@pytest.fixture
def run() -> Run:
    assert threading.current_thread() is threading.main_thread()  # or a signal would end the tests
    return Run()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_first_signal_stops_and_the_second_kills(number: int, run: Run) -> None:
    with stopping(run):
        signal.raise_signal(number)
        assert run.stopped.wait(30)
        assert not run.killed.is_set()
        signal.raise_signal(signal.SIGTERM)  # either of them is the second
        assert run.killed.is_set()


def test_the_second_signal_kills_though_the_first_one_is_held_up(run: Run) -> None:
    """A driver whose pipe is full, or a blocked terminal."""
    run.blocked.clear()
    with stopping(run):
        signal.raise_signal(signal.SIGINT)
        assert not run.stopped.is_set()
        signal.raise_signal(signal.SIGINT)
        assert run.killed.is_set()
    run.blocked.set()
    assert run.stopped.wait(30)


def test_afterwards_signals_do_what_they_did_before(run: Run) -> None:
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)

    def fails() -> None:
        with stopping(run):
            assert signal.getsignal(signal.SIGTERM) is not before[0]
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fails()
    assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == before


def test_in_another_thread_signals_are_left_alone(run: Run) -> None:
    before, seen = signal.getsignal(signal.SIGTERM), list[object]()

    def work() -> None:
        with stopping(run):
            seen.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join(30)
    assert seen == [before]
