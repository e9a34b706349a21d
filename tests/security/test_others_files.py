"""Files and folders that another user has put where this one writes: none is waited for, written into or believed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from monitoring import access
from monitoring.server import start
from monitoring.signing import Signer
from ppa_core.errors import BadInput
from ppa_core.pipeline.sinks import open_sink
from ppa_core.safety.owned import open_own

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
    with pytest.raises(BadInput, match=r"another user's, or no ordinary file|No such device"):
        open_sink(f"jsonl:{tmp_path}")
    assert content is None or planted.read_bytes() == content


def test_a_file_with_a_second_name_is_not_opened(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("precious")
    os.link(tmp_path / "mine", tmp_path / "output-000000001.jsonl")
    with pytest.raises(BadInput, match="another user's, or no ordinary file"):
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
        with pytest.raises(BadInput, match="another user's, who could exchange what is in it"):
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
        Signer.find(tmp_path, {})
    hashed = others(tmp_path / "operator.hash", content and access.hash_password("theirs as well").encode())
    hashed.chmod(0o600)
    with pytest.raises(BadInput, match="hash cannot be read"):
        access.find_hash(hashed, {})


def test_own_files_are_opened(tmp_path: Path) -> None:
    handle = open_own(tmp_path / "mine", os.O_RDWR | os.O_CREAT)
    os.close(handle)
    assert (tmp_path / "mine").stat().st_mode & 0o777 == 0o600
