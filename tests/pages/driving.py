"""Driving a page as a user would, and a pipeline that answers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from streamlit.testing.v1 import AppTest

from monitoring.channel import Channel
from monitoring.connection import Address
from monitoring.records import RunKey
from monitoring.signing import Signer, Token

ROOT = Path(__file__).parents[2]
PASSWORD = "a long password"
KEY = "0123456789abcdef0123456789abcdef"


def opened(page: str, **query: str) -> AppTest:
    """A page, run by itself; `query` is what stands in the address."""
    test = AppTest.from_file(ROOT / "pages" / f"{page}.py", default_timeout=60)
    for key, value in query.items():
        test.query_params[key] = value
    return test.run()


def log_in(page: AppTest, password: str, name: str = "anna") -> AppTest:
    next(field for field in page.text_input if field.label.startswith("Your name")).set_value(name)
    next(field for field in page.text_input if field.label.startswith("Operator")).set_value(password)
    button = next(button for button in page.button if button.label == "Log in")
    return button.click().run()


def said(page: AppTest) -> str:
    """Everything that a page says as text, but for its tables and drawings."""
    assert not page.exception, page.exception
    kinds = (page.text, page.markdown, page.caption, page.error, page.warning, page.info, page.success, page.code)
    return "\n".join(str(element.value) for kind in kinds for element in kind)


def marked_up(page: AppTest) -> str:
    """Everything on a page that Streamlit renders as Markdown."""
    kinds = (page.markdown, page.caption, page.error, page.warning, page.info, page.success, page.subheader, page.title)
    texts = [str(element.value) for kind in kinds for element in kind]
    return "\n".join([*texts, *(f"{metric.label} {metric.value} {metric.delta}" for metric in page.metric)])


@contextmanager
def answering(address: Address, pipeline: RunKey, answer: Callable[[Token], tuple[str, str]]) -> Iterator[list[Token]]:
    """A pipeline that takes commands while the block runs; the commands that it took."""
    channel, stop, taken = Channel(address, pipeline, Signer(KEY.encode())), threading.Event(), list[Token]()

    def work() -> None:
        while not stop.is_set():
            for token in channel.poll():
                taken.append(token)
                channel.acknowledge(token.id, *answer(token))
            stop.wait(0.02)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield taken
    finally:
        stop.set()
        thread.join()
        channel.close()
