"""The input directory: its complete files, their columns, and whether a file has changed."""

from __future__ import annotations

import fnmatch
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa

from ppa_core.errors import BadInput
from ppa_core.pipeline.sources.limits import Limits, Unfit, open_regular
from ppa_core.pipeline.sources.reading import suggested_schema

_UNFINISHED = (".part", ".tmp")


def complete_files(directory: str, pattern: str) -> list[str]:
    """The names of complete files in a directory, sorted."""
    try:
        with os.scandir(directory) as found:
            names = [entry.name for entry in found if not entry.is_dir(follow_symlinks=False)]
    except OSError as error:
        raise BadInput(directory, f"cannot be read: {error.strerror}; give a directory of files") from error
    except ValueError as error:
        raise BadInput(repr(directory), f"not a valid directory name: {error}") from error
    unfinished = {name for name in names if name.startswith((".", "_")) or name.endswith(_UNFINISHED)}
    return sorted(name for name in set(names) - unfinished if fnmatch.fnmatchcase(name, pattern))


def first_schema(kind: str, paths: list[Path], limits: Limits) -> pa.Schema:
    """The schema inferred from the first readable file."""
    refused: BadInput | None = None
    for path in paths:
        try:
            with open_regular(path) as file:
                return suggested_schema(kind, file, limits)
        except Unfit as error:
            refused = refused or BadInput(str(path), error.reason)
        except OSError as error:
            refused = refused or BadInput(str(path), f"cannot be read: {error.strerror}; give a file or a directory")
    assert refused is not None, "there is a file"
    raise refused


def identity_of(file: BinaryIO) -> list[int]:
    """Size, inode number and modification time of a file, to detect changes."""
    stat = os.fstat(file.fileno())
    return [stat.st_size, stat.st_ino, stat.st_mtime_ns]


def changed_since(
    directory: Path, names: list[str], sizes: Mapping[str, int | str], first: int, most: int
) -> list[tuple[str, str]]:
    """Files whose size has changed, with the reason to report. Checks at most `most` files, starting with number `first`."""
    known = [name for name in names if isinstance(sizes.get(name), int)]
    begin = first % len(known) if len(known) > most else 0
    found = []
    for name in (known + known)[begin : begin + min(most, len(known))]:
        with suppress(OSError):  # it may have been removed
            size = (directory / name).lstat().st_size
            if size != sizes[name]:
                was = f"it had {sizes[name]} bytes when it was read and has {size} now"
                found.append((name, f"{was}; data added to a file after it was read is ignored: put it into a new file"))
    return found
