"""Hostile names of runs, and links that others plant: nothing outside is ever removed, made or written to."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import DecodeError
from redis import Redis

from monitoring.server import start
from ppa_core.cli import main
from ppa_core.driver.config import Config
from ppa_core.driver.output_log import OutputLog
from ppa_core.driver.records import PublishedOutput, Settings
from ppa_core.errors import BadInput
from ppa_core.nodes.embedded import EmbeddedNodes, launch
from ppa_core.nodes.store import Store
from ppa_core.pipeline.definition import Pipeline
from ppa_core.pipeline.sinks import open_sink
from ppa_core.pipeline.sources.files import Files, open_files
from ppa_core.pipeline.sources.live import of_run, passing_run
from ppa_core.pipeline.sources.redis_stream import RedisStream
from ppa_core.pipeline.sources.server import RedisServer
from ppa_core.placement.nodes import Node
from ppa_core.safety.names import TAKEN, check_run
from ppa_core.safety.owned import MARKER, make, temporary, written_whole
from tests.support.live import from_files
from tests.support.stored import EVERYTHING

ROOT = Path(__file__).parents[2]
PARTS = ["..", ".", "/", "\\", "a", "in", "victim", "*", "?", "[a]", ":", "~", "\n", "\0", "\ud800", "é", "%2e", " ", "-"]
HOSTILE = [
    "",
    ".",
    "..",
    "/",
    "../victim",
    "a/..",
    "./a",
    ".hidden",
    "a/b",
    "..\\x",
    "*",
    "a:b",
    "a\n",
    "a\0",
    "\uff0e\uff0e",
    "x" * 101,
]
names = st.one_of(st.sampled_from([*HOSTILE, *TAKEN]), st.lists(st.sampled_from(PARTS), max_size=6).map("".join), st.text())


@pytest.fixture
def world(tmp_path: Path) -> Path:
    """An input folder, and beside it a folder that is nobody's business."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.csv").write_text("word\nto\nbe\n")
    (tmp_path / "victim" / "deep").mkdir(parents=True)
    (tmp_path / "victim" / "deep" / "precious").write_text("do not touch\n")
    from_files(str(tmp_path / "in"))  # it notes the columns
    return tmp_path


def everything(folder: Path) -> dict[str, bytes]:
    """All that is in a folder."""
    found = {}
    for path in sorted(folder.rglob("*")):
        content = bytes(path.readlink()) if path.is_symlink() else path.read_bytes() if path.is_file() else b"folder"
        found[str(path.relative_to(folder))] = content
    return found


def refused(call: Callable[[], object]) -> bool:
    try:
        call()
    except BadInput:
        return True
    return False


SCHEMA = pa.schema({"word": pa.string()})
STREAM = RedisStream(RedisServer("redis://127.0.0.1:1"), "words", SCHEMA, 2)
NODE = Node("n1", "r1", "primary", "redis://127.0.0.1:1")


def decoded(config: Config, name: str) -> None:
    """A name out of a config's JSON; half of a surrogate pair cannot stand there at all."""
    try:
        Config.decode(config.encode().replace('"plain"', json.dumps(name)))
    except DecodeError:
        check_run(name)


def layers(world: Path, files: Files, name: str) -> list[Callable[[], object]]:
    """Every way by which a name becomes a path or a key."""
    pipeline = Pipeline("words").source("in", 2, files)
    config = Config("tree", {}, (NODE,), (), Settings(), "plain", world / "out")

    def pass_by() -> None:
        with passing_run(pipeline, name):
            pass

    return [
        lambda: check_run(name),
        lambda: of_run(pipeline, name),
        lambda: files.named(name),
        lambda: STREAM.named(name),
        lambda: Store(NODE, name).close(),
        lambda: replace(config, run_id=name),
        lambda: replace(config, input=name) if name else check_run(name),
        lambda: decoded(config, name),
        pass_by,
    ]


@given(names)
@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_name_is_refused_everywhere_or_stays_inside_and_leaves_nothing(world: Path, name: str) -> None:
    before = everything(world)
    said = {refused(call) for call in layers(world, open_files(world / "in", "csv", 2, SCHEMA), name)}
    assert len(said) == 1, "one rule for all"
    assert everything(world) == before
    if said == {False}:
        assert re.fullmatch(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,99}", name)
        assert name not in TAKEN
        assert (world / name).parent == world
        assert (world / name).resolve().parent == world.resolve()


@given(names)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_the_command_line_refuses_hostile_names_before_anything_is_done(world: Path, name: str) -> None:
    if not refused(lambda: check_run(name)):
        return
    before = everything(world)
    folder, out = world / "in", world / "out"
    for command in ("run", "serve"):
        words = [
            command,
            "tests.support.live:from_files",
            "--set",
            f"folder={folder}",
            f"--name={name}",
            "--sink",
            f"jsonl:{out}",
        ]
        with pytest.raises(SystemExit, match="2"):
            main(words)
    assert everything(world) == before


@pytest.mark.parametrize("name", ["{world}/victim", ".."])
def test_the_names_that_once_deleted_folders_are_refused_in_one_line(
    world: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    before = everything(world)
    with pytest.raises(SystemExit, match="2"):
        main(["run", "tests.support.live:from_files", "--set", f"folder={world}/in", "--name", name.format(world=world)])
    told = capsys.readouterr().err
    assert "a name must have 1 to 100 letters" in told
    assert len(told.splitlines()) == 1
    assert everything(world) == before


# --- only what a run made is removed


def test_a_run_removes_the_folder_that_it_made_and_no_other(world: Path) -> None:
    pipeline = from_files(str(world / "in"))
    before = everything(world)
    with passing_run(pipeline, "mine"):
        assert (world / "in/.ppa/mine" / MARKER).is_file()
        (source,) = [each.source for each in of_run(pipeline, "mine").operators if each.source is not None]
        assert source.seal(0)  # type: ignore[attr-defined]
    assert everything(world) == before
    (world / "in/.ppa/mine").mkdir()
    (world / "in/.ppa/mine/batch-000000000.json").write_text("{}")
    before = everything(world)
    with pytest.raises(BadInput, match="seals of another run of that name"), passing_run(pipeline, "mine"):
        pytest.fail("it has begun")
    assert everything(world) == before


def test_two_sources_of_one_folder_share_what_is_begun(world: Path) -> None:
    files = open_files(world / "in", "csv", 2)
    pipeline = Pipeline("twice").source("a", 2, files).source("b", 2, files)
    with passing_run(pipeline, "mine"):
        assert (world / "in/.ppa/mine").is_dir()
    assert not (world / "in/.ppa/mine").exists()


@pytest.mark.parametrize("target", ["victim", "nowhere"])
def test_a_link_in_the_runs_place_is_neither_followed_nor_removed(world: Path, target: str) -> None:
    (world / "in/.ppa/mine").symlink_to(world / target)
    before = everything(world)
    with pytest.raises(BadInput, match="choose another name"), passing_run(from_files(str(world / "in")), "mine"):
        pytest.fail("it has begun")
    assert everything(world) == before


def swap_for_link(folder: Path, victim: Path) -> None:
    folder.rename(folder.with_name("moved"))
    folder.symlink_to(victim)


def swap_for_folder(folder: Path, victim: Path) -> None:
    folder.rename(folder.with_name("moved"))
    victim.rename(folder)


def swap_with_a_copied_marker_that_lies(folder: Path, victim: Path) -> None:
    (victim / MARKER).write_text((folder / MARKER).read_text().replace('"token": "', '"token": "0'))
    swap_for_folder(folder, victim)


def swap_for_a_linked_marker(folder: Path, victim: Path) -> None:
    moved = folder.with_name("moved")
    (victim / MARKER).symlink_to(moved / MARKER)
    folder.rename(moved)
    victim.rename(folder)


@pytest.mark.parametrize(
    "swap", [swap_for_link, swap_for_folder, swap_with_a_copied_marker_that_lies, swap_for_a_linked_marker]
)
def test_what_takes_the_place_of_a_runs_folder_meanwhile_stays(world: Path, swap: Callable[[Path, Path], None]) -> None:
    owned = make(world / "mine", "a test")
    swap(world / "mine", world / "victim")
    before = everything(world)
    assert not owned.remove()
    assert everything(world) == before


def test_links_inside_are_removed_and_what_they_lead_to_is_not(world: Path) -> None:
    with temporary("ppa-test-", world) as folder:
        (folder / "deep").mkdir()
        for place in (folder, folder / "deep"):
            (place / "link").symlink_to(world / "victim")
            (place / "file").symlink_to(world / "victim/deep/precious")
        (folder / "gone").mkdir(mode=0o700)
        owned = folder
    assert not owned.exists()
    assert (world / "victim/deep/precious").read_text() == "do not touch\n"


def test_a_marker_that_is_taken_away_leaves_the_folder(world: Path) -> None:
    owned = make(world / "mine", "a test")
    (world / "mine" / MARKER).unlink()
    assert not owned.remove()
    assert (world / "mine").is_dir()
    with pytest.raises(FileExistsError):
        make(world / "mine", "a test")


# --- files that are written


def record(batch: int = 0) -> PublishedOutput:
    return PublishedOutput(batch, 1, "accurate", 1.0, (), pa.table({"n": [1]}), 1.0)


def test_outputs_do_not_go_through_links_that_others_planted(world: Path) -> None:
    precious = world / "victim/deep/precious"
    precious.write_text("do not touch")  # without an end of line, it would be cut as what a crash left
    (world / "lines").mkdir()
    (world / "lines/output-000000001.jsonl").symlink_to(precious)
    with pytest.raises(BadInput, match="cannot be written"):
        open_sink(f"jsonl:{world}/lines")
    (world / "files").mkdir()
    for name in ("batch-000000000-r0001.parquet", ".batch-000000000-r0001.parquet.unfinished"):
        (world / "files" / name).symlink_to(precious)
    (world / "files/notes.unfinished").write_text("the user's")
    sink = open_sink(f"parquet:{world}/files")
    sink(record())
    assert (world / "files/notes.unfinished").exists()
    log = OutputLog(world / "log", keep=2)
    (world / "log").mkdir()
    for name in ("00000000-1.part", "00000000-1.arrow"):
        (world / "log" / name).symlink_to(precious)
    (world / "log/00000000-of-the-user.arrow").write_text("")
    for batch in range(4):
        log.write(record(batch))
    assert log.read(3, 1).num_rows == 1
    assert (world / "log/00000000-of-the-user.arrow").exists()
    assert not (world / "log/00000000-1.arrow").exists()
    assert precious.read_text() == "do not touch"


def test_a_file_is_replaced_as_a_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("before")

    def half() -> None:
        with written_whole(path) as file:
            file.write(b"half")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        half()
    assert [(entry.name, entry.read_text()) for entry in tmp_path.iterdir()] == [("file", "before")]


# --- keys in servers


@pytest.fixture(scope="module")
def nodes() -> Iterator[EmbeddedNodes]:
    with launch(1, 0, 1, 32, EVERYTHING) as running:
        yield running


def test_a_run_forgets_its_own_keys_alone(nodes: EmbeddedNodes) -> None:
    node = nodes.cluster["n1"]
    with Redis.from_url(node.url) as client:
        kept = ["ppa:monitor:schema", "ppa:source:words:other", "ppa:lease:run", "ppa:run2:mark", "ppa:ru:mark", "other"]
        for key in [*kept, "ppa:run:mark", "ppa:run:manifests:a.1"]:
            client.set(key, "1")
        for name in ("*", "ru?", "r[u]n", "monitor", "source", "lease", "run:*", ""):
            with pytest.raises(BadInput):
                Store(node, name)
        with Store(node, "run") as store:
            store.forget()
        assert sorted(key.decode() for key in client.scan_iter()) == sorted(kept)
        client.delete(*kept)


def test_seals_of_another_run_in_a_redis_stream_stay(nodes: EmbeddedNodes) -> None:
    url = nodes.cluster["n1"].url
    stream = RedisStream(RedisServer(url), "words", pa.schema({"word": pa.string()}), 2)
    pipeline = Pipeline("words").source("in", 2, stream)
    with Redis.from_url(url) as client:
        client.xadd("words", {"word": "be"})
        with passing_run(pipeline, "mine"):
            stream.named("mine").seal(0)
            stream.named("other").seal(0)
            assert client.exists("ppa:source:words:mine")
        assert sorted(client.keys()) == [b"ppa:source:words:other", b"words"]
        with pytest.raises(BadInput, match="seals of another run 'other'"), passing_run(pipeline, "other"):
            pytest.fail("it has begun")
        assert sorted(client.keys()) == [b"ppa:source:words:other", b"words"]
        client.delete("ppa:source:words:other", "words")


# --- the rest of the repository


def test_folders_are_removed_in_one_place() -> None:
    """The supervisor stands alone: it removes folders of random names that it made itself, and no link; nodes and test beds do
    so in its place where it was killed: folders of their own user, with names that no other program gives."""
    removing = re.compile(r"rmtree\(|TemporaryDirectory\(|mkdtemp\(|removedirs\(")
    files = [path for part in ("ppa_core", "monitoring", "pages", "benchmarks") for path in (ROOT / part).rglob("*.py")]
    found = {str(path.relative_to(ROOT)) for path in files if removing.search(path.read_text(encoding="utf-8"))}
    alone = {"nodes/embedded.py", "process/supervisor.py", "process/bed_names.py"}
    assert found == {"ppa_core/safety/owned.py", *(f"ppa_core/{name}" for name in alone)}, "use ppa_core.safety.owned"


def test_a_folder_that_others_use_is_not_made_the_monitors(world: Path) -> None:
    (world / "victim").chmod(0o755)
    (world / "link").symlink_to(world / "victim")
    before = everything(world)
    for name in ("victim", "link"):
        with pytest.raises(BadInput, match="it has other content; choose a new folder"):
            start(world / name)
    assert everything(world) == before
    assert (world / "victim").stat().st_mode & 0o777 == 0o755
    (world / "empty").mkdir(mode=0o755)
    with start(world / "empty"):
        assert (world / "empty").stat().st_mode & 0o777 == 0o700


def test_make_clean_keeps_to_the_folder_that_it_belongs_to(world: Path) -> None:
    clone, elsewhere = world / "my clone", world / "elsewhere"
    for folder in (clone, elsewhere):
        (folder / "build").mkdir(parents=True)
        (folder / "__pycache__").mkdir()
        (folder / ".venv").symlink_to(world / "victim")
    (clone / "ppa_core/safety").mkdir(parents=True)
    (clone / "ppa_core/safety/names.py").touch()
    (clone / ".ppa").mkdir()
    (clone / ".ppa/operator.hash").write_text("x")
    (clone / "Makefile").write_text((ROOT / "Makefile").read_text())
    (clone / "linked").symlink_to(world / "victim")
    before = everything(world)
    command = ["make", "-f", str(clone / "Makefile"), "clean", f"VENV={world / 'victim'}"]
    told = subprocess.run(command, cwd=elsewhere, check=False, capture_output=True, text=True)
    assert "not in the project's folder" in told.stderr
    assert everything(world) == before
    subprocess.run(command, cwd=clone, check=True, capture_output=True)
    gone = before.keys() - everything(world).keys()
    assert gone == {"my clone/build", "my clone/.venv", "my clone/__pycache__"}
