"""Whoever feeds records tries to read other files through the pipeline, to steer the operator's terminal, or to swap a file."""

from __future__ import annotations

import json
import mmap
import os
import pickle
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ppa_core.cli import main
from ppa_core.cli.running import event_printer
from ppa_core.engine.run_events import BatchFinished, DriverDied
from ppa_core.errors import BadInput
from ppa_core.pipeline.sources import filling
from ppa_core.pipeline.sources.files import open_files
from ppa_core.pipeline.sources.limits import Limits
from ppa_core.pipeline.sources.live import Changed
from ppa_core.pipeline.tables import digest
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
        assert found[other] == "not a regular file, but a pipe, a device or similar"
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
    event_printer(False)(BatchFinished(0.0, 1, 1.0, 1, 0, 0, refused=1, refusals=(f"{ESCAPE}: 1: {ESCAPE}",)))
    event_printer(False)(DriverDied(0.0, 1, ESCAPE))
    out, err = capsys.readouterr()
    assert "owned" in out
    assert SECRET not in out + err
    assert "\x1b]" not in out + err
    assert "\x07" not in out + err


def test_a_bad_place_or_reason_is_printable_wherever_it_goes() -> None:
    error = pickle.loads(pickle.dumps(BadInput(f"in/{ESCAPE}.csv", f"{ESCAPE} is not int64")))
    assert str(error).isprintable()
    assert (error.place, error.reason) == (r"in/\x1b[2J\x1b]0;owned\x07.csv", r"\x1b[2J\x1b]0;owned\x07 is not int64")


# --- what becomes of files that were read


def append(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"c,9\n")


def truncate(path: Path) -> None:
    os.truncate(path, 1)


def rename(path: Path) -> None:
    path.rename(path.with_name(f"z.{path.name}.part"))


def link(path: Path) -> None:
    (path.parent / "secret").write_text(SECRET)
    path.unlink()
    path.symlink_to(path.parent / "secret")


def folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize("attack", [append, truncate, Path.unlink, rename, link, folder, dictionary_bomb])
@pytest.mark.parametrize("kind", ["csv", "parquet"])
@pytest.mark.parametrize("most", [10, 3], ids=["read", "half read"])
def test_whatever_becomes_of_a_file_the_batch_stays_and_the_pipeline_goes_on(
    tmp_path: Path, attack: Callable[[Path], object], kind: str, most: int
) -> None:
    path = good(tmp_path / f"a.{kind}", range(5))
    source = open_files(tmp_path, kind, 1, SCHEMA, max_rows=most)
    source.seal(0)
    attack(path)
    good(tmp_path / f"b.{kind}", [50])
    for batch in (1, 2):
        open_files(tmp_path, kind, 1, SCHEMA, max_rows=most).seal(batch)
    assert [numbers(source, batch) for batch in range(3)] == [list(range(min(5, most))), [50], []]
    named = [entry.file for batch in range(3) for entry in source.refused(batch).first]
    lost = most == 3 or attack in (append, truncate, link, dictionary_bomb)
    assert named == ([path.name] if lost else []), "once"
    assert SECRET not in str(source.refused(1))
    source.release(2)
    source.seal(3)
    assert (numbers(source, 3), source.refused(3).count) == ([], 0), "nor after the seals of what was read are gone"


def test_a_file_that_is_changed_without_a_trace_is_no_other_batch(tmp_path: Path) -> None:
    """Through a mapping whose page was written to before, a file changes and its times do not."""
    path = good(tmp_path / "a.csv", range(5))
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as content:
        content[0:1] = content[0:1]
        source = open_files(tmp_path, "csv", 1, SCHEMA)
        source.seal(0)
        content[:] = content[:].replace(b"w0,0", b"w0,8")
        assert numbers(source, 0) == list(range(5))


def test_many_files_with_next_to_nothing_in_them_are_many_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(filling, "FILES", 250)
    monkeypatch.setattr(filling, "PATIENCE", 600.0)
    for number in range(600):
        (tmp_path / f"{number:04}.csv").write_text("word,n\n" if number % 2 else f"word,n\nw,{number}\n")
    source = open_files(tmp_path, "csv", 1, SCHEMA)
    for batch in range(4):
        source.seal(batch)
    even = list(range(0, 600, 2))
    assert [numbers(source, batch) for batch in range(4)] == [even[:125], even[125:250], even[250:], []]


def test_when_the_time_is_over_the_rest_waits_for_the_next_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(filling, "PATIENCE", 0.0)
    for number in range(3):
        good(tmp_path / f"{number}.csv", [number])
    source = open_files(tmp_path, "csv", 1, SCHEMA)
    for batch in range(4):
        source.seal(batch)
    assert [numbers(source, batch) for batch in range(4)] == [[0], [1], [2], []], "one at least"


def test_of_many_files_that_are_read_together_one_that_takes_too_much_costs_only_itself(tmp_path: Path) -> None:
    for number in range(9):
        good(tmp_path / f"{number}.parquet", [number])
    dictionary_bomb(tmp_path / "4.parquet")
    source = open_files(tmp_path, "parquet", 1, SCHEMA)
    for batch in range(9):
        source.seal(batch)
    assert [n for batch in range(9) for n in numbers(source, batch)] == [0, 1, 2, 3, 5, 6, 7, 8]
    assert source.refused_so_far() == 1


def test_a_seal_names_only_files_of_the_journal(tmp_path: Path) -> None:
    source = open_files(tmp_path, "csv", 1, SCHEMA)
    good(tmp_path / "a.csv", range(5))
    source.seal(0)
    (copy,) = (tmp_path / ".ppa").glob("rows-*")
    copy.rename(tmp_path / "other")
    entry = tmp_path / ".ppa" / "batch-000000000.json"
    content = entry.read_bytes().partition(b"\n")[2].replace(copy.name.encode(), b"../other")
    entry.write_bytes(digest(content).encode() + b"\n" + content)
    with pytest.raises(Changed, match=r"\.ppa/other: .* cannot be read"):
        source.read(0, 0)
    (tmp_path / ".ppa" / "other").symlink_to(tmp_path / "other")
    with pytest.raises(Changed, match="cannot be read"):
        source.read(0, 0)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a directory that is another user's")
def test_a_journal_that_somebody_else_made_is_not_believed(tmp_path: Path) -> None:
    source = open_files(tmp_path, "csv", 1, SCHEMA)
    (tmp_path / ".ppa").mkdir()
    os.chown(tmp_path / ".ppa", 65534, 65534)
    with pytest.raises(BadInput, match="belongs to another user"):
        source.seal(0)
    with pytest.raises(BadInput, match="belongs to another user"):
        open_files(tmp_path, "csv", 1)


@pytest.mark.skipif(sys.platform != "linux", reason="memory is bounded on Linux")
def test_files_that_take_too_much_together_are_read_one_by_one(tmp_path: Path) -> None:
    for number in range(6):
        words = pa.DictionaryArray.from_arrays(pa.array(np.zeros(80, np.int32)), pa.array(["x" * 50_000]))
        pq.write_table(
            pa.table({"word": words, "n": np.full(80, number)}), tmp_path / f"{number:02}.parquet", compression="zstd"
        )
    source = open_files(tmp_path, "parquet", 1, SCHEMA, limits=Limits(memory_bytes=48 << 20, batch_bytes=600 << 20))
    for batch in range(6):
        source.seal(batch)
    assert source.refused_so_far() == 0
    assert sorted({n for batch in range(6) for n in numbers(source, batch)}) == list(range(6))
