"""Small programs in the driver's place: they read what a driver reads and tell what it tells. Pipes and processes are real."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from ppa_core.driver.config import Config
from ppa_core.driver.records import Settings
from ppa_core.process import driver

BEGIN = """
import json, os, sys, time
from pathlib import Path

HERE = Path(__file__).parent
config = json.loads(sys.stdin.readline())
with (HERE / "starts").open("a") as file:
    file.write(f"{os.getpid()}\\n")
start = len((HERE / "starts").read_text().splitlines())

def tell(kind, **more):
    print(json.dumps({"kind": kind, "at": 0.0, "batch": 0, **more}), flush=True)

def output(batch):
    tell("output", batch=batch, revision=1, status="accurate", of=1.0, missing=[], rows=0, digest="")

def say(**more):
    tell("starting", what=json.dumps(more))

def command():
    return json.loads(sys.stdin.readline())
"""
"""`start` is how often the program was started; `tell`, `output` and `command` are what a driver does with its pipes."""


class Program:
    """The program that is the driver from now on."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self._path = folder, folder / "program.py"
        monkeypatch.setattr(driver, "PROGRAM", (sys.executable, str(self._path)))

    def does(self, code: str) -> Config:
        """Have it do this; what to run it with."""
        self._path.write_text(f"{BEGIN}\n{code}\n")
        return Config("tree", {}, (), (), Settings(), "run", self.folder / "run")

    @property
    def pids(self) -> list[int]:
        """The process of every start."""
        return [int(pid) for pid in (self.folder / "starts").read_text().split()]
