"""`python -m pages`: the dashboard, from any folder. It accepts the options of `streamlit run`, as `--server.port 8600`."""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path

from ppa_core import settings
from ppa_core.settings import SETTINGS_FROM_STDIN

FOLDER = Path(__file__).parent
SCRIPT = FOLDER.with_name("app.py")
"""It is next to this package, both in a clone and when installed."""
SETTINGS = FOLDER / "server" / "config.toml"


def command(given: Sequence[str]) -> list[str]:
    """The arguments for Streamlit: the script, the default settings, and the given options, which override them."""
    named = {word.partition("=")[0] for word in given}
    return ["run", str(SCRIPT), *(option for option in default_options() if option.partition("=")[0] not in named), *given]


def default_options() -> Iterator[str]:
    """The default settings as options, which take precedence over a `.streamlit/config.toml` in the current folder."""
    for section, values in tomllib.loads(SETTINGS.read_text(encoding="utf-8")).items():
        for name, value in values.items():
            for one in value if isinstance(value, list) else [value]:
                yield f"--{section}.{name}={str(one).lower() if isinstance(one, bool) else one}"


def main(given: list[str]) -> None:
    if given[:1] == [SETTINGS_FROM_STDIN]:
        settings.give(settings.from_json(sys.stdin.buffer.read()))
        del given[0]
    from streamlit.web.cli import main as streamlit  # after the settings, which modules may read when they are imported

    streamlit(command(given), prog_name="python -m pages")


if __name__ == "__main__":
    main(sys.argv[1:])
