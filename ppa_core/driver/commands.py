"""Commands to a driver, one a line of its standard input, and their answers."""

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
Tell = Callable[[RunEvent], None]


def obey(commands: Callable[[], Command | None], controls: Controls, tell: Tell) -> None:
    """Carry out commands until there are no more, then stop the run.

    One with an id is taken first, in the order they come; without an id it is from the process that started this one.
    """
    while (command := commands()) is not None:
        id_ = command.get("id", "")
        try:
            if id_:
                controls.take(id_)
        except Exception as error:  # noqa: BLE001 - it must not end the looking for others
            _log.exception("command %s could not be taken", id_, extra={"cause": id_})
            tell(_answer(controls, id_, "failed", error))
            continue
        threading.Thread(target=_carry_out, args=(command, controls, tell), daemon=True).start()
    controls.host.stop()


def tell_numbers(controls: Controls, tell: Tell) -> None:
    """Once the ledger is read: which commands were carried out by the drivers before this one."""
    controls.host.begun.wait()
    tell(CommandNumbers(time.time(), controls.host.machine.head, dict(controls.carried_out)))


def _carry_out(command: Command, controls: Controls, tell: Tell) -> None:
    """In a thread of its own, for it may take a while."""
    id_ = command.get("id", "")
    with logs.about(cause=id_):
        try:
            text = controls.do(command["do"], command.get("arguments", {}), id_)
            _log.info("command %s: %s", command["do"], text)
            answer = _answer(controls, id_, "done", text)
        except PpaError as error:
            _log.info("command %s failed", command["do"], exc_info=True)
            answer = _answer(controls, id_, "failed", error)
        except Exception as error:  # noqa: BLE001 - a command that cannot be carried out must not end the run
            _log.exception("command %s failed", command.get("do"))
            answer = _answer(controls, id_, "failed", error)
    tell(answer)


def _answer(controls: Controls, id_: str, outcome: Any, text: str | Exception) -> CommandAnswered:
    if isinstance(text, Exception) and not isinstance(text, PpaError):
        text = f"{type(text).__name__}: {text}"
    return CommandAnswered(time.time(), controls.host.machine.head, id_, outcome, cut(text), cause=id_)
