"""`python -m pages`: the dashboard, from any folder. It takes the options of `streamlit run`, such as `--server.port 8600`."""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path

from ppa_core import settings
from ppa_core.settings import SETTINGS_FROM_STDIN

FOLDER = Path(__file__).parent
SCRIPT = FOLDER.with_name("app.py")
"""It lies beside this package, in a clone and where both are installed."""
SETTINGS = FOLDER / "server" / "config.toml"


def command(given: Sequence[str]) -> list[str]:
    """What Streamlit is told: the script and the settings that come with it. What is given takes their place."""
    named = {word.partition("=")[0] for word in given}
    return ["run", str(SCRIPT), *(option for option in shipped() if option.partition("=")[0] not in named), *given]


def shipped() -> Iterator[str]:
    """The shipped settings as options: a file of another folder, where the program is started, does not replace them."""
    for section, values in tomllib.loads(SETTINGS.read_text(encoding="utf-8")).items():
        for name, value in values.items():
            for one in value if isinstance(value, list) else [value]:
                yield f"--{section}.{name}={str(one).lower() if isinstance(one, bool) else one}"


def main(given: list[str]) -> None:
    if given[:1] == [SETTINGS_FROM_STDIN]:
        settings.give(settings.from_json(sys.stdin.buffer.read()))
        del given[0]
    from streamlit.web.cli import main as streamlit  # after the settings: what is imported now may look at them

    streamlit(command(given), prog_name="python -m pages")


if __name__ == "__main__":
    main(sys.argv[1:])
