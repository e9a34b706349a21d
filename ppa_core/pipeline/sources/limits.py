"""Limits for untrusted files and streams, and safe opening of untrusted files.

PpaError
└── Unfit    a file that is skipped, as a whole or from a line on, and why
"""

from __future__ import annotations

import errno
import os
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from stat import S_ISLNK, S_ISREG
from typing import Any, BinaryIO, Self

from ppa_core.errors import BadInput, PpaError
from ppa_core.pipeline.kinds import is_whole

_KIB, _MIB, _GIB = 1 << 10, 1 << 20, 1 << 30


class Unfit(PpaError):
    """A file that is skipped, as a whole or from a line on. The reason never quotes the target of a link."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True)
class Limits:
    """The limits of a source. A row above them is refused, a file above them is skipped; both with the reason."""

    line_bytes: int = _MIB
    """Size of a line, of a value in a Parquet file, or of an entry of a stream."""
    columns: int = 10_000
    """Columns of a file, or fields of an entry, whether they are in the schema or not."""
    batch_bytes: int = 64 * _MIB
    """A batch takes no further file or page once it has reached this size; a smaller file is never divided because of it."""
    file_bytes: int = 64 * _GIB
    memory_bytes: int = _GIB
    """Memory of the process that reads a batch of a file."""
    seconds: int = 30
    """CPU time for a batch of a file; waiting on a busy machine does not count."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if not is_whole(value) or value < 1:
                raise BadInput(f"limit {field.name}", f"{value!r} is not a whole number of at least 1")
        if self.batch_bytes < self.line_bytes:
            raise BadInput("limit batch_bytes", f"{self.batch_bytes} is less than line_bytes, {self.line_bytes}")

    def document(self) -> dict[str, int]:
        return asdict(self)

    @classmethod
    def from_document(cls, document: dict[str, Any]) -> Self:
        return cls(**document)


DEFAULT_LIMITS = Limits()


def size_of(count: int) -> str:
    """A number of bytes with a unit."""
    for unit, name in ((_GIB, "GiB"), (_MIB, "MiB"), (_KIB, "KiB")):
        if count >= unit:
            return f"{count / unit:.4g} {name}"
    return f"{count} bytes"


def open_regular(path: Path) -> BinaryIO:
    """Open a regular file for reading. Raises Unfit for anything else: links are not followed, pipes and devices not opened.

    Raises FileNotFoundError if it does not exist, and OSError for errors of the disk.
    """
    try:
        mode = path.lstat().st_mode
        if S_ISLNK(mode):
            raise Unfit("a symbolic link, and links are not followed; put the file itself here")
        if S_ISREG(mode):
            handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            file = os.fdopen(handle, "rb")
            if S_ISREG(os.fstat(handle).st_mode):
                return file
            file.close()
    except PermissionError as error:
        raise Unfit(f"cannot be read: {error.strerror}") from None
    except OSError as error:
        if error.errno not in (errno.ELOOP, errno.ENXIO):  # it was replaced in the meantime
            raise
    raise Unfit("not a regular file, but a pipe, a device or similar")


def check_size(file: BinaryIO, limits: Limits) -> int:
    """The size of a file. Raises Unfit if it is too large."""
    size = os.fstat(file.fileno()).st_size
    if size > limits.file_bytes:
        raise Unfit(f"it has {size_of(size)}, above the limit file_bytes of {size_of(limits.file_bytes)}")
    return size
