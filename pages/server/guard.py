"""Checks every request to the dashboard first (allowed host, size of the body), and sets the security headers of responses."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import re
from base64 import b64encode
from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import streamlit as st
from streamlit.proto.BackMsg_pb2 import BackMsg

from pages.server.hosts import Hosts, configured
from pages.server.uploads import UPLOADS

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Message, Receive, Send], Awaitable[None]]
Headers = list[tuple[bytes, bytes]]

MOST_BODY = 64 << 10
"""Bytes in the body of a request that is not an upload; `server.maxUploadSize` limits uploads."""
_UPLOAD = re.compile(r"/_stcore/upload_file/([^/]+)/([^/]+)$")
_UPLOAD_SECONDS = 60.0
# The messages that pages need. Others could clear the caches of all sessions, read this folder's git state or install files.
_MESSAGES = {"rerun_script", "stop_script", "app_heartbeat", "file_urls_request", "backend_operation_request"}
_OPERATIONS = {None, "deferred_file", "dataframe_chunk"}
_LOG = logging.getLogger(__name__)

# Scripts: only Streamlit's files and those in its page, none inline and no eval. Inline styles are allowed, because Streamlit
# creates them. No requests to other servers, no frames in either direction, no form submissions.
_POLICY = (
    "default-src 'none'; script-src 'self'{scripts}; style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; "
    "font-src 'self' data:; connect-src 'self' ws://{host} wss://{host}; frame-ancestors 'none'; base-uri 'none'; "
    "form-action 'none'"
)


class Guard:
    """The ASGI middleware. The allowed hosts are read from the server's settings at the first request."""

    def __init__(self, app: Application) -> None:
        self._app = app
        self._hosts: Hosts | None = None
        self._scripts = _own_scripts()

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        self._hosts = self._hosts or configured()
        hosts = _values(scope, b"host")
        refusal = self._hosts.refusal(hosts, _values(scope, b"origin"))
        if scope["type"] == "websocket":
            if refusal:
                await send({"type": "websocket.close", "code": 1008})  # not accepted yet: the browser gets 403
            else:
                await self._app(scope, partial(_expected, receive), send)
            return
        answer = _Answer(send, self._headers("" if refusal else hosts[0]))
        try:
            if refusal:
                await answer.respond(403, refusal)
            elif match := _UPLOAD.search(scope["path"]):
                await self._upload(match[1], match[2], scope, receive, answer)
            elif scope["path"].rstrip("/").endswith("/_stcore/metrics"):
                await answer.respond(
                    404, "There are no metrics here; `python -m monitoring serve-metrics` serves the metrics of pipelines.\n"
                )
            elif _large(scope):
                await answer.respond(413, "The request is too large.\n")
            else:
                await self._app(scope, receive, answer.send)
        except Exception:
            if answer.begun:
                raise
            _LOG.exception("a request failed")
            await answer.respond(500, "This request failed.\n")

    async def _upload(self, session: str, file: str, scope: Message, receive: Receive, answer: _Answer) -> None:
        if scope["method"] != "PUT":
            await self._app(scope, receive, answer.send)
        elif not UPLOADS.may(session):
            await answer.respond(
                403, "This session may not upload: open the page with the upload field, and log in if asked.\n"
            )
        elif not UPLOADS.begin():
            await answer.respond(503, "Too many uploads at the same time; try again in a moment.\n")
        else:
            try:
                async with asyncio.timeout(_UPLOAD_SECONDS):
                    await self._app(scope, receive, answer.send)
            except TimeoutError:
                with suppress(RuntimeError):
                    await answer.respond(408, "The upload timed out.\n")
            finally:
                UPLOADS.end(session, file)

    def _headers(self, host: str) -> Headers:
        policy = _POLICY.format(scripts=self._scripts, host=host) if host else "default-src 'none'; frame-ancestors 'none'"
        return [
            (b"content-security-policy", policy.encode("ascii")),
            (b"x-frame-options", b"DENY"),
            (b"x-content-type-options", b"nosniff"),
            (b"referrer-policy", b"no-referrer"),
            (b"cross-origin-opener-policy", b"same-origin"),
            (b"cross-origin-resource-policy", b"same-origin"),
        ]


class _Answer:
    """The response to one request, with headers that the application cannot omit or change."""

    def __init__(self, send: Send, headers: Headers) -> None:
        self._send, self._headers = send, headers
        self.begun = False

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.begun = True
            ours = {name for name, _ in self._headers}
            others = [(name, value) for name, value in message.get("headers", ()) if name.lower() not in ours]
            message = {**message, "headers": [*others, *self._headers]}
        await self._send(message)

    async def respond(self, status: int, text: str) -> None:
        body = text.encode()
        size = str(len(body)).encode()
        headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"content-length", size), (b"connection", b"close")]
        await self.send({"type": "http.response.start", "status": status, "headers": headers})
        await self.send({"type": "http.response.body", "body": body})


async def _expected(receive: Receive) -> Message:
    """The next allowed message of a browser; others are dropped. Streamlit itself refuses messages that cannot be parsed."""
    while True:
        message = await receive()
        if message["type"] != "websocket.receive" or not (content := message.get("bytes")):
            return message
        asked = BackMsg()
        try:
            asked.ParseFromString(content)
        except Exception:  # noqa: BLE001 - protobuf raises various errors
            _LOG.debug("a browser sent an invalid message", exc_info=True)
        kind = asked.WhichOneof("type")
        if kind is None or (kind in _MESSAGES and asked.backend_operation_request.WhichOneof("payload") in _OPERATIONS):
            return message


def _values(scope: Message, name: bytes) -> list[str]:
    return [value.decode("latin-1") for key, value in scope["headers"] if key == name]


def _large(scope: Message) -> bool:
    """Whether the body is too large, or its size is not known in advance."""
    sizes = _values(scope, b"content-length")
    known = all(size.isdecimal() and len(size) < 20 and int(size) <= MOST_BODY for size in sizes)
    return not known or bool(_values(scope, b"transfer-encoding"))


def _own_scripts() -> str:
    """The inline scripts of Streamlit's own page, as hashes for the content security policy."""
    page = (Path(st.__file__).parent / "static" / "index.html").read_text(encoding="utf-8")
    found = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    return "".join(f" 'sha256-{b64encode(hashlib.sha256(each.encode()).digest()).decode()}'" for each in found)
