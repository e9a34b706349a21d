"""The failover page: verdicts for everyone, actions for the operator."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import msgspec
import pytest
import streamlit as st
from streamlit.testing.v1 import AppTest

from monitoring import keys
from monitoring.channel import Channel, CommandSender
from monitoring.commands import Drain, Fail, Kill, Restore, Undrain
from monitoring.connection import Address, Connection
from monitoring.reader import MonitorReader
from monitoring.recorded import RecordedRun, record
from monitoring.signing import Signer, Token
from monitoring.writer import Writer
from pages.shared.effects import NOT_PUBLISHED
from ppa_core.engine.run_events import Heartbeat, RatesMeasured, RunEvent, StandingChanged
from tests.pages.driving import KEY, answering, log_in, marked_up, opened, said
from tests.pages.recording import OPEN, QUIET, OwnPlay, hostile, script, write


def rows(page: AppTest) -> dict[str, dict[str, object]]:
    """The table of nodes, by rack and node."""
    table = page.dataframe[0].value
    return {f"{row['rack']} {row['node']}": row for row in table.to_dict("records")}


def button(page: AppTest, label: str) -> bool:
    return any(each.label.startswith(label) for each in page.button)


def test_viewer_sees_verdicts_and_no_buttons(address: Address, run: str, password: str) -> None:
    pipeline = record(address, script(run, QUIET))
    page = opened("failover", pipeline=str(pipeline))
    found = rows(page)
    assert found["r1 all 2"]["safe?"] == "no"
    assert float(str(found["r1 all 2"]["OF if lost"])) < 1
    assert found["s1 s1"]["safe?"] == "yes"
    assert found["s1 s1"]["OF if lost"] == "1.0000"
    assert not button(page, "Drain")
    assert "Log in as operator" in said(page)


def test_a_node_whose_replicas_lag_is_not_safe(address: Address, run: str) -> None:
    """Every task has a replica, and none of them has the last batch."""
    pipeline = record(address, script(run, QUIET, budget=31))
    assert rows(opened("failover", pipeline=str(pipeline)))["r1 n1"]["safe?"] == "yes"
    state = MonitorReader(address).state(pipeline)
    assert state is not None
    assert state.standing is not None
    writer = Writer(address, state.info)
    writer.write(replace(state.standing, holders=tuple((home,) for home in state.standing.homes)))
    assert writer.close(10)
    st.cache_resource.clear()
    found = rows(opened("failover", pipeline=str(pipeline)))
    assert found["r1 n1"]["safe?"] == found["r1 all 2"]["safe?"] == "no"
    assert "without an up-to-date copy" in str(found["r1 n1"]["why"])


class Silent(RecordedRun):
    """A run whose driver does not publish its standing, as older ones did not."""

    def events(self, first: int = 0) -> Iterator[RunEvent]:
        return (event for event in super().events(first) if not isinstance(event, StandingChanged | RatesMeasured))


class Drained(RecordedRun):
    """A run in which s2 is drained."""

    def events(self, first: int = 0) -> Iterator[RunEvent]:
        for event in super().events(first):
            yield msgspec.structs.replace(event, drained=("s2",)) if isinstance(event, Heartbeat) else event


@pytest.mark.parametrize("page", ["failover", "what_if", "live"])
def test_nothing_is_predicted_from_nothing(address: Address, run: str, page: str) -> None:
    text = said(opened(page, pipeline=str(write(address, Silent(script(run, QUIET))))))
    assert (NOT_PUBLISHED in text) == (page != "live")


def test_without_a_password_nobody_can_act(address: Address, run: str) -> None:
    page = opened("failover", pipeline=str(record(address, script(run, QUIET))))
    assert "no operator's password is set" in said(page)
    assert not button(page, "Log in")
    assert not button(page, "Drain")


def test_lost_nodes_and_nodes_that_recover_tasks_are_not_safe(address: Address, run: str) -> None:
    page = opened("failover", pipeline=str(record(address, script(run, OPEN))))
    found = rows(page)
    assert found["r1 n1"]["safe?"] == found["r1 n3"]["safe?"] == "lost"
    assert any("recovering here" in str(row["why"]) for row in found.values())


@pytest.mark.parametrize(
    ("action", "target", "command"),
    [
        ("drain", "node:n2", Drain("node:n2")),
        ("undrain", "rack:s2", Undrain("rack:s2")),
        ("fail", "rack:r2", Fail("rack:r2")),
        ("kill", "rack:r2", Kill("rack:r2")),
        ("restore", "node:n1", Restore("node:n1")),
        ("restore", "rack:r1", Restore("rack:r1")),
    ],
)
def test_operator_acts_after_dry_run_and_confirmation(
    address: Address, run: str, password: str, action: str, target: str, command: object
) -> None:
    """In a run that has lost n1 and n3, with s2 drained."""
    pipeline = write(address, Drained(script(run, OPEN)))
    page = log_in(opened("failover", pipeline=str(pipeline)), password)
    page.radio(key="action").set_value(action).run()
    page.selectbox(key="target").set_value(target).run()
    with answering(address, pipeline, lambda token: ("done", "as you said")) as taken:
        page.button(key="send").click().run()
        assert "Confirm this command" in marked_up(page)
        assert not taken  # nothing is sent before the confirmation
        page.button(key="confirm").click().run()
    assert [token.command for token in taken] == [command]
    assert taken[0].who == "anna"
    assert "Command completed." in said(page)
    assert "as you said" in said(page)
    assert [line.outcome for line in MonitorReader(address).audit(pipeline)] == ["accepted", "done"]
    assert list(page.dataframe[-1].value["outcome"]) == ["done", "accepted"]
    assert "audit log intact from #1 up to #2" in said(page)


def test_an_action_is_offered_only_where_it_applies(address: Address, run: str, password: str) -> None:
    page = log_in(opened("failover", pipeline=str(record(address, script(run, QUIET)))), password)
    assert "node:n1" in page.selectbox(key="target").options
    assert page.button(key="send").label == "Drain …"
    for action in ("undrain", "restore"):
        page.radio(key="action").set_value(action).run()
        assert page.selectbox(key="target").options == []
        assert f"There is no node to {action}." in said(page)
        assert not button(page, action.capitalize())


def test_an_audit_log_that_was_tampered_with_is_said_so(address: Address, run: str) -> None:
    pipeline, signer = record(address, script(run, QUIET)), Signer(KEY.encode())
    channel, operator, connection = Channel(address, pipeline, signer), CommandSender(address, signer), Connection(address)
    operator.send(pipeline, Restore("node:n1"), "<b>anna</b>")
    (token,) = channel.poll()
    channel.acknowledge(token.id, "done")
    with connection.pipeline() as pipe:
        pipe.xdel(keys.audit(pipeline), "1-0")
        connection.execute(pipe)
    page = opened("failover", pipeline=str(pipeline))
    assert "The audit log was tampered with, or lines of it were lost." in said(page)
    assert "audit log BROKEN: #1 is missing" in said(page)
    assert list(page.dataframe[-1].value["outcome"]) == ["done"]
    for opened_ in (channel, operator, connection):
        opened_.close()


def test_no_sends_nothing(address: Address, run: str, password: str) -> None:
    pipeline = record(address, script(run, QUIET))
    page = log_in(opened("failover", pipeline=str(pipeline)), password)
    page.button(key="send").click().run()
    page.button(key="cancel").click().run()
    assert "Confirm this command" not in marked_up(page)
    assert not MonitorReader(address).audit(pipeline)


def test_refusal_of_the_pipeline_is_shown_as_text(address: Address, run: str, password: str) -> None:
    def refuse(token: Token) -> tuple[str, str]:
        return "failed", "no room on <b>n2</b>"

    pipeline = record(address, script(run, QUIET))
    page = log_in(opened("failover", pipeline=str(pipeline)), password)
    with answering(address, pipeline, refuse):
        page.button(key="send").click().run()
        page.button(key="confirm").click().run()
    assert "The command was not carried out." in said(page)
    assert "no room on <b>n2</b>" in "\n".join(text.value for text in page.text)
    assert "<b>" not in marked_up(page)


def test_silent_pipeline_is_waited_for_and_said(
    address: Address, run: str, password: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pages.shared.acting.WAIT", 0.2)
    page = log_in(opened("failover", pipeline=str(record(address, script(run, QUIET)))), password)
    page.button(key="send").click().run()
    page.button(key="confirm").click().run()
    assert "No answer from the pipeline." in said(page)


def test_confirmation_of_who_logged_out_is_gone(address: Address, run: str, password: str) -> None:
    pipeline = record(address, script(run, QUIET))
    page = log_in(opened("failover", pipeline=str(pipeline)), password)
    page.button(key="send").click().run()
    page.button(key="log out").click().run()
    assert not button(page, "Confirm")
    assert not MonitorReader(address).audit(pipeline)


def test_hostile_racks_are_text(address: Address, run: str) -> None:
    play = OwnPlay(hostile(), script(run, OPEN, "x", budget=3, rack="<b>r1</b>"), ("<b>r1</b>", "**r2**"))
    page = opened("failover", pipeline=str(write(address, play)))
    page.selectbox(key="target").set_value("rack:**r2**").run()
    page.radio(key="action").set_value("fail").run()
    assert "**r2**" not in marked_up(page)
    assert "<img" not in marked_up(page)
    assert "<b>r1</b> all 2" in rows(page)
