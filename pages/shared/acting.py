"""Acting on the running pipeline: ask first, then send a signed command, wait, and say what came of it."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

import streamlit as st

from monitoring.channel import CommandSender
from monitoring.commands import Command
from monitoring.connection import Address
from monitoring.records import RunKey
from monitoring.signing import Signer
from pages.shared import frame, reading
from ppa_core.errors import PpaError

_log = logging.getLogger(__name__)

WAIT = 20.0
"""Seconds that a page waits for the outcome; the command itself holds for less."""


@dataclass(frozen=True)
class Asked:
    """Commands that wait for a confirmation on a page, and what they would do, as lines of text."""

    page: str
    pipeline: RunKey
    commands: tuple[Command, ...]
    lines: tuple[str, ...]


@dataclass(frozen=True)
class Said:
    """What came of a command."""

    command: str
    outcome: str
    text: str


def ask(page: str, pipeline: RunKey, commands: Sequence[Command], lines: Sequence[str]) -> None:
    """Have a confirmation asked when the page comes to `confirm`."""
    st.session_state["asked"] = Asked(page, pipeline, tuple(commands), tuple(lines))
    st.session_state.pop("said", None)


def confirm(page: str, pipeline: RunKey) -> None:
    """The confirmation that waits on this page for this run, if one does, and what came of the last command."""
    asked = st.session_state.get("asked")
    if isinstance(asked, Asked) and (asked.page, asked.pipeline) == (page, pipeline) and frame.operator() is not None:
        with st.container(border=True):
            st.subheader("Do this?")
            st.text("\n".join([" then ".join(map(str, asked.commands)), "", *asked.lines]))
            yes, no, _ = st.columns([1, 1, 4])
            if yes.button("Yes, do it", type="primary", key="yes"):
                with st.spinner("Waiting for the pipeline …"):
                    st.session_state["said"] = (page, pipeline, _send(asked))
                st.session_state.pop("asked", None)
                reading.forget()
                st.rerun()
            if no.button("No", key="no"):
                st.session_state.pop("asked", None)
                st.rerun()
    where, which, outcomes = st.session_state.get("said", ("", None, []))
    if (where, which) == (page, pipeline):
        for said in outcomes:
            _show(said)


def _send(asked: Asked) -> list[Said]:
    """Send one after the other, and stop at the first that is not done."""
    who = frame.operator()
    found: list[Said] = []
    if who is None:
        return [Said(str(asked.commands[0]), "refused", "nobody is logged in")]
    try:
        address = Address.find()
        operator = CommandSender(address, Signer.find(address.directory))
    except PpaError as error:
        _log.warning("no command can be sent", exc_info=True)
        return [Said(str(asked.commands[0]), "not sent", str(error))]
    try:
        for command in asked.commands:
            id_ = operator.send(asked.pipeline, command, who)
            outcome = operator.wait(asked.pipeline, id_, WAIT)
            if outcome is None:
                text = (
                    f"nothing within {WAIT:g} s: it did not arrive, or is not done yet; the audit log says if it was accepted"
                )
                found.append(Said(str(command), "no answer", text))
                break
            found.append(Said(str(command), outcome.outcome, outcome.text))
            if outcome.outcome != "done":
                break
    except PpaError as error:
        _log.warning("a command could not be sent", exc_info=True)
        found.append(Said(str(asked.commands[len(found)]), "not sent", str(error)))
    finally:
        operator.close()
    if operator.trouble:
        found.append(Said("warning", "forged answers", operator.trouble))
    return found


def _show(said: Said) -> None:
    if said.outcome == "done":
        st.success("The pipeline has done it.", icon=":material/check_circle:")
    elif said.outcome == "no answer":
        st.warning("No answer from the pipeline.", icon=":material/schedule:")
    elif said.outcome == "forged answers":
        st.error("Someone else writes to the monitor.", icon=":material/gpp_bad:")
    else:
        st.error("The pipeline did not do it.", icon=":material/error:")
    st.text(f"{said.command}: {said.outcome}{'. ' + said.text if said.text else ''}")
