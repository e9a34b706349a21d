"""A dashboard as its own process, and a viewer of it that is no browser: it sends and asks what it likes."""

from __future__ import annotations

import http.client
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from streamlit.proto.WidgetStates_pb2 import WidgetState
from websockets.sync.client import connect
from websockets.typing import Subprotocol

ROOT = Path(__file__).parents[2]
PATIENCE = 60.0
CLOSED = 0
_NO_HEADERS: Mapping[str, str] = {}


@dataclass(frozen=True)
class Dashboard:
    """A running one. `folder` is where it was started: the password's hash is found there."""

    port: int
    pid: int
    folder: Path

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.port}"

    def ask(
        self,
        path: str,
        method: str = "GET",
        body: Any = None,
        headers: Mapping[str, str] = _NO_HEADERS,
        host: str | None = None,
    ) -> tuple[int, dict[str, str], bytes]:
        """The status, headers and body of the answer to one plain request; CLOSED if it was lost with the connection."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        try:
            given = {"Host": self.host if host is None else host, **headers}
            chunked = given.get("Transfer-Encoding") == "chunked"
            with suppress(BrokenPipeError, ConnectionResetError):  # it may be answered before all was sent
                connection.request(method, path, body, given, encode_chunked=chunked)
            answer = connection.getresponse()
            return answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()
        except ConnectionResetError:
            return CLOSED, {}, b""
        finally:
            connection.close()

    def handshake(self, host: str, origin: str | None) -> int:
        """The status of the answer to a web socket's first request: 101 if it is opened."""
        lines = [
            "GET /_stcore/stream HTTP/1.1", f"Host: {host}", "Upgrade: websocket", "Connection: Upgrade",
            "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==", "Sec-WebSocket-Version: 13", "Sec-WebSocket-Protocol: streamlit",
            *([] if origin is None else [f"Origin: {origin}"]),
        ]  # fmt: skip
        with socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE) as plain:
            plain.sendall(("\r\n".join(lines) + "\r\n\r\n").encode())
            return int(plain.recv(4096).split(b" ", 2)[1])

    def processor_seconds(self) -> float:
        """What the server and its children have used so far."""
        return sum(map(_used, [self.pid, *_children(self.pid)]))

    def planning_seconds(self) -> float:
        """What the processes that plan for it have used so far."""
        return sum(map(_used, self.children()))

    def children(self) -> list[int]:
        return _children(self.pid)


def _used(pid: int) -> float:
    with suppress(OSError):
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")
    return 0.0


def _children(pid: int) -> list[int]:
    found = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        with suppress(OSError):
            found += [int(child) for child in (task / "children").read_text().split()]
    return found


@contextmanager
def dashboard(folder: Path, environment: Mapping[str, str], *options: str) -> Iterator[Dashboard]:
    """Started in a folder of its own, so that it finds nothing of this machine."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "streamlit", "run", str(ROOT / "app.py"), "--server.port", str(port), *options]
    own = {**os.environ, "PYTHONPATH": str(ROOT), "PPA_FOLDER": str(folder / ".ppa"), **environment}
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, cwd=folder, env=own, stdout=log, stderr=log)
    try:
        started = Dashboard(port, process.pid, folder)
        end = time.monotonic() + PATIENCE
        while True:
            with suppress(OSError, http.client.HTTPException):
                if started.ask("/_stcore/health")[0] == 200:
                    break
            assert process.poll() is None, (folder / "log").read_text()
            assert time.monotonic() < end, (folder / "log").read_text()
            time.sleep(0.1)
        yield started
    finally:
        process.terminate()
        process.wait(20)


class Viewer:
    """One session: what it was shown, and the ids of the widgets, panels and downloads on its page."""

    def __init__(self, server: Dashboard, page: str = "", query: str = "") -> None:
        where = f"ws://{server.host}/_stcore/stream"
        self._connection = connect(where, subprotocols=[Subprotocol("streamlit")], max_size=None)
        self._page, self._query = page, query
        self.session = ""
        self.widgets: dict[str, str] = {}
        self.panels: list[str] = []
        self.downloads: list[str] = []

    def __enter__(self) -> Viewer:
        self._socket = self._connection.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.__exit__(None, None, None)

    def send(self, message: BackMsg) -> None:
        self._socket.send(message.SerializeToString())

    def begin(self, *states: WidgetState, panel: str = "") -> None:
        """Have the page run, or one panel of it."""
        message = BackMsg()
        message.rerun_script.query_string = self._query
        message.rerun_script.page_name = self._page
        message.rerun_script.fragment_id = panel
        message.rerun_script.widget_states.widgets.extend(states)
        self.send(message)

    def shown(self, seconds: float = PATIENCE, until: str = "script_finished") -> str:
        """All that is shown until a run ends, or until the seconds are over."""
        texts, end = [], time.monotonic() + seconds
        while time.monotonic() < end:
            try:
                content = self._socket.recv(timeout=max(0.0, end - time.monotonic()))
            except TimeoutError:
                break
            assert isinstance(content, bytes)
            message = ForwardMsg()
            message.ParseFromString(content)
            texts.append(str(message))
            self._learn(message)
            if message.WhichOneof("type") == until and message.script_finished != ForwardMsg.FINISHED_EARLY_FOR_RERUN:
                break
        return "\n".join(texts)

    def run(self, *states: WidgetState, panel: str = "") -> str:
        self.begin(*states, panel=panel)
        return self.shown()

    def log_in(self, password: str) -> str:
        """Fill in the form and send it; answers what is shown then, also after the page has begun anew."""
        return self.run(
            WidgetState(id=self.widgets["Your name, for the audit log"], string_value="eve"),
            WidgetState(id=self.widgets["Operator's password"], string_value=password),
            WidgetState(id=self.widgets["Log in"], trigger_value=True),
        )

    def _learn(self, message: ForwardMsg) -> None:
        if message.WhichOneof("type") == "new_session":
            self.session = message.new_session.initialize.session_id or self.session
        if message.WhichOneof("type") == "auto_rerun":
            self.panels.append(message.auto_rerun.fragment_id)
        if message.WhichOneof("type") == "delta" and message.delta.WhichOneof("type") == "new_element":
            element = message.delta.new_element
            kind = element.WhichOneof("type")
            widget: Any = getattr(element, kind) if kind else None
            if element.download_button.deferred_file_id:
                self.downloads.append(element.download_button.deferred_file_id)
            if hasattr(widget, "id") and hasattr(widget, "label"):
                self.widgets[widget.label] = widget.id
