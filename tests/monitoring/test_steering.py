"""Commands reach the driver under their own name; nodes are killed and started by the process that owns them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from monitoring.attached import Attached
from monitoring.channel import CommandSender
from monitoring.commands import (
    ApplyPlan,
    ChoosePlanner,
    Command,
    Drain,
    Fail,
    Kill,
    Pause,
    Replan,
    Restore,
    Resume,
    SetBudget,
    Stop,
    Undrain,
)
from monitoring.connection import Address
from monitoring.records import CommandOutcome, NodeInfo, PipelineInfo
from monitoring.signing import Signer
from ppa_core.driver.output_log import OutputLog
from ppa_core.engine.run_events import CommandAnswered, CommandNumbers
from ppa_core.nodes.embedded import EmbeddedNodes, launch

SIGNER = Signer(b"0123456789abcdef-secret")


class Driver:
    """Takes commands as the driver's process does, and answers each."""

    def __init__(self, attached: Attached) -> None:
        self.attached, self.running, self.sent = attached, True, list[tuple[str, dict[str, Any]]]()

    def send(self, word: str, arguments: dict[str, Any] | None = None, id_: str = "") -> bool:
        if self.running:
            self.sent.append((word, arguments or {}))
            self.attached.handle(CommandAnswered(time.time(), 0, id_, "done", "as you said"))
        return self.running


class Operator:
    def __init__(self, address: Address, attached: Attached) -> None:
        self.attached, self.driver, self.sender = attached, Driver(attached), CommandSender(address, SIGNER)
        attached.handle(CommandNumbers(time.time(), 0, {}))
        attached.take_commands(self.driver)

    def __call__(self, command: Command) -> CommandOutcome:
        pipeline = self.attached.info.pipeline
        outcome = self.sender.wait(pipeline, self.sender.send(pipeline, command, "ada"), 30.0)
        assert outcome is not None, command
        return outcome

    def close(self) -> None:
        self.attached.close()
        self.sender.close()


@pytest.fixture(scope="module")
def nodes() -> Iterator[EmbeddedNodes]:
    with launch(4, 1, 2, 32) as launched:
        yield launched


@pytest.fixture
def operator(address: Address, info: PipelineInfo, nodes: EmbeddedNodes, tmp_path: Path) -> Iterator[Operator]:
    info = replace(info, nodes=tuple(NodeInfo(node.name, node.rack, node.role) for node in nodes.cluster.nodes))
    made = Operator(address, Attached(address, info, lambda tentative, corrected: None, OutputLog(tmp_path), SIGNER, nodes))
    yield made
    made.close()


@pytest.mark.parametrize(
    ("command", "word", "arguments"),
    [
        (Drain("node:n2"), "drain", {"nodes": ["n2"]}),
        (Drain("rack:r1"), "drain", {"nodes": ["n1", "n3"]}),
        (Undrain("rack:r1"), "undrain", {"nodes": ["n1", "n3"]}),
        (Fail("rack:r2"), "fail", {"nodes": ["n2", "n4"]}),
        (Restore("node:n1"), "restore", {"nodes": ["n1"]}),
        (Pause(), "pause", {}),
        (Resume(), "resume", {}),
        (Stop(), "stop", {}),
        (Replan(), "replan", {}),
        (SetBudget(3), "set-budget", {"budget": 3}),
        (ChoosePlanner("exact"), "choose-planner", {"planner": "exact"}),
        (ApplyPlan(1, "exact", ("O2.1",)), "apply-plan", {"budget": 1, "planner": "exact", "tasks": ("O2.1",)}),
    ],
    ids=str,
)
def test_a_command_has_the_same_name_in_the_driver(
    operator: Operator, command: Command, word: str, arguments: dict[str, Any]
) -> None:
    assert operator(command).text == "as you said"
    assert operator.driver.sent == [(word, arguments)]


def test_a_killed_rack_is_gone_and_restore_starts_it_again(operator: Operator, nodes: EmbeddedNodes) -> None:
    before = dict(nodes.pids)
    assert operator(Kill("rack:r1")).text == "killed n1, n3"
    assert not any(psutil.pid_exists(before[name]) for name in ("n1", "n3"))
    assert operator.driver.sent == [], "a kill is not announced to the driver: it has to notice"
    assert operator(Restore("rack:r1")).outcome == "done"
    assert operator.driver.sent == [("restore", {"nodes": ["n1", "n3"]})]
    assert {name for name in before if nodes.pids[name] != before[name]} == {"n1", "n3"}


@pytest.mark.parametrize("command", [Drain("node:n9"), Kill("rack:r9"), Restore("node:n9"), Undrain("node:r1")], ids=str)
def test_an_unknown_target_is_refused_with_the_known_ones(operator: Operator, command: Command) -> None:
    outcome = operator(command)
    assert outcome.outcome == "failed"
    assert "the nodes are n1, n2, n3, n4, s1, the racks r1, r2, s1" in outcome.text
    assert operator.driver.sent == []


def test_without_a_driver_a_command_fails(operator: Operator) -> None:
    operator.driver.running = False
    assert "the driver is not running" in operator(Drain("node:n1")).text


def test_nodes_of_others_cannot_be_killed(address: Address, info: PipelineInfo, tmp_path: Path) -> None:
    operator = Operator(address, Attached(address, info, lambda a, b: None, OutputLog(tmp_path), SIGNER, None))
    assert "only embedded nodes can be killed" in operator(Kill("node:n1")).text
    assert operator(Restore("node:n1")).outcome == "done"
    operator.close()
