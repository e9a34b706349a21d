"""The Python environment with Flink: packages that the project itself does not need."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

from ppa_core.errors import Unavailable

HERE = Path(__file__).parent
PINS = HERE / "requirements.txt"


class FlinkEnvironment:
    """The packages of requirements.txt in a virtual environment; installed if they are missing or others."""

    def __init__(self, folder: Path, say: Callable[[str], None]) -> None:
        folder = folder.resolve()
        self.python = folder / "bin/python"
        stamp = folder / ".installed"
        if not stamp.exists() or stamp.read_bytes() != PINS.read_bytes():
            say("installing Flink (about a minute, 300 MB)")
            _run("Flink's environment was not made", [sys.executable, "-m", "venv", "--clear", str(folder)])
            _run("Flink was not installed", install_command(self.python))
            stamp.write_bytes(PINS.read_bytes())
        self.home = next(folder.glob("lib/python3*/site-packages/pyflink"))

    def compiled(self, folder: Path) -> Path:
        """A jar with the class `Pace`."""
        _run("Pace.java was not compiled, which needs a Java with the module jdk.compiler", compile_command(self.home, folder))
        jar = folder / "pace.jar"
        with zipfile.ZipFile(jar, "w") as file:
            file.write(folder / "Pace.class", "Pace.class")
        return jar


def install_command(python: Path) -> list[str]:
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", "--require-hashes"]
    return [*pip, "--requirement", str(PINS)]


def compile_command(home: Path, folder: Path) -> list[str]:
    needed = [str(jar) for name in ("flink-table-api-java-uber", "flink-dist") for jar in home.glob(f"lib/{name}-*.jar")]
    compiler = ["java", "-m", "jdk.compiler/com.sun.tools.javac.Main", "-proc:none", "-cp", ":".join(needed)]
    return [*compiler, "-d", str(folder), str(HERE / "Pace.java")]


def _run(what: str, command: list[str]) -> None:
    ran = subprocess.run(command, capture_output=True, text=True)
    if ran.returncode:
        raise Unavailable(f"{what}: {' '.join((ran.stderr or ran.stdout).split())[-400:]}")
