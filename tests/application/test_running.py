"""What a program asks of a run: a wrong value is refused at once, and so is a pipeline that a driver could not find."""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ppa_core import BadInput, Pipeline, RunConfig, read_sink, run
from ppa_core.application.running import query_name
from ppa_core.cli.main import _parser
from ppa_core.cli.running import config_of
from ppa_core.queries import load_query
from ppa_core.queries.tree import tree

ROOT = Path(__file__).parents[2]


def test_a_command_line_without_options_asks_for_the_defaults() -> None:
    assert config_of(_parser().parse_args(["run", "tree"])) == RunConfig()


def test_the_command_line_is_the_same_config() -> None:
    words = "run tree --rate 5 --interval 2 --set tasks=[2,1] --budget 3 --sink console --name a --monitor --batches 7"
    options = {"rate": 5.0, "batch_seconds": 2.0, "tasks": [2, 1]}
    wanted = RunConfig(options=options, budget=3, sinks=["console"], name="a", monitor=True, batches=7)
    assert config_of(_parser().parse_args(words.split())) == wanted
    assert wanted.monitored


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({"budget": -1}, "budget: -1 is not a whole number of at least 0"),
        ({"budget": True}, "budget: True is not a whole number"),
        ({"budget": 1.0}, "budget: 1.0 is not a whole number"),
        ({"batches": 0}, "batches: 0 is not a whole number of at least 1"),
        ({"checkpoint_every": 0}, "checkpoint_every: 0 is not a whole number of at least 1"),
        ({"replan_gain": float("nan")}, "replan_gain: nan is not a number of at least 0"),
        ({"planner": "best"}, "planner: unknown planner 'best'; choose one of"),
        ({"metric": "x"}, "metric: unknown metric 'x'; choose one of of, ic"),
        ({"sinks": "console"}, "sinks: a string; write it as a list: ['console']"),
        ({"sinks": None}, "sinks: None is not a list of strings"),
        ({"sinks": [3]}, "sinks: [3] is not a list of strings"),
        ({"options": ["rate"]}, "options: ['rate'] is not a mapping"),
        ({"options": {3: "secret"}}, "options: the name 3 is not a string"),
        ({"planner": ["x"]}, "planner: unknown planner ['x']; choose one of"),
        ({"metric": {}}, "metric: unknown metric {}; choose one of of, ic"),
        ({"log_level": "verbose"}, "log_level: unknown log level 'verbose'; choose one of debug, info, warning, error"),
        ({"log_level": None}, "log_level: unknown log level None"),
        ({"output": 7}, "output: 7 is not a path, or None"),
        ({"nodes_file": 3}, "nodes_file: 3 is not a path, or None"),
        ({"master": 5}, "master: 5 is not a string, or None"),
        ({"monitor_url": 5}, "monitor_url: 5 is not a string, or None"),
        ({"monitor_directory": None}, "monitor_directory: None is not a path"),
        ({"monitor": "yes"}, "monitor: 'yes' is not True or False"),
        ({"name": 4}, "run '4': a name must have 1 to 100 letters"),
        ({"name": "../up"}, "a name must have 1 to 100 letters"),
    ],
)
def test_a_wrong_value_is_refused(wrong: dict[str, Any], reason: str) -> None:
    with pytest.raises(BadInput, match=re.escape(reason)):
        RunConfig(**wrong)


def test_a_config_does_not_change() -> None:
    sinks, options = ["console"], {"rate": 1}
    config = RunConfig(sinks=sinks, options=options)
    sinks.append("jsonl:out")
    options["rate"] = 2
    assert (config.sinks, config.options) == (("console",), {"rate": 1})
    with pytest.raises(AttributeError):
        config.budget = 3  # type: ignore[misc]


def test_a_function_of_a_file_is_found_by_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "own_of_this_test.py"
    path.write_text("from ppa_core.queries.tree import tree\n\n\ndef mine():\n    return tree(tasks=[2, 1])\n")
    monkeypatch.syspath_prepend(tmp_path)
    module = importlib.import_module("own_of_this_test")
    try:
        name = query_name(module.mine)
    finally:
        del sys.modules[module.__name__]
    assert name == f"{path}:mine"
    assert len(load_query(name).pipeline.operators) == 2


def test_a_function_of_a_package_is_found_by_its_module() -> None:
    assert query_name(tree) == "ppa_core.queries.tree:tree"
    assert query_name("words.py:words") == "words.py:words"


def test_what_another_process_cannot_find_is_refused() -> None:
    def within() -> Pipeline:
        return tree()

    for wrong in (lambda: tree(), within):
        with pytest.raises(BadInput, match="define it as a function at the top level of a file"):
            run(wrong)
    with pytest.raises(BadInput, match="it is not defined in a file"):
        run(len)  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="pass the function that returns the pipeline"):
        run(tree())  # type: ignore[arg-type]


def test_a_file_that_calls_run_whenever_it_is_loaded_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "always.py"
    path.write_text("from ppa_core import run\n\n\ndef mine():\n    pass\n\n\nrun(mine)\n")
    with pytest.raises(BadInput, match=re.escape('put the call below `if __name__ == "__main__":`')):
        load_query(f"{path}:mine")


@pytest.mark.drill
def test_the_readmes_word_count_runs_as_a_program(tmp_path: Path) -> None:
    (example,) = re.findall(r"^```python\n(.*?)^```$", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    (tmp_path / "words.py").write_text(example)
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.csv").write_text("line\nto be or\nnot to be\n")
    told = subprocess.run(
        [sys.executable, "words.py"], cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert told.returncode == 0, told.stderr
    assert told.stdout == ""
    records = list(read_sink(f"jsonl:{tmp_path}/out"))
    assert [record.batch for record in records] == list(range(10))
    assert dict(zip(*records[0].table.select(["word", "count"]).to_pydict().values(), strict=True))["be"] == 2
