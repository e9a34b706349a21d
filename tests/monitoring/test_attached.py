"""The monitor beside a real run: Spark, nodes, a driver that is killed, and commands that are carried out."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from monitoring import keys
from monitoring.channel import CommandSender
from monitoring.commands import ApplyPlan, Command, Drain, Kill, Pause, Restore, Resume, SetBudget, Stop
from monitoring.connection import Address, Connection
from monitoring.reader import MonitorReader
from monitoring.records import CommandOutcome, PlanChange, RunKey
from monitoring.signing import Signer
from ppa_core.engine.event_codec import kind_of
from ppa_core.engine.predictions import lose
from ppa_core.engine.run_events import FailedOver
from ppa_core.errors import PpaError
from tests.monitoring.tester import run

pytestmark = pytest.mark.drill

ROOT = Path(__file__).parents[2]
PATIENCE = 240.0


class Watched:
    """A run of `tree` started from the command line, and an operator at its monitor."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        words = "run tree --rate 100 --window 4 --budget 8 --checkpoint-every 4 --deadline 30 --monitor"
        words += " --monitor-directory monitor"
        self.process = subprocess.Popen(
            [sys.executable, "-m", "ppa_core", *words.split()],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.address = Address(None, folder / "monitor")
        self.reader = MonitorReader(self.address)
        try:
            self.await_("the first batch", lambda: self.batch() >= 1)
        except BaseException:
            self.close()
            raise
        self.operator = CommandSender(self.address, Signer.find(folder / "monitor"))

    @property
    def pipeline(self) -> RunKey:
        found = self.reader.find("tree")
        assert found is not None
        return found

    def batch(self) -> int:
        try:
            state = self.reader.state(self.pipeline)
        except PpaError:
            return -1
        return state.batch.batch if state and state.batch else -1

    def await_(self, what: str, happened: Callable[[], object]) -> None:
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            assert self.process.poll() is None, self.process.stderr and self.process.stderr.read()[-2000:]
            try:
                if happened():
                    return
            except (PpaError, AssertionError):
                pass
            time.sleep(0.2)
        raise AssertionError(f"{what}: not within {PATIENCE} s")

    def command(self, command: Command) -> CommandOutcome:
        id_ = self.operator.send(self.pipeline, command, "tester")
        outcome = self.operator.wait(self.pipeline, id_, 60.0)
        assert outcome is not None, command
        return outcome

    def planned(self, reason: str) -> PlanChange:
        """The last change of the plan, once it is the one for this reason: it is written soon after the command's outcome."""
        self.await_(reason, lambda: self.reader.plans(self.pipeline)[-1].reason == reason)
        return self.reader.plans(self.pipeline)[-1]

    def at_rest(self) -> int:
        """The last batch, once none has come for three intervals: the one under way when a run is paused is still done."""
        end, last, since = time.monotonic() + PATIENCE, self.batch(), time.monotonic()
        while time.monotonic() - since < 3.0:
            assert time.monotonic() < end, "batches go on"
            time.sleep(0.2)
            if self.batch() != last:
                last, since = self.batch(), time.monotonic()
        return last

    def kinds(self) -> list[str]:
        return [kind_of(stored.event) for stored in self.reader.events(self.pipeline)]

    def failover(self, node: str) -> list[FailedOver]:
        events = [stored.event for stored in self.reader.events(self.pipeline)]
        return [event for event in events if isinstance(event, FailedOver) and event.node == node]

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        assert self.process.stderr
        self.process.stderr.close()


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[Watched]:
    run = Watched(tmp_path)
    yield run
    run.close()


def test_commands_are_carried_out_and_what_happens_is_written_down(watched: Watched) -> None:
    budget = watched.command(SetBudget(4))
    assert budget.outcome == "done", budget.text
    assert "removed; worst-case OF 0." in budget.text
    change = watched.planned("the budget was changed")
    assert (change.budget, len(change.plan)) == (4, 4)

    applied = watched.command(ApplyPlan(3, "exact", ("O4.1", "O3.1")))
    assert applied.outcome == "done", applied.text
    change = watched.planned("a plan was applied")
    assert (change.budget, change.planner, set(change.plan)) == (3, "exact", {"O3.1", "O4.1"})
    assert (
        watched.command(ApplyPlan(1, "exact", ("S.1",))).text
        == "task 'S.1': unknown task, or a task that cannot have a replica"
    )

    left = watched.command(Drain("rack:r1"))
    assert left.outcome == "done", left.text
    assert "safe to take down" in left.text
    assert all(record.status == "accurate" for record in watched.reader.batches(watched.pipeline)), "draining costs nothing"

    assert watched.command(Kill("node:n2")).text == "killed n2"
    watched.await_("the loss", lambda: "node lost" in watched.kinds())
    assert watched.command(Kill("node:n9")).outcome == "failed"
    watched.await_("the recovery", lambda: watched.reader.state(watched.pipeline).incident is None)  # type: ignore[union-attr]
    assert watched.command(Restore("node:n2")).outcome == "done"
    watched.await_("the node", lambda: "node back" in watched.kinds())

    assert watched.command(Pause()).outcome == "done"
    before = watched.at_rest()
    state = watched.reader.state(watched.pipeline)
    assert state is not None
    assert state.rates is not None
    assert state.standing is not None
    busy = state.standing.nodes[state.standing.homes[0]]
    predicted = lose(state.standing, [busy])
    assert predicted.hit
    assert watched.command(Kill(f"node:{busy}")).outcome == "done"
    watched.await_("the failover", lambda: watched.failover(busy))
    assert set(watched.failover(busy)[-1].missing) == set(predicted.missing)
    assert watched.command(Resume()).outcome == "done"
    watched.await_("a batch", lambda: watched.batch() > before)

    audit = [(line.what, line.outcome) for line in watched.reader.audit() if line.outcome in ("done", "failed")]
    assert audit == [
        ("set-budget 4", "done"), ("apply-plan of 2 replicas, budget 3, planner exact", "done"),
        ("apply-plan of 1 replicas, budget 1, planner exact", "failed"),
        ("drain rack:r1", "done"), ("kill node:n2", "done"), ("kill node:n9", "failed"),
        ("restore node:n2", "done"), ("pause", "done"),
        (f"kill node:{busy}", "done"), ("resume", "done"),
    ]  # fmt: skip
    assert watched.reader.progress(watched.pipeline)[-1].input_rows > 0
    id_ = watched.operator.send(watched.pipeline, Stop(), "tester")
    assert id_
    assert watched.process.wait(60) == 0


def test_a_driver_that_is_killed_is_started_again_and_the_history_goes_on(watched: Watched) -> None:
    """And an old command that someone adds to an emptied Redis is not carried out again."""
    signer, connection = Signer.find(watched.folder / "monitor"), Connection(watched.address)
    id_, token = signer.sign(SetBudget(4), watched.pipeline, "tester", 60.0)
    entry = ("XADD", keys.commands(watched.pipeline), "*", "token", token)
    run(connection, entry)
    outcome = watched.operator.wait(watched.pipeline, id_, 60.0)
    assert outcome is not None
    assert outcome.outcome == "done", outcome.text
    before = watched.batch()
    (driver,) = [child for child in psutil.Process(watched.process.pid).children() if "ppa_core.driver.main" in child.cmdline()]
    os.killpg(driver.pid, signal.SIGKILL)
    watched.await_("the next driver", lambda: "resumed" in watched.kinds())
    run(connection, ("UNLINK", keys.commands(watched.pipeline), keys.outcome(watched.pipeline, id_)), entry)
    watched.await_("batches", lambda: watched.batch() >= before + 3)
    watched.await_("the refusal", lambda: "refused" in [line.outcome for line in watched.reader.audit(watched.pipeline)])
    assert watched.operator.wait(watched.pipeline, id_, 0) is None
    assert len([kind for kind in watched.kinds() if kind == "command"]) == 1
    assert watched.reader.chain(watched.pipeline, signer).problems == ()
    connection.close()
    batches = [record.batch for record in watched.reader.batches(watched.pipeline)]
    assert batches == list(range(batches[0], batches[-1] + 1))
