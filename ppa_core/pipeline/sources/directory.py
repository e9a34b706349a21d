"""What is in a directory that others write to: the files that are complete, their columns, whether one is still the same."""

from __future__ import annotations

import fnmatch
import os
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa

from ppa_core.errors import BadInput
from ppa_core.pipeline.sources.limits import Limits, Unfit, open_regular
from ppa_core.pipeline.sources.reading import suggested_schema

_UNFINISHED = (".part", ".tmp")


def complete_files(directory: str, pattern: str) -> list[str]:
    """The names in a directory, but for those of directories, that say that something is complete; in order."""
    try:
        with os.scandir(directory) as found:
            names = [entry.name for entry in found if not entry.is_dir(follow_symlinks=False)]
    except OSError as error:
        raise BadInput(directory, f"cannot be read: {error.strerror}; name a directory of files") from error
    except ValueError as error:
        raise BadInput(repr(directory), f"not the name of a directory: {error}") from error
    unfinished = {name for name in names if name.startswith((".", "_")) or name.endswith(_UNFINISHED)}
    return sorted(name for name in set(names) - unfinished if fnmatch.fnmatchcase(name, pattern))


def first_schema(kind: str, paths: list[Path], limits: Limits) -> pa.Schema:
    """The schema that the first file suggests which suggests one."""
    refused: BadInput | None = None
    for path in paths:
        try:
            with open_regular(path) as file:
                return suggested_schema(kind, file, limits)
        except Unfit as error:
            refused = refused or BadInput(str(path), error.reason)
        except OSError as error:
            refused = refused or BadInput(str(path), f"cannot be read: {error.strerror}; name a file or a directory")
    assert refused is not None, "there is a file"
    raise refused


def identity_of(file: BinaryIO) -> list[int]:
    """Size, number and times of a file: as long as they are the same, so is its content. Nobody can set the last of them."""
    stat = os.fstat(file.fileno())
    return [stat.st_size, stat.st_ino, stat.st_mtime_ns, stat.st_ctime_ns]


def size_now(path: Path) -> int | None:
    """The size of a file; None if it is gone."""
    try:
        return path.lstat().st_size
    except FileNotFoundError:
        return None
