"""Sending a command to the running pipeline: confirm first, then send, wait, and show the outcome."""

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
"""Seconds that a page waits for the outcome; the command itself expires earlier."""


@dataclass(frozen=True)
class Unconfirmed:
    """A command that waits for confirmation on a page, and its predicted effect as lines of text."""

    page: str
    pipeline: RunKey
    command: Command
    lines: tuple[str, ...]


@dataclass(frozen=True)
class SendResult:
    """The outcome of a command, as it is shown."""

    outcome: str
    text: str
    warning: str = ""


def ask(page: str, pipeline: RunKey, command: Command, lines: Sequence[str]) -> None:
    """Ask for confirmation when the page reaches `confirm`."""
    st.session_state["unconfirmed"] = Unconfirmed(page, pipeline, command, tuple(lines))
    st.session_state.pop("outcome", None)


def confirm(page: str, pipeline: RunKey) -> None:
    """The confirmation that is open on this page for this run, if any, and the outcome of the last command."""
    asked = st.session_state.get("unconfirmed")
    if isinstance(asked, Unconfirmed) and (asked.page, asked.pipeline) == (page, pipeline) and frame.operator() is not None:
        with st.container(border=True):
            st.subheader("Confirm this command")
            st.text("\n".join([str(asked.command), "", *asked.lines]))
            yes, no, _ = st.columns([1, 1, 4])
            if yes.button("Confirm", type="primary", key="confirm"):
                with st.spinner("Waiting for the pipeline …"):
                    st.session_state["outcome"] = (page, pipeline, str(asked.command), _send(asked))
                st.session_state.pop("unconfirmed", None)
                reading.forget()
                st.rerun()
            if no.button("Cancel", key="cancel"):
                st.session_state.pop("unconfirmed", None)
                st.rerun()
    where, which, command, outcome = st.session_state.get("outcome", ("", None, "", None))
    if (where, which) == (page, pipeline):
        _show(command, outcome)


def _send(asked: Unconfirmed) -> SendResult:
    who = frame.operator()
    if who is None:
        return SendResult("not sent", "you are not logged in")
    try:
        address = Address.find()
        sender = CommandSender(address, Signer.find(address.directory))
    except PpaError as error:
        _log.warning("commands cannot be sent", exc_info=True)
        return SendResult("not sent", str(error))
    try:
        outcome = sender.wait(asked.pipeline, sender.send(asked.pipeline, asked.command, who), WAIT)
    except PpaError as error:
        _log.warning("a command could not be sent", exc_info=True)
        return SendResult("not sent", str(error), sender.trouble)
    finally:
        sender.close()
    if outcome is None:
        text = f"waited {WAIT:g} s; it was not delivered, or it is still running: see the audit log on the Failover page"
        return SendResult("no answer", text, sender.trouble)
    return SendResult(outcome.outcome, outcome.text, sender.trouble)


def _show(command: str, result: SendResult) -> None:
    if result.outcome == "done":
        st.success("Command completed.", icon=":material/check_circle:")
    elif result.outcome == "no answer":
        st.warning("No answer from the pipeline.", icon=":material/schedule:")
    else:
        st.error("The command was not carried out.", icon=":material/error:")
    st.text(f"{command}: {result.outcome}{': ' + result.text if result.text else ''}")
    if result.warning:
        st.error("Someone else is writing to the monitor.", icon=":material/gpp_bad:")
        st.text(result.warning)
