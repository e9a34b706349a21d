"""Commands to a driver, one per line of its standard input, and their answers."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Any

from ppa_core.driver.controls import Controls
from ppa_core.engine.event_codec import cut
from ppa_core.engine.run_events import CommandAnswered, CommandNumbers, RunEvent
from ppa_core.errors import PpaError
from ppa_core.terminal import logs

_log = logging.getLogger(__name__)

Command = dict[str, Any]
Report = Callable[[RunEvent], None]


def run_commands(commands: Callable[[], Command | None], controls: Controls, report: Report) -> None:
    """Execute commands until the input ends, then stop the run.

    A command with an id is recorded in the ledger first, in order of arrival; one without comes from the parent process.
    """
    while (command := commands()) is not None:
        id_ = command.get("id", "")
        try:
            if id_:
                controls.take(id_)
        except Exception as error:  # noqa: BLE001 - later commands must still be read
            _log.exception("command %s could not be recorded", id_, extra={"cause": id_})
            report(_answer(controls, id_, "failed", error))
            continue
        threading.Thread(target=_carry_out, args=(command, controls, report), daemon=True).start()
    controls.host.stop()


def report_numbers(controls: Controls, report: Report) -> None:
    """Report, once the ledger is read, which commands earlier drivers of the run executed."""
    controls.host.started.wait()
    report(CommandNumbers(time.time(), controls.host.machine.head, dict(controls.carried_out)))


def _carry_out(command: Command, controls: Controls, report: Report) -> None:
    """In a separate thread, because it may take some time."""
    id_ = command.get("id", "")
    with logs.about(batch=controls.host.machine.head, cause=id_):
        try:
            text = controls.do(command["do"], command.get("arguments", {}), id_)
            _log.info("command %s: %s", command["do"], text)
            answer = _answer(controls, id_, "done", text)
        except PpaError as error:
            _log.info("command %s failed", command["do"], exc_info=True)
            answer = _answer(controls, id_, "failed", error)
        except Exception as error:  # noqa: BLE001 - a failed command must not end the run
            _log.exception("command %s failed", command.get("do"))
            answer = _answer(controls, id_, "failed", error)
    report(answer)


def _answer(controls: Controls, id_: str, outcome: Any, text: str | Exception) -> CommandAnswered:
    if isinstance(text, Exception) and not isinstance(text, PpaError):
        text = f"{type(text).__name__}: {text}"
    return CommandAnswered(time.time(), controls.host.machine.head, id_, outcome, cut(text), cause=id_)
