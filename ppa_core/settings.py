"""Settings of the whole program, from environment variables: `PPA_…` variables are read only here.

A process has the settings of its environment, unless its parent process passed others: `serve` passes its settings to
`python -m pages` on standard input. Settings of a single run are in `RunConfig`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

FOLDER_VARIABLE = "PPA_FOLDER"
MONITOR_URL_VARIABLE = "PPA_MONITOR_URL"
MONITOR_READ_URL_VARIABLE = "PPA_MONITOR_READ_URL"
OPERATOR_KEY_VARIABLE = "PPA_OPERATOR_KEY"
PASSWORD_HASH_VARIABLE = "PPA_OPERATOR_PASSWORD_HASH"
SINK_PASSWORD_VARIABLE = "PPA_SINK_PASSWORD"
SOURCE_PASSWORD_VARIABLE = "PPA_SOURCE_PASSWORD"
REDIS_SERVER_VARIABLE = "PPA_REDIS_SERVER"
PATCHED_REDIS_VARIABLE = "PPA_PATCHED_REDIS"

SETTINGS_FROM_STDIN = "--settings-from-stdin"
"""First option of a program that gets its settings as JSON on standard input."""


@dataclass(frozen=True)
class ProgramSettings:
    """Settings of the program. `repr` does not show secrets."""

    folder: Path = Path(".ppa")
    """For data that is kept between runs: the operator's password hash and key, the monitor's history."""
    monitor_folder: Path | None = None
    """The folder of the embedded monitor, if it is not `monitor` in `folder`; there is no variable for it."""
    monitor_url: str | None = field(default=None, repr=False)
    monitor_read_url: str | None = field(default=None, repr=False)
    operator_key: str | None = field(default=None, repr=False)
    operator_password_hash: str | None = field(default=None, repr=False)
    sink_password: str | None = field(default=None, repr=False)
    """For Redis sinks without a password in their URL; `source_password` likewise for sources."""
    source_password: str | None = field(default=None, repr=False)
    redis_server: str | None = None
    """The Redis server program for embedded servers."""
    patched_redis: bool = False
    """The user confirms that servers on the network are patched, whatever their version."""

    @classmethod
    def read(cls, environment: Mapping[str, str]) -> ProgramSettings:
        """The settings of an environment. An empty variable counts as not set."""

        def value(name: str) -> str | None:
            return environment.get(name) or None

        return cls(
            folder=Path(value(FOLDER_VARIABLE) or cls.folder),
            monitor_url=value(MONITOR_URL_VARIABLE),
            monitor_read_url=value(MONITOR_READ_URL_VARIABLE),
            operator_key=value(OPERATOR_KEY_VARIABLE),
            operator_password_hash=value(PASSWORD_HASH_VARIABLE),
            sink_password=value(SINK_PASSWORD_VARIABLE),
            source_password=value(SOURCE_PASSWORD_VARIABLE),
            redis_server=value(REDIS_SERVER_VARIABLE),
            patched_redis=value(PATCHED_REDIS_VARIABLE) == "1",
        )

    @property
    def monitor_directory(self) -> Path:
        return self.monitor_folder or self.folder / "monitor"

    @property
    def urls(self) -> tuple[str, ...]:
        """The URLs, which may contain a password."""
        return tuple(filter(None, (self.monitor_url, self.monitor_read_url)))


_given: ProgramSettings | None = None


def current() -> ProgramSettings:
    """The settings of this process: those that were passed to it, else those of its environment."""
    return _given or ProgramSettings.read(os.environ)


def give(settings: ProgramSettings) -> None:
    """Set this process's settings; to be called before anything else of the program is imported."""
    global _given
    _given = settings


def without_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """An environment without PPA variables, for a process that gets its settings on standard input."""
    return {name: value for name, value in environment.items() if not name.startswith("PPA_")}


def to_json(settings: ProgramSettings) -> bytes:
    import msgspec  # imported here, because workers of a Spark cluster need not have it

    return msgspec.json.encode(settings, enc_hook=str)


def from_json(content: bytes) -> ProgramSettings:
    """Decode what `to_json` made; msgspec.ValidationError for anything else."""
    import msgspec

    def path(kind: type, value: Any) -> Any:
        return kind(value)

    return msgspec.json.decode(content, type=ProgramSettings, dec_hook=path)
