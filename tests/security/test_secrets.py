"""Passwords: whatever is given wherever a url is taken, no output has it; and there is a way that `ps` does not show."""

from __future__ import annotations

import contextlib
import io
import json
import pickle
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import quote

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from redis import Redis

from monitoring.main import main as monitoring
from ppa_core.cli import main as ppa_core
from ppa_core.driver.config import Config
from ppa_core.driver.main import reported
from ppa_core.driver.records import PublishedOutput, Settings
from ppa_core.engine.run_events import JobFailed
from ppa_core.errors import BadInput, PpaError, Unavailable
from ppa_core.nodes.embedded import EmbeddedNodes, launch
from ppa_core.pipeline.definition import Pipeline
from ppa_core.pipeline.sinks import open_sink, read_sink
from ppa_core.pipeline.sources.redis_stream import RedisStream
from ppa_core.pipeline.sources.server import RedisServer
from ppa_core.process.driver import Driver
from ppa_core.safety.masking import masked
from ppa_core.settings import SINK_PASSWORD_VARIABLE, SOURCE_PASSWORD_VARIABLE
from tests.support.stored import EVERYTHING

SECRET = "hunter2SECRET"
SCHEMA = pa.schema({"word": pa.string()})


def broken(url: str = "", password: str = "") -> Pipeline:
    """As pipelines of users are: what they are given is in what they raise."""
    raise ValueError(f"cannot use {url}: {password}: port {url.partition('://:')[2].partition('@')[0]}")


PLACES: tuple[str, ...] = (
    "run tree --nodes-file {silent} --sink {url}#out",
    "run tree --nodes-file {silent} --sink {url}",
    "run tree --nodes-file {silent} --sink jsonl:/dev/null/{url}",
    "run tree --monitor-url {url} --nodes-file /nowhere",
    "run tree --nodes-file {url}",
    "run tree --nodes-file {nodes}",
    "run tests.support.live:from_stream --nodes-file /nowhere --set url={url}",
    "run tests.security.test_secrets:broken --nodes-file {silent} --set url={url}",
    "run tests.security.test_secrets:broken --nodes-file {silent} --set password={secret}",
    "run tree --nodes-file {silent} --set {url}",
    "run tree --nodes-file {silent} --set rate={url}",
    "run tree --nodes-file {silent} --set colour={url}",
    "run tree --nodes-file {silent} --master {url}",
    "run tree --nodes-file {silent} --master spark://{rest}",
    "run tree --nodes-file {silent} --name {url}",
    "run tree --nodes-file {silent} --rate {url}",
    "run tree --output /dev/null/{url} --nodes-file {silent}",
    "run {url} --nodes-file {silent}",
    "run tree {url} --nodes-file {silent}",
    "plan {url} --budget 1",
    "inspect redis-stream {url}#words",
    "inspect redis-stream {url} words",
    "inspect redis-stream {url}",
    "inspect csv {url}",
    "inspect csv /nowhere {url}",
    "{url}",
)
MONITORED = (
    "status",
    "tail --no-follow",
    "send pause",
    "serve",
    "report --incident last --json",
    "{url}",
    "status --pipeline {url}",
)
FORMS = (
    "redis://:{secret}@127.0.0.1:1", "redis://me:{secret}@127.0.0.1:1/0", "rediss://:{secret}@127.0.0.1:1",
    "redis://127.0.0.1:1?password={secret}", "unix:///nowhere?password={secret}", "redis://:{secret}@[::1", "redis://:{secret}@:x",
    "redis://:{secret}@127.0.0.1:1/x?y=z", "http://:{secret}@127.0.0.1:1", "redis://:{secret}@host.invalid:1" + "/" * 60,
)  # fmt: skip
odd = st.text(st.sampled_from("/#?@:%&=[]\\'\"$*. é\t"), max_size=3)


def outcome(main: Callable[[list[str]], int], words: list[str]) -> str:
    """All that a command prints; it does not end in a traceback."""
    told = io.StringIO()
    with contextlib.redirect_stdout(told), contextlib.redirect_stderr(told):
        code = ended(main, words)
    assert code in (1, 2), words
    return told.getvalue()


def ended(main: Callable[[list[str]], int], words: list[str]) -> object:
    try:
        return main(words)
    except SystemExit as end:
        return end.code


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    node = {"name": "a", "rack": "r", "role": "primary", "url": "redis://127.0.0.1:1"}
    (tmp_path / "silent").write_text(json.dumps({"nodes": [node]}))
    (tmp_path / "silent").chmod(0o600)
    return {"silent": str(tmp_path / "silent"), "nodes": str(tmp_path / "nodes")}


@pytest.mark.parametrize("place", PLACES)
@given(form=st.sampled_from(FORMS), before=odd, after=odd)
@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_command_prints_a_password(files: dict[str, str], place: str, form: str, before: str, after: str) -> None:
    secret = before + SECRET + after
    url = form.format(secret=secret)
    node = {"name": "a", "rack": "r", "role": "primary", "url": url}
    Path(files["nodes"]).write_text(json.dumps({"nodes": [node]}))
    Path(files["nodes"]).chmod(0o600)
    rest = url.partition("://")[2]
    told = outcome(ppa_core, [word.format(url=url, secret=secret, rest=rest, **files) for word in place.split()])
    assert told
    assert SECRET not in told


@pytest.mark.parametrize("place", MONITORED)
@given(form=st.sampled_from(FORMS), before=odd, after=odd)
@settings(max_examples=4, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_command_of_the_monitor_prints_a_password(
    place: str, form: str, before: str, after: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = form.format(secret=before + SECRET + after)
    monkeypatch.setenv("PPA_MONITOR_URL", url)
    told = outcome(monitoring, [word.format(url=url) for word in place.split()])
    assert told
    assert SECRET not in told


def test_urls_are_masked_and_examples_and_addresses_stay() -> None:
    assert (
        masked("redis://me:x@h:1 and rediss://:y@i/0?password=z&db=1")
        == "redis://***@h:1 and rediss://***@i/0?password=***&db=1"
    )
    assert masked("redis://:cut off here") == "redis://*** off here"
    for plain in ("redis://h:6379#key", "write redis://:password@host:6379", "tree@run1", "spark://HOST:PORT", "unix:///a/b"):
        assert masked(plain) == plain
    error = BadInput(f"redis://:{SECRET}@h", f"at redis://:{SECRET}@h")
    assert SECRET not in f"{error} {error.place} {error.reason} {pickle.loads(pickle.dumps(error))}"
    assert SECRET not in str(Unavailable(f"redis://a:{SECRET}@h"))
    assert SECRET not in str(PpaError(f"redis://a:{SECRET}@h"))
    event = reported(JobFailed(1.0, 1, f"redis://:{SECRET}@h"), detailed=True)
    assert event is not None
    assert SECRET not in str(event)


# --- ways that nobody else sees


@pytest.fixture(scope="module")
def server() -> Iterator[EmbeddedNodes]:
    with launch(1, 0, 1, 32, EVERYTHING) as running:
        yield running


@pytest.fixture
def bare(server: EmbeddedNodes) -> tuple[str, str]:
    """The url of a real server without its password, and the password."""
    node = server.cluster["n1"]
    password = str(node.password)
    found = re.sub(r":[^:@/]*@", "@", node.url)
    assert password not in found
    return found, password


def write_and_read(sink: str) -> None:
    opened = open_sink(sink)
    opened(PublishedOutput(0, 1, "accurate", 1.0, (), pa.table({"n": [1]}), 1.0))
    opened.close()
    assert [record.batch for record in read_sink(sink)] == [0]


def test_a_sink_takes_its_password_from_a_private_file(bare: tuple[str, str], tmp_path: Path) -> None:
    url, password = bare
    path = tmp_path / "a file #1"
    path.touch(mode=0o600)
    path.write_text(password + "\n")
    mark = "&" if "?" in url else "?"
    sink = f"{url}{mark}password-file={quote(str(path))}#out-file"
    write_and_read(sink)
    path.chmod(0o644)
    with pytest.raises(BadInput, match="others can read or change it; make it private with chmod 600"):
        open_sink(sink)
    path.chmod(0o600)
    path.write_text("\n")
    with pytest.raises(BadInput, match="first line is empty"):
        open_sink(sink)
    path.unlink()
    with pytest.raises(BadInput, match="cannot be read"):
        open_sink(sink)


def test_sinks_and_sources_take_theirs_from_the_environment_and_not_each_others(
    bare: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    url, password = bare
    with pytest.raises(PpaError, match=r"(?i)password|auth"):
        open_sink(f"{url}#out")
    monkeypatch.setenv(SINK_PASSWORD_VARIABLE, password)
    write_and_read(f"{url}#out")
    stream = RedisStream(RedisServer(url), "words", SCHEMA, 1)
    with pytest.raises(PpaError):
        stream.seal(0)
    monkeypatch.delenv(SINK_PASSWORD_VARIABLE)
    monkeypatch.setenv(SOURCE_PASSWORD_VARIABLE, password)
    stream = RedisStream(RedisServer(url), "words", SCHEMA, 1)
    assert stream.seal(0)
    assert password not in repr(stream)
    monkeypatch.delenv(SOURCE_PASSWORD_VARIABLE)
    assert pickle.loads(pickle.dumps(stream)).refused_so_far() == 0, "a worker on another machine has no such variable"
    with Redis.from_url(stream.server.url) as client:
        client.delete("out", "words", stream._marks)


@pytest.mark.parametrize("password", ["a/b#c?d@e:f", "%41%2541", "é ü", "'\"\\"])
def test_any_password_in_a_file_is_the_one_that_is_sent(password: str, tmp_path: Path) -> None:
    (tmp_path / "p").touch(mode=0o600)
    (tmp_path / "p").write_text(password)
    for url in (
        "redis://host:1/0?db=0&password-file={}",
        "unix://me@/path?password-file={}&db=0",
        "rediss://me@host?password-file={}",
    ):
        server = RedisServer(url.format(quote(str(tmp_path / "p"))))
        with Redis.from_url(server.url) as client:
            assert client.connection_pool.connection_kwargs["password"] == password
        assert SECRET not in repr(server)
    with pytest.raises(BadInput, match="already contains a password"):
        RedisServer(f"redis://:x@host?password-file={tmp_path / 'p'}")


@pytest.mark.parametrize(
    ("words", "remedy"),
    [
        ("run tree --nodes-file {silent} --sink redis://:{secret}@127.0.0.1:1#k", "set PPA_SINK_PASSWORD, or put it into"),
        ("run tree --nodes-file {silent} --monitor-url redis://:{secret}@127.0.0.1:1", "set PPA_MONITOR_URL"),
        ("run tree --nodes-file {silent} --set url=redis://:{secret}@127.0.0.1:1", "set PPA_SOURCE_PASSWORD"),
        ("run tree --nodes-file {silent} --set api_token={secret}", "every user of this machine can see"),
        ("inspect redis-stream redis://127.0.0.1:1?password={secret}#k", "set PPA_SOURCE_PASSWORD"),
    ],
)
def test_a_password_on_the_command_line_is_warned_of_with_the_remedy(words: str, remedy: str, files: dict[str, str]) -> None:
    told = outcome(ppa_core, words.format(secret=SECRET, **files).split())
    assert remedy in told
    assert SECRET not in told
    assert "warning" not in outcome(ppa_core, f"run tree --nodes-file {files['silent']} --sink redis://127.0.0.1:1#k".split())


def test_what_a_driver_is_given_stands_on_no_command_line_and_in_no_representation(tmp_path: Path) -> None:
    url = f"redis://:{SECRET}@127.0.0.1:1"
    config = Config("tree", {"url": url}, (), (), Settings(), "run", tmp_path, sinks=(f"{url}#k",), owner=SECRET)
    assert SECRET not in repr(config)
    with Driver(config) as driver:
        place = Path(f"/proc/{driver.process.pid}")
        assert b"ppa_core.driver.main" in (place / "cmdline").read_bytes()
        assert SECRET.encode() not in (place / "cmdline").read_bytes() + (place / "environ").read_bytes()
