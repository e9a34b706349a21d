"""How much a file or a stream may ask of those who read it, and how a file is opened that anybody may have put there.

PpaError
└── Unfit    a file that is not read, or not read on, and why: its source passes over it and goes on
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
    """A file that is refused as a whole, or from a line on. The reason shows nothing of a file that a link leads to."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True)
class Limits:
    """What a source accepts. A row beyond its bounds is refused, a file beyond them is passed over; both with the reason."""

    line_bytes: int = _MIB
    """A line, a value of a Parquet file, or an entry of a stream."""
    columns: int = 10_000
    """Of a file, or fields of an entry, whether the schema names them or not."""
    batch_bytes: int = 64 * _MIB
    """A batch takes no further file or page once it has as much as this; a file that takes less is never cut for it."""
    file_bytes: int = 64 * _GIB
    memory_bytes: int = _GIB
    """What a process that reads a batch of a file may take for it."""
    seconds: int = 30
    """Of computing time, for a batch of a file: time that passes because the machine is busy does not count."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if not is_whole(value) or value < 1:
                raise BadInput(f"limit {field.name}", f"{value!r} is no whole number from 1 on")
        if self.batch_bytes < self.line_bytes:
            raise BadInput("limit batch_bytes", f"{self.batch_bytes} is less than line_bytes, {self.line_bytes}")

    def document(self) -> dict[str, int]:
        return asdict(self)

    @classmethod
    def from_document(cls, document: dict[str, Any]) -> Self:
        return cls(**document)


DEFAULT_LIMITS = Limits()


def size_of(count: int) -> str:
    """Bytes, in words."""
    for unit, name in ((_GIB, "GiB"), (_MIB, "MiB"), (_KIB, "KiB")):
        if count >= unit:
            return f"{count / unit:.4g} {name}"
    return f"{count} bytes"


def open_regular(path: Path) -> BinaryIO:
    """A file, opened for reading. Unfit for whatever is none: links are not followed, and pipes and devices not even opened.

    FileNotFoundError if there is nothing of that name; other OSErrors if the disk does not answer.
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
        if error.errno not in (errno.ELOOP, errno.ENXIO):  # what it was replaced by since
            raise
    raise Unfit("not a file, but a pipe, a device or the like")


def check_size(file: BinaryIO, limits: Limits) -> int:
    """The size of a file; Unfit if it is too large."""
    size = os.fstat(file.fileno()).st_size
    if size > limits.file_bytes:
        raise Unfit(f"it has {size_of(size)}, and file_bytes allows {size_of(limits.file_bytes)}")
    return size
