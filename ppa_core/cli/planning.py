"""Commands that plan: `plan` and `compare`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.text import Text

from ppa_core.errors import RequestError
from ppa_core.fidelity import Metric
from ppa_core.opening import open_topology
from ppa_core.planners import DEFAULT, PLANNERS, Plan, Status, compare, plan
from ppa_core.terminal.arguments import add_file, add_metric, add_time_limit, budgets, budgets_within, comma_list, whole
from ppa_core.terminal.output import as_text, console, finite, headline, note, print_json, progress_bar, table
from ppa_core.topology import Topology

_STATUS_WORDS = {
    Status.OPTIMAL: "proven optimal: no plan within the budget is better",
    Status.HEURISTIC: "heuristic: not proven optimal",
    Status.TIME_LIMIT: "limit reached before a plan was proven optimal",
}
_STATUS_STYLES = {Status.OPTIMAL: "green", Status.HEURISTIC: "", Status.TIME_LIMIT: "yellow"}
_STATUS_MARKS = {Status.OPTIMAL: "*", Status.HEURISTIC: " ", Status.TIME_LIMIT: "~"}


def register(commands: Any) -> None:
    known = "planners:\n" + "\n".join(f"  {planner.name:16} {planner.summary}" for planner in PLANNERS.values())
    lines = argparse.RawDescriptionHelpFormatter
    one = commands.add_parser("plan", help="choose the tasks to replicate", epilog=known, formatter_class=lines)
    add_file(one)
    one.add_argument("--budget", type=whole, required=True, metavar="R", help="maximum number of replicas")
    one.add_argument("--planner", default=DEFAULT, metavar="NAME", help=f"one of the planners below (default: {DEFAULT})")
    add_metric(one)
    add_time_limit(one)
    one.add_argument("--trace", action="store_true", help="also show the planner's steps")
    one.set_defaults(command=show_plan)

    many = commands.add_parser("compare", help="compare planners over a range of budgets", epilog=known, formatter_class=lines)
    add_file(many)
    budgets_help = (
        "such as 5, 0:31, 0:31:5 (every fifth) or 1,2,3, including both ends (default: up to 33 budgets from 0 to all tasks)"
    )
    many.add_argument("--budgets", type=budgets, metavar="LIST", help=budgets_help)
    many.add_argument("--planners", metavar="NAMES", help="such as greedy,exact (default: all)")
    add_metric(many)
    add_time_limit(many)
    many.add_argument("--plot", type=Path, metavar="FILE", help="plot the curves to FILE.png or FILE.html")
    many.set_defaults(command=show_comparison)


def show_plan(arguments: argparse.Namespace) -> None:
    topology = open_topology(arguments.file)
    found = plan(topology, arguments.budget, arguments.planner, Metric(arguments.metric), arguments.time_limit)
    if arguments.json:
        print_json(_document(found, trace=arguments.trace))
        return
    _print_plan(topology, found)
    if arguments.trace:
        _print_steps(found)


def show_comparison(arguments: argparse.Namespace) -> None:
    from ppa_core import plots  # with plotly, which no other command needs

    if arguments.plot is not None:
        plots.check_target(arguments.plot)
    topology = open_topology(arguments.file)
    wanted = budgets_within(arguments.budgets, len(topology.tasks)) if arguments.budgets else plots.budget_grid(topology)
    planners = None if arguments.planners is None else comma_list("--planners", arguments.planners)
    if planners == []:
        raise RequestError("--planners", f"the list is empty; the planners are {', '.join(PLANNERS)}")
    metric = Metric(arguments.metric)
    with progress_bar() as bar:
        shown = bar.add_task("planning", total=None)
        found = compare(
            topology,
            wanted,
            planners,
            metric,
            arguments.time_limit,
            lambda planner, done, total: bar.update(shown, description=planner, completed=done, total=total),
        )
    if arguments.plot is not None:
        plots.write_figure(plots.budget_curve(found, topology.name, metric), arguments.plot)
        note(f"plot written to {arguments.plot}")
    if arguments.json:
        print_json([_document(row) for row in found])
    else:
        _print_comparison(topology, found)


def _document(found: Plan, *, trace: bool = False) -> dict[str, Any]:
    document: dict[str, Any] = {
        "planner": found.planner,
        "metric": found.metric.value,
        "budget": found.budget,
        "tasks": list(found.tasks),
        "of": finite(found.of),
        "ic": finite(found.ic),
        "status": found.status.value,
        "bound": finite(found.bound),
        "seconds": finite(found.seconds),
    }
    if trace:
        document["steps"] = [
            {"added": list(step.added), "removed": list(step.removed), "value": finite(step.value), "note": step.note}
            for step in found.steps
        ]
    return document


def _print_plan(topology: Topology, found: Plan) -> None:
    replicable = len(topology.tasks) - len(topology.external_tasks)
    headline(f"{topology.name}: {len(found.tasks)} of {replicable} tasks replicated, chosen by {found.planner}")
    rows = table("operator", "replicated", "tasks", right=["replicated"])
    chosen = set(found.tasks)
    for operator in topology.operators:
        numbers = [n for n in range(1, operator.tasks + 1) if operator.task(n) in chosen]
        share = "external" if operator.external else f"{len(numbers)} of {operator.tasks}"
        rows.add_row(operator.name, share, Text(_runs(numbers), style="green"))
    out = console()
    out.print(rows)
    for metric, value, words in ((Metric.OF, found.of, "output fidelity"), (Metric.IC, found.ic, "internal completeness")):
        style = "bold" if metric is found.metric else ""
        out.print(f"{metric.value.upper()}      {value:.6f}  {words} with only these tasks alive", style=style)
    out.print(f"status  {_STATUS_WORDS[found.status]}", style=_STATUS_STYLES[found.status])
    if found.bound is not None and found.status is not Status.OPTIMAL:
        out.print(f"bound   {found.bound:.6f}  no plan within the budget exceeds this {found.metric.value.upper()}")
    out.print(f"time    {found.seconds:.3f} s", style="dim")


def _runs(numbers: Sequence[int]) -> str:
    """Ascending numbers with consecutive ones as ranges: 1–4, 7, 9."""
    runs: list[list[int]] = []
    for n in numbers:
        if runs and runs[-1][-1] == n - 1:
            runs[-1] = [runs[-1][0], n]
        else:
            runs.append([n])
    return ", ".join("–".join(map(str, run)) for run in runs)


def _print_steps(found: Plan) -> None:
    rows = table("step", "added", "removed", found.metric.value.upper(), "why", right=["step"])
    for i, step in enumerate(found.steps, 1):
        rows.add_row(str(i), ", ".join(step.added), ", ".join(step.removed), f"{step.value:.4f}", as_text(step.note))
    console().print(rows)


def _print_comparison(topology: Topology, found: Sequence[Plan]) -> None:
    planners = list(dict.fromkeys(row.planner for row in found))
    cells = {(row.planner, row.budget): row for row in found}
    headline(f"{topology.name}: {found[0].metric.value.upper()} by budget, of {len(topology.tasks)} tasks")
    rows = table("budget", *planners, right=["budget", *planners])
    for budget in dict.fromkeys(row.budget for row in found):
        across = [cells[planner, budget] for planner in planners]
        best = max(row.value for row in across)
        rows.add_row(str(budget), *(_cell(row, best) for row in across))
    seconds = [sum(row.seconds for row in found if row.planner == planner) for planner in planners]
    rows.add_section()
    rows.add_row("time", *(Text(f"{total:.2f} s ", style="dim") for total in seconds))
    out = console()
    out.print(rows)
    out.print("* proven optimal   ~ stopped at a limit   bold: the best of the row", style="dim")


def _cell(row: Plan, best: float) -> Text:
    style = f"bold {_STATUS_STYLES[row.status]}".strip() if row.value >= best - 1e-9 else "dim"
    return Text(f"{row.value:.4f}{_STATUS_MARKS[row.status]}", style=style)
