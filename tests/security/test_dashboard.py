"""Attacks on the dashboard: by a page of another site, by someone on the network before login, by one whose login ended."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.Common_pb2 import FileUploaderState
from streamlit.proto.WidgetStates_pb2 import WidgetState

from monitoring.access import hash_password, write_hash
from monitoring.connection import URL_VARIABLE
from monitoring.recorded import record
from monitoring.records import PipelineInfo
from monitoring.server import start
from ppa_core.errors import TopologyError
from ppa_core.topology import Build, dumps
from tests.pages import recording
from tests.security.viewing import CLOSED, Dashboard, Viewer, dashboard

PASSWORD = "a long password"
TOO_LARGE = (413, CLOSED)
NOWHERE = {URL_VARIABLE: "redis://127.0.0.1:1"}
PATHS = (
    "/", "/live", "/what-if", "/_stcore/health", "/_stcore/host-config", "/_stcore/metrics", "/_stcore/agent/openapi.json",
    "/media/x.json", "/component/x/y.js", "/_stcore/bidi-components/x/y.js", "/static/js/x.js", "/favicon.png", "/nothing",
)  # fmt: skip
EVIL = (
    "evil.example", "evil.example:{port}", "localhost.evil.example", "127.0.0.1.evil.example", "evil.example@127.0.0.1:{port}",
    "127.0.0.1:x", "10.0.0.1:{port}", "[::2]:{port}", "", "localhost/", "0.0.0.0:{port}",
)  # fmt: skip


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dashboard]:
    """On loopback, as `make app` starts it, without a monitor; a password is set."""
    folder = tmp_path_factory.mktemp("local")
    write_hash(hash_password(PASSWORD), folder / ".ppa/operator.hash")
    with dashboard(folder, NOWHERE) as started:
        yield started


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dashboard]:
    """Open to others, for it answers to a name of the network; with a monitor that knows a run with an incident."""
    folder = tmp_path_factory.mktemp("shared")
    write_hash(hash_password(PASSWORD), folder / ".ppa/operator.hash")
    with start(tmp_path_factory.mktemp("monitor") / "m") as server:
        record(server.address, recording.script("secret", recording.CLOSED))
        own = {URL_VARIABLE: server.address.current()}
        with dashboard(folder, own, "--server.allowedHosts", "dash.example") as started:
            yield started


# ---------------------------------------------------------------------------------------------------- pages of other sites


@pytest.mark.parametrize("path", PATHS)
def test_request_by_a_name_that_was_rebound_is_refused_everywhere(local: Dashboard, path: str) -> None:
    for host in EVIL:
        status, _, body = local.ask(path, host=host.format(port=local.port))
        assert status in (400, 403), host
        assert b"<html" not in body
    for host in (local.host, f"localhost:{local.port}", f"LOCALHOST.:{local.port}", f"[::1]:{local.port}", "localhost:80"):
        assert local.ask(path, host=host)[0] in (200, 307, 404), host  # a tunnel has another port here than there


@pytest.mark.parametrize("path", PATHS)
def test_request_from_a_page_of_another_site_is_refused_everywhere(local: Dashboard, path: str) -> None:
    for origin in (
        "http://evil.example",
        "null",
        f"http://localhost:{local.port + 1}",
        f"http://127.0.0.1:{local.port}@evil.example",
    ):
        for method in ("GET", "OPTIONS", "POST", "PUT", "DELETE"):
            assert local.ask(path, method, headers={"Origin": origin})[0] == 403, (method, origin)
    assert local.ask(path, headers={"Origin": f"http://{local.host}"})[0] in (200, 307, 404)


def test_web_socket_is_opened_by_pages_of_this_server_alone(local: Dashboard) -> None:
    port = local.port
    for host in EVIL:
        named = host.format(port=port)
        assert local.handshake(named, f"http://{named}") in (400, 403), host
    for origin in ("http://evil.example", f"http://localhost:{port + 1}", "null", "http://0.0.0.0", "http://127.0.0.1"):
        assert local.handshake(local.host, origin) == 403, origin
    for host in (local.host, f"localhost:{port}", f"[::1]:{port}"):
        assert local.handshake(host, f"http://{host}") == 101
    assert local.handshake(local.host, None) == 101  # no browser


def test_name_that_is_allowed_is_answered_and_its_neighbours_are_not(shared: Dashboard) -> None:
    assert shared.ask("/", host="dash.example")[0] == 200
    assert shared.handshake("dash.example", "https://dash.example") == 101
    assert shared.handshake(shared.host, "https://dash.example") == 403
    for host in ("dash.example.evil.example", "xdash.example", "evil.dash.example", "dash.examples"):
        assert shared.ask("/", host=host)[0] == 403
        assert shared.handshake(host, f"https://{host}") == 403


@pytest.mark.parametrize("path", PATHS)
def test_every_answer_forbids_frames_and_foreign_scripts(local: Dashboard, path: str) -> None:
    for host in (local.host, "evil.example"):
        _, headers, _ = local.ask(path, host=host)
        policy = dict(part.strip().split(" ", 1) for part in headers["content-security-policy"].split(";"))
        assert policy["frame-ancestors"] == policy["default-src"] == "'none'"
        assert "unsafe" not in policy.get("script-src", "")
        assert not re.search(r"\*|https?:", headers["content-security-policy"])
        assert headers["x-frame-options"] == "DENY"
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"


# --------------------------------------------------------------------------------------------------------- what it takes


class Uploader:
    """Uploads as a browser does, for a session that a viewer has."""

    def __init__(self, server: Dashboard) -> None:
        cookie = server.ask("/_stcore/health")[1]["set-cookie"].split(";")[0]
        self._server, self._headers = server, {"Cookie": cookie, "X-Xsrftoken": cookie.partition("=")[2]}

    def put(self, session: str, file: str, content: bytes, chunked: bool = False) -> int:
        head = b'--b\r\nContent-Disposition: form-data; name="f"; filename="f.json"\r\n\r\n'
        body = head + content + b"\r\n--b--\r\n"
        headers = {**self._headers, "Content-Type": "multipart/form-data; boundary=b"}
        path = f"/_stcore/upload_file/{session}/{file}"
        if not chunked:
            return self._server.ask(path, "PUT", body, headers)[0]
        parts = (body[i : i + 65_536] for i in range(0, len(body), 65_536))
        return self._server.ask(path, "PUT", parts, {**headers, "Transfer-Encoding": "chunked"})[0]


def uploaded(viewer: Viewer, file: str) -> WidgetState:
    """The page's state once that file was uploaded."""
    state = FileUploaderState()
    info = state.uploaded_file_info.add()
    info.file_id, info.name, info.size = file, "f.json", 1
    return WidgetState(id=viewer.widgets["Topology file"], file_uploader_state_value=state)


def resident(pid: int) -> int:
    found = re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())
    assert found
    return int(found[1]) << 10


def test_uploads_are_small_few_and_only_where_a_page_asks_for_one(local: Dashboard) -> None:
    files = Uploader(local)
    with Viewer(local, "planners", "source=example+topology") as viewer:
        viewer.begin()
        while "script_finished" not in viewer.shown(1.0):
            pass
        assert files.put(viewer.session, "one", b"{}") == 403
    with Viewer(local, "planners", "source=file") as viewer:
        viewer.run()
        assert files.put(viewer.session, "one", b"{}") == 204
        assert files.put("another-session", "one", b"{}") == 403
        assert files.put(viewer.session, "large", b" " * (3 << 20)) in TOO_LARGE
        assert files.put(viewer.session, "large", b" " * (20 << 20), chunked=True) in TOO_LARGE
        before = resident(local.pid)
        for i in range(40):
            assert files.put(viewer.session, f"file-{i}", bytes([i]) * 2_000_000) == 204
        assert resident(local.pid) - before < 50 << 20
    for path in ("/", "/_stcore/health", "/_stcore/host-config"):
        assert local.ask(path, "POST", b" " * 100_000)[0] in TOO_LARGE
        assert local.ask(path, "POST", iter([b"x"]), {"Transfer-Encoding": "chunked"})[0] in TOO_LARGE


def test_a_few_bytes_that_ask_for_a_million_tasks_are_refused_at_once(local: Dashboard) -> None:
    operators = '{"name":"S","tasks":499999,"rate":1},{"name":"O","tasks":499999}'
    bomb = f'{{"operators":[{operators}],"edges":[{{"from":"S","to":"O","partitioning":"one-to-one"}}]}}'.encode()
    with Viewer(local, "planners", "source=file") as viewer:
        viewer.run()
        assert Uploader(local).put(viewer.session, "bomb", bomb) == 204
        before = local.processor_seconds()
        assert "999998 tasks in all; the limit here is 20000" in viewer.run(uploaded(viewer, "bomb"))
        assert local.processor_seconds() - before < 3.0


@pytest.mark.slow
def test_planning_ends_with_its_viewer(local: Dashboard) -> None:
    wide = Build("wide").source("S", 6_000, rate=1, external=True).operator("A", 6_000, {"S": "full"})
    large = wide.operator("B", 6_000, {"A": "full"}).operator("C", 1_000, {"B": "full"}).done()
    with Viewer(local, "planners", "source=file") as viewer:
        viewer.run()
        assert Uploader(local).put(viewer.session, "large", dumps(large).encode()) == 204
        idle = local.planning_seconds()
        viewer.begin(uploaded(viewer, "large"))
        end = time.monotonic() + 60
        while local.planning_seconds() - idle < 0.5 and time.monotonic() < end:
            time.sleep(0.05)
        assert local.planning_seconds() - idle >= 0.5
    end = time.monotonic() + 30
    while local.children() and time.monotonic() < end:
        time.sleep(0.1)
    assert not local.children()
    before = local.processor_seconds()
    time.sleep(3.0)
    assert local.processor_seconds() - before < 1.5


# ------------------------------------------------------------------------------------------------------------------ login


@pytest.mark.parametrize("page", ["", "what-if", "planners", "failover", "incidents", "spark"])
def test_nothing_is_shown_or_taken_before_login_where_others_can_come(shared: Dashboard, page: str) -> None:
    with Viewer(shared, page, "source=file") as viewer:
        told = viewer.run()
        assert "reached from other machines" in told
        assert "tree@secret" not in told
        assert not viewer.panels
        assert set(viewer.widgets) == {"Your name, for the audit log", "Operator's password", "Log in"}
        assert Uploader(shared).put(viewer.session, "one", b"{}") == 403


def test_wrong_passwords_of_one_do_not_keep_another_out(shared: Dashboard) -> None:
    with Viewer(shared) as thief, Viewer(shared) as operator:
        thief.run()
        answers = [thief.log_in("wrong") for _ in range(8)]
        assert all("Wrong password." in each for each in answers[:5])
        assert "Too many attempts." in answers[7]
        operator.run()
        assert "tree@secret" in operator.log_in(PASSWORD)


def test_messages_that_no_page_needs_are_dropped(shared: Dashboard) -> None:
    with Viewer(shared) as viewer:
        viewer.run()
        viewer.log_in(PASSWORD)
        for message in (BackMsg(clear_cache=True), BackMsg(load_git_info=True), BackMsg(debug_shutdown_runtime=True)):
            viewer.send(message)
        told = viewer.run()
        assert "tree@secret" in told  # clearing the caches would have ended the login
        assert "git_info" not in told


def test_session_sees_nothing_more_after_the_password_was_changed(shared: Dashboard) -> None:
    try:
        with Viewer(shared) as live, Viewer(shared, "incidents") as incidents:
            for viewer in (live, incidents):
                viewer.run()
                assert "tree@secret" in viewer.log_in(PASSWORD)
                assert viewer.panels
            assert "Output fidelity" in live.run(panel=live.panels[-1])
            assert "/media/" in ask_report(incidents)
            write_hash(hash_password("another password"), shared.folder / ".ppa/operator.hash")
            assert "/media/" not in ask_report(incidents)
            told = live.run(panel=live.panels[-1]) + live.shown(3.0)
            assert "Output fidelity" not in told
            assert "reached from other machines" in told
            for viewer in (live, incidents):
                told = viewer.run()
                assert "tree@secret" not in told
                assert "reached from other machines" in told
    finally:
        write_hash(hash_password(PASSWORD), shared.folder / ".ppa/operator.hash")


def ask_report(viewer: Viewer) -> str:
    """Ask for the report of an incident, as the button does; answers what comes."""
    message = BackMsg()
    request = message.backend_operation_request
    request.request_id, request.session_id = "1", viewer.session
    request.deferred_file.file_id = viewer.downloads[-1]
    viewer.send(message)
    return viewer.shown(until="backend_operation_response")


# -------------------------------------------------------------------------------------------------- what is in the monitor


def test_topology_of_too_many_tasks_in_the_monitor_is_refused_before_it_is_made() -> None:
    operators = [{"name": f"O{i}", "tasks": 10_000, "rate": 1} for i in range(100)]
    info = PipelineInfo("tree", "r", "q", {"operators": operators}, (), 0.0, 1.0)
    before = time.process_time()
    with pytest.raises(TopologyError, match="1000000 tasks in all; the limit here is 20000"):
        info.load_topology()
    assert time.process_time() - before < 1.0
