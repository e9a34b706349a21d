"""The command line as other programs use it: JSON shapes, exit codes, and one clear line for whatever is wrong."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from ppa_core.cli import main
from ppa_core.cli import planning as planning_commands
from ppa_core.topology import Build, dumps, load, loads

ROOT = Path(__file__).parents[2]
PLAN_FIELDS = ["planner", "metric", "budget", "tasks", "of", "ic", "status", "bound", "seconds"]


class Result(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        return json.loads(self.out, parse_constant=lambda name: pytest.fail(f"{name} in JSON"))


Run = Callable[..., Result]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs a command in this process, with `stdin` on its standard input."""

    def call(*argv: str, stdin: bytes = b"") -> Result:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        try:
            code = main(argv)
        except SystemExit as stop:
            code = int(stop.code or 0)
        return Result(code, *capsys.readouterr())

    return call


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    """A topology whose names look like markup and options."""
    topology = (
        Build("[red]loud[/red] :smile: <script>alert(1)</script>")
        .source("[bold]S[/bold]", 2, rate=10)
        .operator("<b&amp;--json", 1, {"[bold]S[/bold]": "full"})
        .done()
    )
    path = tmp_path / "hostile.json"
    path.write_text(dumps(topology), encoding="utf-8")
    return path


# --- fidelity


@pytest.mark.parametrize(
    ("option", "tasks", "of", "ic"),
    [
        ("--failed", "O2.2", 0.6, 0.75),
        ("--alive", "O1.1,O1.2,O2.1,O3.1", 0.6, 0.75),
        ("--alive", " O1.1 , O1.2, O2.1,O3.1", 0.6, 0.75),
        ("--alive", "", 0.0, 0.0),
        ("--failed", "", 1.0, 1.0),
    ],
)
def test_fidelity_of_the_papers_example(run: Run, option: str, tasks: str, of: float, ic: float) -> None:
    result = run("fidelity", "loss_model", option, tasks, "--json")
    assert result.code == 0
    assert result.err == ""
    assert result.document == {"of": pytest.approx(of), "ic": pytest.approx(ic)}


def test_fidelity_says_that_external_tasks_never_fail(run: Run) -> None:
    result = run("fidelity", "q1", "--failed", "servers.1", "--json")
    assert (result.code, result.document) == (0, {"of": 1.0, "ic": 1.0})
    assert "servers.1" in result.err
    assert "never fail" in result.err


def test_fidelity_in_words(run: Run) -> None:
    result = run("fidelity", "loss_model", "--failed", "O2.2")
    assert "4 of 5 tasks alive" in result.out
    assert "0.600000" in result.out


# --- mctrees


@pytest.mark.parametrize(("example", "count"), [("mc_trees", 16), ("mc_trees_join", 8), ("tree", 16)])
def test_mctrees_counts_and_lists(run: Run, example: str, count: int) -> None:
    assert run("mctrees", example, "--json").document == {"count": count}
    listed = run("mctrees", example, "--list", "--json").document
    assert list(listed) == ["count", "trees"]
    assert listed["count"] == count
    assert len({tuple(tree) for tree in listed["trees"]}) == count


def test_mctrees_of_the_paper_with_a_join_take_one_task_of_each_stream(run: Run) -> None:
    trees = run("mctrees", "mc_trees_join", "--list", "--json").document["trees"]
    assert all([task.partition(".")[0] for task in tree] == ["O1", "O2", "O3", "O4"] for tree in trees)


def test_mctrees_limit(run: Run) -> None:
    document = run("mctrees", "tree", "--list", "--limit", "3", "--json").document
    assert (document["count"], len(document["trees"])) == (16, 3)


def _full_chain(operators: int, tasks: int) -> bytes:
    rows: list[dict[str, Any]] = [{"name": f"O{i}", "tasks": tasks} for i in range(operators)]
    rows[0]["rate"] = 1
    edges = [{"from": f"O{i}", "to": f"O{i + 1}", "partitioning": "full"} for i in range(operators - 1)]
    return json.dumps({"name": "chain", "operators": rows, "edges": edges}).encode()


def test_mctrees_counts_what_nobody_can_list(run: Run) -> None:
    chain = _full_chain(10, 20)
    assert run("mctrees", "-", "--json", stdin=chain).document == {"count": 20**10}
    assert len(run("mctrees", "-", "--list", "--limit", "2", "--json", stdin=chain).document["trees"]) == 2
    refused = run("mctrees", "-", "--list", stdin=chain)
    assert refused.code == 2
    assert "--limit" in refused.err


@pytest.mark.slow
def test_mctrees_count_of_five_thousand_digits(run: Run) -> None:
    result = run("mctrees", "-", "--json", stdin=_full_chain(5000, 10))
    assert result.code == 0
    assert result.out == '{"count": 1' + "0" * 5000 + "}\n"
    assert "10^5000" in run("mctrees", "-", stdin=_full_chain(5000, 10)).out


def test_mctrees_of_a_large_shared_join_are_counted_without_the_tasks_they_die_with(run: Run) -> None:
    build = Build("shared").source("A", 5000, rate=1)
    for name in "BC":
        build = build.operator(name, 5000, {"A": "one-to-one"})
    shared = build.operator("D", 5000, {"B": "one-to-one", "C": "one-to-one"}, join=True).done()
    result = run("mctrees", "-", stdin=dumps(shared).encode())
    assert result.code == 0
    assert result.out.startswith("shared: 5,000 MC-trees\nthe tasks contained in most trees are not shown: ")
    assert result.out.count("\n") == 2


# --- plan and compare


@pytest.mark.parametrize("planner", ["greedy", "structure_aware", "exact", "default"])
@pytest.mark.parametrize("metric", ["of", "ic"])
def test_plan_has_exactly_the_agreed_fields(run: Run, planner: str, metric: str) -> None:
    result = run("plan", "tree", "--budget", "8", "--planner", planner, "--metric", metric, "--json")
    assert (result.code, result.err) == (0, "")
    document = result.document
    assert list(document) == PLAN_FIELDS
    assert (document["planner"], document["metric"], document["budget"]) == (planner, metric, 8)
    assert len(set(document["tasks"])) == len(document["tasks"]) <= 8
    assert document["status"] in {"optimal", "heuristic", "time_limit"}
    assert document["bound"] is None or document["bound"] >= document[metric] - 1e-9
    again = run("fidelity", "tree", "--alive", ",".join(document["tasks"]), "--json").document
    assert again == {"of": pytest.approx(document["of"]), "ic": pytest.approx(document["ic"])}


def test_plan_trace_ends_at_the_plan(run: Run) -> None:
    document = run("plan", "tree", "--budget", "8", "--planner", "greedy", "--trace", "--json").document
    assert list(document) == [*PLAN_FIELDS, "steps"]
    held: set[str] = set()
    for step in document["steps"]:
        assert list(step) == ["added", "removed", "value", "note"]
        held = held - set(step["removed"]) | set(step["added"])
    assert held == set(document["tasks"])
    assert document["steps"][-1]["value"] == pytest.approx(document["of"])


def test_plan_in_words(run: Run) -> None:
    result = run("plan", "tree", "--budget", "31", "--trace")
    assert result.code == 0
    assert "31 of 31 tasks replicated" in result.out
    assert "16 of 16" in result.out
    assert "1.000000" in result.out


@pytest.mark.parametrize(
    ("text", "budgets"),
    [("5", [5]), ("0:3", [0, 1, 2, 3]), ("0:31:10", [0, 10, 20, 30]), ("3,1,2,2", [1, 2, 3]), ("0:2,30:31", [0, 1, 2, 30, 31])],
)
def test_compare_has_a_row_per_planner_and_budget(run: Run, text: str, budgets: list[int]) -> None:
    result = run("compare", "tree", "--budgets", text, "--planners", "greedy,structure_aware", "--json")
    assert (result.code, result.err) == (0, "")
    rows = result.document
    assert sorted((row["planner"], row["budget"]) for row in rows) == [
        (planner, budget) for planner in ("greedy", "structure_aware") for budget in budgets
    ]
    assert all(list(row) == PLAN_FIELDS for row in rows)


def test_compare_in_words_marks_what_is_proven(run: Run) -> None:
    result = run("compare", "loss_model", "--planners", "greedy,exact")
    assert result.code == 0
    assert "OF by budget" in result.out
    assert "1.0000*" in result.out


@pytest.mark.parametrize(("suffix", "start"), [(".png", b"\x89PNG"), (".html", b"<"), (".PNG", b"\x89PNG")])
@pytest.mark.slow
def test_compare_draws_the_curves(run: Run, tmp_path: Path, suffix: str, start: bytes) -> None:
    target = tmp_path / f"curves{suffix}"
    result = run("compare", "loss_model", "--planners", "greedy", "--plot", str(target), "--json")
    assert result.code == 0
    assert len(result.document) == 6
    assert str(target) in result.err
    assert target.read_bytes().startswith(start)


# --- decompose, generate, examples


def test_decompose_names_every_operator_once(run: Run) -> None:
    parts = run("decompose", "mc_trees", "--json").document["subtopologies"]
    assert [(part["kind"], part["operators"]) for part in parts] == [("structured", ["O1", "O2", "O3"]), ("full", ["O4"])]
    assert len(parts[0]["units"][0]["segments"]) == 8
    assert parts[1]["units"] == []
    words = run("decompose", "mc_trees")
    assert words.code == 0
    assert "2 sub-topologies" in words.out


def test_generate_is_a_topology_file_and_reproducible(run: Run, tmp_path: Path) -> None:
    ranges = ["--operators", "5:10", "--tasks", "2:4"]
    wanted = ["generate", *ranges, "--seed", "7", "--zipf", "0.1", "--structure", "mixed", "--joins", "0.5", "--sharing", "0.3"]
    first, second = run(*wanted), run(*wanted, "--json")
    assert first.code == 0
    assert first.out == second.out
    topology = loads(first.out)
    assert 5 <= len(topology.operators) <= 10
    assert {operator.tasks for operator in topology.operators} <= {2, 3, 4}
    target = tmp_path / "random.json"
    written = run(*wanted, "--output", str(target))
    assert (written.code, written.out) == (0, "")
    assert load(target) == topology
    assert run("fidelity", str(target), "--failed", "", "--json").document["of"] == 1.0
    assert run("generate", "--operators", "3", "--seed", "8").out != first.out


def test_generated_topology_goes_through_a_pipe(run: Run) -> None:
    made = run("generate", "--operators", "5", "--tasks", "1:3", "--seed", "1").out
    result = run("plan", "-", "--budget", "2", "--planner", "greedy", "--json", stdin=made.encode())
    assert result.code == 0
    assert result.document["budget"] == 2


def test_examples_can_all_be_named_for_a_file(run: Run) -> None:
    rows = run("examples", "--json").document
    assert {"loss_model", "mc_trees", "mc_trees_join", "tree", "q1", "q2"} <= {row["name"] for row in rows}
    for row in rows:
        assert run("mctrees", row["name"], "--json").document["count"] >= 1
        assert row["name"] in run("examples").out


def test_a_file_goes_before_the_example_of_its_name(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("tree").write_bytes(_full_chain(2, 3))
    assert run("mctrees", "tree", "--json").document == {"count": 9}


# --- whatever is wrong: one line with place, reason and remedy, and exit code 2


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["plan", "nowhere.json", "--budget", "1"], ["nowhere.json", "no such file", "tree"]),
        (["plan", "/", "--budget", "1"], ["/", "no such file"]),
        (["plan", "x" * 5000, "--budget", "1"], ["no such file"]),
        (["plan", "tree", "--budget", "-1"], ["budget", "-1", "31"]),
        (["plan", "tree", "--budget", "32"], ["budget", "32", "31"]),
        (["plan", "tree", "--budget", "many"], ["--budget", "'many'", "whole number"]),
        (["plan", "tree", "--budget", "9" * 5000], ["--budget", "whole number"]),
        (["plan", "tree"], ["--budget", "--help"]),
        (["plan", "tree", "--budget", "1", "--planner", "magic"], ["magic", "greedy"]),
        (["plan", "tree", "--budget", "1", "--metric", "xy"], ["--metric", "of", "ic"]),
        (["plan", "tree", "--budget", "1", "--time-limit", "0"], ["--time-limit", "positive"]),
        (["plan", "tree", "--budget", "1", "--time-limit", "nan"], ["--time-limit", "positive"]),
        (["plan", "tree", "--budget", "1", "--time-limit", "inf"], ["--time-limit", "positive"]),
        (["fidelity", "tree"], ["--alive", "--failed"]),
        (["fidelity", "tree", "--alive", "O1.1", "--failed", "O1.2"], ["--failed", "--alive"]),
        (["fidelity", "tree", "--alive", "O1.99"], ["O1.99", "O1.1"]),
        (["fidelity", "tree", "--alive", "O1.1,,O1.2"], ["--alive", "empty"]),
        (["mctrees", "tree", "--list", "--limit", "0"], ["--limit", "at least 1"]),
        (["compare", "tree", "--budgets", "x"], ["--budgets", "0:31:5"]),
        (["compare", "tree", "--budgets", "5:1"], ["--budgets", "0:31:5"]),
        (["compare", "tree", "--budgets", "0:5:0"], ["--budgets", "0:31:5"]),
        (["compare", "tree", "--budgets", "0:5:1:1"], ["--budgets", "0:31:5"]),
        (["compare", "tree", "--budgets", "1,,2"], ["--budgets", "0:31:5"]),
        (["compare", "tree", "--budgets", ""], ["--budgets", "0:31:5"]),
        (["compare", "tree", "--budgets", "0:32"], ["--budgets", "32", "0:31"]),
        (["compare", "tree", "--budgets", "0:99999999999999999999"], ["--budgets", "0:31"]),
        (["compare", "tree", "--budgets=-1:3"], ["--budgets", "-1"]),
        (["compare", "tree", "--planners", ""], ["--planners", "greedy"]),
        (["compare", "tree", "--planners", "greedy,magic"], ["magic", "greedy"]),
        (["compare", "tree", "--plot", "curves.gif"], ["curves.gif", ".png"]),
        (["compare", "tree", "--plot", "curves"], ["curves", ".png"]),
        (["compare", "tree", "--plot", "/no/such/folder/curves.png"], ["curves.png", "/no/such/folder"]),
        (["compare", "loss_model", "--planners", "greedy", "--plot", "x" * 300 + ".html"], ["cannot be written"]),
        (["generate", "--operators", "5:3", "--seed", "1"], ["operators", "5:3"]),
        (["generate", "--operators", "a:b", "--seed", "1"], ["--operators", "LOW:HIGH"]),
        (["generate", "--tasks", "0", "--seed", "1"], ["tasks", "0:0"]),
        (["generate", "--seed", "-1"], ["seed", "-1"]),
        (["generate", "--seed", "1", "--joins", "2"], ["joins", "2"]),
        (["generate", "--seed", "1", "--zipf", "nan"], ["--zipf", "nan"]),
        (["generate", "--seed", "1", "--structure", "round"], ["--structure", "mixed"]),
        (["generate", "--seed", "1", "--output", "/no/such/folder/file.json"], ["/no/such/folder/file.json", "written"]),
        (["generate"], ["--seed"]),
        (["conquer"], ["conquer", "plan"]),
        ([], ["COMMAND", "--help"]),
    ],
)
@pytest.mark.parametrize("json_too", [False, True])
def test_bad_input_is_answered_in_one_line(run: Run, argv: list[str], words: list[str], json_too: bool) -> None:
    result = run(*argv, *(["--json"] if json_too else []))
    assert result.code == 2
    assert result.out == ""
    assert result.err.startswith("error: ")
    assert result.err.count("\n") == 1
    assert len(result.err) < 6000
    for word in words:
        assert word in result.err


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", ["line 1 column 1"]),
        (b"\xff\xfe", ["UTF-8", "byte 0"]),
        (b"[]", ["object"]),
        (b'{"operators": []}', ["operators", "at least one"]),
        (
            json.dumps(
                {
                    "operators": [{"name": "O0", "tasks": 1, "rate": 1e15}]
                    + [{"name": f"O{i}", "tasks": 1, "selectivity": 1e15} for i in range(1, 25)],
                    "edges": [{"from": f"O{i}", "to": f"O{i + 1}", "partitioning": "full"} for i in range(24)],
                }
            ).encode(),
            ["operator 'O19'", "overflows"],
        ),
        (b'{"operators": [{"name": "A", "tasks": 1, "rate": NaN}]}', ["NaN"]),
        (b'{"name": "A\\u001b[31m", "operators": [{"name": "A", "tasks": 1, "rate": 1}]}', ["name"]),
        (b'{"operators": [{"name": "A\\u001b[31m", "tasks": 1, "rate": 1}]}', ["operators[0].name"]),
        (b'{"operators": [{"name": "A", "tasks": 1, "rate": 1, "weights": [1]}]}', ["operators[0] 'A'", "weights"]),
        (b'{"operators": [{"name": "A", "tasks": 1, "rate": 1, "\\u001b[31m": 2}]}', ["unknown field"]),
    ],
)
def test_bad_topologies_are_refused_from_a_file_and_from_standard_input(
    run: Run, tmp_path: Path, content: bytes, words: list[str]
) -> None:
    path = tmp_path / "bad.json"
    path.write_bytes(content)
    for result, place in ((run("mctrees", str(path)), str(path)), (run("mctrees", "-", stdin=content), "standard input")):
        assert (result.code, result.out) == (2, "")
        assert result.err.startswith(f"error: {place}: ")
        assert result.err.count("\n") == 1
        assert "\x1b" not in result.err
        for word in words:
            assert word in result.err


def test_interruption_is_one_line_and_130(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(planning_commands, "plan", interrupted)
    assert run("plan", "tree", "--budget", "1", "--json") == (130, "", "error: stopped\n")


# --- names are text


def test_hostile_names_are_shown_as_they_are(run: Run, hostile: Path, tmp_path: Path) -> None:
    target = tmp_path / "hostile.html"
    for argv in (
        ["fidelity", str(hostile), "--alive", "[bold]S[/bold].1"],
        ["mctrees", str(hostile)],
        ["mctrees", str(hostile), "--list"],
        ["decompose", str(hostile)],
        ["plan", str(hostile), "--budget", "2", "--trace"],
        ["compare", str(hostile), "--planners", "greedy", "--plot", str(target)],
    ):
        result = run(*argv)
        assert result.code == 0
        assert "[red]loud[/red] :smile: <script>alert(1)</script>" in result.out
    assert "[bold]S[/bold].1" in run("mctrees", str(hostile), "--list").out
    document = run("plan", str(hostile), "--budget", "3", "--json").document
    assert document["tasks"] == ["[bold]S[/bold].1", "[bold]S[/bold].2", "<b&amp;--json.1"]
    assert "<script>alert(1)" not in target.read_text(encoding="utf-8")


# --- as a program of its own


def _program(*argv: str, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "ppa_core", *argv], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False, **options
    )


def test_module_runs_and_json_may_stand_in_front() -> None:
    result = _program("--json", "mctrees", "tree")
    assert (result.returncode, result.stdout, result.stderr) == (0, '{"count": 16}\n', "")


def test_terminal_that_knows_only_ascii() -> None:
    result = _program("plan", "tree", "--budget", "3", "--planner", "greedy", env={**os.environ, "PYTHONIOENCODING": "ascii"})
    assert (result.returncode, result.stderr) == (0, "")


def test_closed_standard_input_is_bad_input() -> None:
    result = subprocess.run(
        f'"{sys.executable}" -m ppa_core mctrees - <&-',
        shell=True,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert result.returncode == 2
    assert result.stderr.startswith("error: standard input: ")


@pytest.mark.slow
@pytest.mark.parametrize("argv", ["plan tree --budget 3 --planner greedy", "mctrees tree --json", "--help", "conquer"])
def test_closed_output_is_a_failure_and_closed_errors_are_none(argv: str) -> None:
    def closed(redirections: str) -> subprocess.CompletedProcess[str]:
        command = f'"{sys.executable}" -m ppa_core {argv} {redirections}'
        return subprocess.run(command, shell=True, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)

    result = closed(">&-")
    assert (result.returncode, result.stderr) == (1, "error: output: standard output is closed\n")
    assert closed(">&- 2>&-").returncode == 1
    result, usual = closed("2>&-"), closed("")
    assert result.returncode == usual.returncode
    assert len(result.stdout.splitlines()) == len(usual.stdout.splitlines())


def test_reader_that_goes_away_ends_the_program_quietly() -> None:
    command = [sys.executable, "-m", "ppa_core", "mctrees", "-", "--list", "--limit", "200000"]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdin.write(_full_chain(10, 20))
        process.stdin.close()
        assert process.stdout.readline().startswith(b"chain: ")
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(timeout=60) == 1


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full, the disk that is always full")
@pytest.mark.parametrize("argv", [["examples"], ["examples", "--json"], ["mctrees", "tree", "--list", "--json"]])
def test_full_disk_is_a_failure_in_one_line(argv: list[str]) -> None:
    with Path("/dev/full").open("w") as full:
        command = [sys.executable, "-m", "ppa_core", *argv]
        result = subprocess.run(command, cwd=ROOT, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60, check=False)
    assert result.returncode == 1
    assert result.stderr == "error: output: cannot be written: No space left on device\n"
