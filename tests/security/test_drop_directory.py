"""Whoever feeds records tries to read other files through the pipeline, to steer the operator's terminal, or to swap a file."""

from __future__ import annotations

import json
import os
import pickle
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from ppa_core.cli import main
from ppa_core.cli.running import teller
from ppa_core.errors import BadInput
from ppa_core.pipeline.sources.files import open_files
from ppa_core.pipeline.sources.limits import Limits
from ppa_core.pipeline.sources.live import Changed
from tests.security.bombs import SCHEMA, dictionary_bomb, good, numbers, reasons

ESCAPE = "\x1b[2J\x1b]0;owned\x07"
SECRET = "root:$6$secret"


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    """A directory with one good file, and what somebody else put there."""
    (tmp_path / "secret").write_text(f"{SECRET}\n{SECRET}\n")
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "a link.csv").symlink_to(tmp_path / "secret")
    (folder / "b link.csv").symlink_to("/dev/zero")
    (folder / "c link.csv").symlink_to("d good.csv")
    good(folder / "d good.csv", range(3))
    os.mkfifo(folder / "e pipe.csv")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(os.path.relpath(folder / "f.csv"))
    (folder / f"{ESCAPE}.csv").write_text(f"word,n\n{ESCAPE},{ESCAPE}\n")
    Path(os.fsdecode(os.fsencode(folder) + b"/\xff.csv")).write_text("word,n\n\n")
    (folder / "g.csv").write_text(f"word,n\n{ESCAPE}\n")
    if os.geteuid() == 0:
        os.mknod(folder / "h device.csv", 0o666 | 0o020000, os.makedev(1, 5))
    else:
        (folder / "i closed.csv").write_text("word,n\n")
        (folder / "i closed.csv").chmod(0)
    return folder


def test_only_files_are_read_and_nothing_is_shown_of_what_a_link_leads_to(hostile: Path) -> None:
    source = open_files(hostile, "csv", 1, SCHEMA)
    source.seal(0)
    assert numbers(source, 0) == [0, 1, 2]
    told = source.refused(0).document()
    assert SECRET not in json.dumps(told)
    assert all(text.isprintable() for name, _, reason in told["first"] for text in (name, reason))
    found = reasons(source, 0)
    for link in "abc":
        assert "links are not followed" in found[f"{link} link.csv"]
    for other in ("e pipe.csv", "f.csv", *(["h device.csv"] if os.geteuid() == 0 else [])):
        assert found[other] == "not a file, but a pipe, a device or the like"
    assert r"\x1b[2J\x1b]0;owned\x07.csv" in found
    assert len(found) == 8
    source.seal(1)
    assert source.refused(1).count == 0, "each is told once"


def test_a_file_that_another_program_keeps_for_itself_waits_and_the_others_do_not(tmp_path: Path) -> None:
    good(tmp_path / "a.csv", [1])
    good(tmp_path / "b.csv", [2])
    code = (
        "import fcntl, os, signal, sys; signal.signal(signal.SIGIO, signal.SIG_IGN)\n"
        "fcntl.fcntl(os.open(sys.argv[1], os.O_RDWR), fcntl.F_SETLEASE, fcntl.F_WRLCK); print(flush=True); sys.stdin.read()"
    )
    source = open_files(tmp_path, "csv", 1, SCHEMA)
    keeping = [sys.executable, "-c", code, str(tmp_path / "a.csv")]
    with subprocess.Popen(keeping, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as keeper:
        assert keeper.stdout is not None
        if not keeper.stdout.readline():
            pytest.skip("no leases on this file system")
        source.seal(0)
        keeper.kill()
    source.seal(1)
    assert (numbers(source, 0), numbers(source, 1)) == ([2], [1])
    assert (source.refused(0).count, source.refused(1).count) == (0, 0)


def test_inspect_and_run_print_nothing_that_steers_the_terminal(hostile: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", "csv", str(hostile)]) == 0
    assert main(["inspect", "csv", str(hostile), "--json"]) == 0
    for name in ("a link.csv", "e pipe.csv", f"{ESCAPE}.csv"):
        main(["inspect", "csv", str(hostile / name)])
    for kind in ("parquet", "worldcup98"):
        assert main(["inspect", kind, str(hostile / "a link.csv")]) == 2
        assert main(["inspect", kind, str(hostile / f"{ESCAPE}.csv")]) == 2
        assert main(["inspect", kind, str(hostile / "e pipe.csv")]) == 2
    batch = {
        "kind": "batch",
        "batch": 1,
        "seconds": 1.0,
        "source_rows": 0,
        "refused": 1,
        "refusals": [f"{ESCAPE}: 1: {ESCAPE}"],
    }
    for line in (batch, {"kind": "driver died", "reason": ESCAPE}):
        teller(False)(line)
    out, err = capsys.readouterr()
    assert "owned" in out
    assert SECRET not in out + err
    assert "\x1b]" not in out + err
    assert "\x07" not in out + err


def test_a_bad_place_or_reason_is_printable_wherever_it_goes() -> None:
    error = pickle.loads(pickle.dumps(BadInput(f"in/{ESCAPE}.csv", f"{ESCAPE} is not int64")))
    assert str(error).isprintable()
    assert (error.place, error.reason) == (r"in/\x1b[2J\x1b]0;owned\x07.csv", r"\x1b[2J\x1b]0;owned\x07 is not int64")


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_what_was_sealed_is_not_swapped_for_something_else(tmp_path: Path, kind: str) -> None:
    path = good(tmp_path / f"a.{kind}", range(5))
    source = open_files(tmp_path, kind, 1, SCHEMA)
    source.seal(0)
    kept = path.read_bytes()
    if kind == "parquet":
        dictionary_bomb(path)
        with pytest.raises(Changed, match="it was changed after it was sealed"):
            source.read(0, 0)
    path.unlink()
    (tmp_path / "secret").write_text(SECRET)
    path.symlink_to(tmp_path / "secret")
    with pytest.raises(Changed, match="it was changed after it was sealed") as caught:
        source.read(0, 0)
    assert SECRET not in str(caught.value)
    path.unlink()
    path.write_bytes(kept)  # put back: another file with the same content
    assert numbers(source, 0) == list(range(5))


def test_a_seal_keeps_its_limits_and_names_only_files_of_the_directory(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.csv").write_text(f"word,n\n{'x' * 100},1\ny,2\n")
    source = open_files(tmp_path / "in", "csv", 1, SCHEMA)
    source.seal(0)
    assert numbers(open_files(tmp_path / "in", "csv", 1, SCHEMA, limits=Limits(line_bytes=50)), 0) == [1, 2]
    good(tmp_path / "other.csv", range(9))
    entry = tmp_path / "in" / ".ppa" / "batch-000000000.json"
    entry.write_text(entry.read_text().replace('"a.csv"', '"../other.csv"'))
    with pytest.raises(Changed, match=r"in/other\.csv"):
        source.read(0, 0)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a directory that is another user's")
def test_a_journal_that_somebody_else_made_is_not_believed(tmp_path: Path) -> None:
    source = open_files(tmp_path, "csv", 1, SCHEMA)
    (tmp_path / ".ppa").mkdir()
    os.chown(tmp_path / ".ppa", 65534, 65534)
    with pytest.raises(BadInput, match="another user's"):
        source.seal(0)
    with pytest.raises(BadInput, match="another user's"):
        open_files(tmp_path, "csv", 1)
