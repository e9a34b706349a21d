"""Passwords from a file named in a URL, or from the environment, instead of the command line.

`redis://host:6379?password-file=/run/secrets/sink` takes the password from the first line of that file.
"""

from __future__ import annotations

import os
import re
import stat
from urllib.parse import quote, unquote

from ppa_core.errors import BadInput

_OPTION = re.compile(r"([?&])password-file=([^&#]*)(&?)")
_MOST_BYTES = 1_000


def from_file(url: str) -> str:
    """The URL with the password from its `password-file`; unchanged if it has none."""
    found = _OPTION.search(url)
    if found is None:
        return url
    bare = url[: found.start()] + (found[1] if found[3] else "") + url[found.end() :]
    return with_password(bare, _read(unquote(found[2])))


def with_password(url: str, password: str) -> str:
    """The URL with this password. Raises BadInput if it already has one."""
    scheme, _, rest = url.partition("://")
    netloc = re.split(r"[/?#]", rest, maxsplit=1)[0]
    user, _, host = netloc.rpartition("@")
    if ":" in user:
        raise BadInput("redis url", "it already contains a password; give the password in one place only")
    return f"{scheme}://{user}:{quote(password, safe='')}@{host}{rest[len(netloc) :]}"


def _read(path: str) -> str:
    try:
        with open(path, "rb") as file:  # noqa: PTH123 - an invalid name must not raise another error
            if os.fstat(file.fileno()).st_mode & (stat.S_IRWXG | stat.S_IRWXO):
                raise BadInput(f"password file {path}", "others can read or change it; make it private with chmod 600")
            lines = file.read(_MOST_BYTES).decode().splitlines()
    except OSError as error:
        raise BadInput(f"password file {path}", f"cannot be read: {error.strerror}") from None
    except ValueError:
        raise BadInput(f"password file {path!r}", "its first line is not a password in UTF-8 text") from None
    if not lines or not lines[0]:
        raise BadInput(f"password file {path}", "its first line is empty; write the password there")
    return lines[0]
