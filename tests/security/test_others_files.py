"""Files and folders that another user has put where this one writes: none is waited for, written into or believed."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from monitoring import access
from monitoring.server import start
from monitoring.signing import Signer
from ppa_core.errors import BadInput
from ppa_core.pipeline.sinks import open_sink, read_sink
from ppa_core.pipeline.sources.files import open_files
from ppa_core.safety.owned import open_own
from ppa_core.settings import ProgramSettings

NOBODY = 65534

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can make what is another user's")


def others(path: Path, content: bytes | None = b"") -> Path:
    """A file of another user, for all to write; without content a pipe."""
    if content is None:
        os.mkfifo(path)
    else:
        path.write_bytes(content)
    path.chmod(0o666)
    os.chown(path, NOBODY, NOBODY)
    return path


@pytest.mark.parametrize("content", [None, b"", b"theirs\n"])
def test_a_sink_neither_waits_for_a_pipe_nor_writes_into_a_file_of_another_user(tmp_path: Path, content: bytes | None) -> None:
    planted = others(tmp_path / "output-000000007.jsonl", content)
    with pytest.raises(BadInput, match=r"belongs to another user, or is not a regular file|No such device"):
        open_sink(f"jsonl:{tmp_path}")
    assert content is None or planted.read_bytes() == content


def test_a_pipe_among_the_files_of_a_sink_is_not_waited_for_by_its_readers(tmp_path: Path) -> None:
    others(tmp_path / "output-000000001.jsonl", None)
    with pytest.raises(BadInput, match="not a regular file"):
        list(read_sink(f"jsonl:{tmp_path}"))


@pytest.mark.parametrize("mode", [0o755, 0o777])
def test_seals_are_kept_where_the_feeder_cannot_exchange_them(tmp_path: Path, own_folder: Path, mode: int) -> None:
    feeder = tmp_path / "in"
    feeder.mkdir()
    (feeder / "a.csv").write_text("n\n1\n2\n")
    feeder.chmod(mode)
    if mode == 0o755:
        os.chown(feeder, NOBODY, NOBODY)
    source = open_files(feeder, "csv", 1).named("r1")
    assert source.seal(0)
    assert source.read(0, 0)["n"].to_pylist() == [1, 2]
    assert own_folder in Path(source.seals).parents
    assert [path.name for path in feeder.iterdir()] == ["a.csv"]
    feeder.chmod(0o1777)
    os.chown(feeder, 0, 0)
    assert Path(open_files(feeder, "csv", 1).named("r1").seals) == feeder / ".ppa/r1"


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "disk"
    folder.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", folder], check=False).returncode:
        pytest.skip("no file system can be mounted here")
    try:
        yield folder
    finally:
        subprocess.run(["umount", folder], check=True)


def test_a_full_disk_ends_nothing_and_sealing_goes_on_when_there_is_room(tmp_path: Path, small_disk: Path) -> None:
    feeder = tmp_path / "in"
    feeder.mkdir()
    (feeder / "a.csv").write_text("n\n" + "1\n" * 20_000)
    source = open_files(feeder, "csv", 1, state=small_disk / "state", max_rows=4_000).named("r1")
    pad = small_disk / "pad"
    assert source.seal(0)
    pad.write_bytes(bytes(200_000))
    assert not source.seal(1)
    source.release(1)
    pad.unlink()
    assert source.seal(1)
    assert source.read(0, 1).num_rows == 4_000
    assert not list(Path(source.seals).glob("*.tmp"))


def test_a_seal_that_was_damaged_or_exchanged_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("n\n1\n2\n")
    source = open_files(tmp_path, "csv", 1).named("r1")
    source.seal(0)
    path = Path(source.seals) / "batch-000000000.json"
    sound = path.read_bytes()
    for place in range(0, len(sound), 7):
        path.write_bytes(sound[:place] + bytes([sound[place] ^ 1]) + sound[place + 1 :])
        with pytest.raises(BadInput, match="damaged, or written by an earlier version"):
            source.read(0, 0)
        with pytest.raises(BadInput, match="damaged"):
            source.seal(1)
    path.write_bytes(sound)
    assert source.read(0, 0)["n"].to_pylist() == [1, 2]
    (tmp_path / ".ppa").rename(tmp_path / "gone")
    (tmp_path / ".ppa").symlink_to(tmp_path / "gone")
    os.chown(tmp_path / "gone/r1", NOBODY, NOBODY)
    with pytest.raises(BadInput, match="belongs to another user"):
        source.read(0, 0)
    with pytest.raises(BadInput, match="belongs to another user"):
        source.release(5)


def test_a_file_with_a_second_name_is_not_opened(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("precious")
    os.link(tmp_path / "mine", tmp_path / "output-000000001.jsonl")
    with pytest.raises(BadInput, match="belongs to another user, or is not a regular file"):
        open_sink(f"jsonl:{tmp_path}")
    assert (tmp_path / "mine").read_text() == "precious"


def test_a_monitor_is_not_started_in_a_folder_of_another_user_nor_through_their_link(tmp_path: Path) -> None:
    theirs, mine = tmp_path / "theirs", tmp_path / "mine"
    theirs.mkdir(mode=0o700)
    os.chown(theirs, NOBODY, NOBODY)
    mine.mkdir(mode=0o755)
    (tmp_path / "link").symlink_to(mine)
    os.chown(tmp_path / "link", NOBODY, NOBODY, follow_symlinks=False)
    for folder in (theirs, tmp_path / "link"):
        with pytest.raises(BadInput, match="belongs to another user, who could replace it"):
            start(folder)
    assert mine.stat().st_mode & 0o777 == 0o755
    assert not list(mine.iterdir())


def test_a_pipe_in_place_of_the_monitors_lock_is_not_waited_for(tmp_path: Path) -> None:
    folder = tmp_path / "monitor"
    folder.mkdir(mode=0o700)
    os.mkfifo(folder / "owner.lock")
    with pytest.raises(Exception, match="cannot be written"):
        start(folder)


@pytest.mark.parametrize("content", [None, b"a key that another user knows very well"])
def test_a_key_or_hash_of_another_user_is_not_believed(tmp_path: Path, content: bytes | None) -> None:
    others(tmp_path / "operator.key", content).chmod(0o600)
    with pytest.raises(BadInput, match="operator's key cannot be read"):
        Signer.find(tmp_path, ProgramSettings())
    hashed = others(tmp_path / "operator.hash", content and access.hash_password("theirs as well").encode())
    hashed.chmod(0o600)
    with pytest.raises(BadInput, match="hash cannot be read"):
        access.find_hash(hashed, ProgramSettings())


def test_own_files_are_opened(tmp_path: Path) -> None:
    handle = open_own(tmp_path / "mine", os.O_RDWR | os.O_CREAT)
    os.close(handle)
    assert (tmp_path / "mine").stat().st_mode & 0o777 == 0o600
