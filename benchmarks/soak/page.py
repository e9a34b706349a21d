"""The report of a soak: a page with tables, and a picture."""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import chain
from typing import Any

import plotly.graph_objects as go
from plotly.subplots import make_subplots

Row = dict[str, Any]

_INTRO = """\
# A soak

`make soak HOURS=1` (as root, with iproute2) runs a pipeline on the [test bed](testbed.md) while things fail at random: nodes,
hosts and racks are killed, hang, are cut off the network or become slow; executors, Spark workers and the driver are killed
or hang. A failure comes every 20 to 60 s, and some come two at a time; each ends, and what was killed is started again,
empty. The seed determines the failures: {command} repeats these. What is slow is stopped for 0.1 to 1.5 s, runs for 0.03 s,
and so on.

Every output is compared with that of a run without failures, which is computed without Spark. The command fails if a batch is
*lost* (it has no output), *duplicated* (two first outputs, or two corrections), *different*, or *never corrected*. *Repeated*
is harmless: a driver was killed after it had published an output and before its ledger said so, and the next driver published
the same output again, under the same batch and revision.

This page is written by `python -m benchmarks.soak --report docs`.
"""
_WHOLE = "{minutes:.0f} minutes, {day}, seed {seed}. {machine}. {pipeline}, half of the tasks replicated, {bed}."
_GROUPS = {
    "driver, Python": ("driver, Python", "#0072B2"),
    "driver, JVM": ("driver, JVM", "#56B4E9"),
    "executor": ("executors, JVMs", "#D55E00"),
    "Python workers": ("executors, Python", "#E69F00"),
    "node": ("nodes", "#009E73"),
}


def markdown(found: Row, picture: str) -> str:
    """The page; `picture` is the path of the picture from there."""
    day = time.strftime("%Y-%m-%d", time.gmtime(found["began"]))
    ended = f"**The run stopped early: {found['stopped']}**\n" if found["stopped"] else ""
    return "\n".join([
        _INTRO.format(**found),
        "## Result\n",
        _WHOLE.format(day=day, **found) + "\n",
        ended + _table([{"figure": name, "measured": value} for name, value in figures(found).items()]),
        f"![OF, delays and memory over time]({picture})\n",
        "## By failure\n",
        "An output counts for the last failure before it. Its delay counts from the end of its batch's interval.\n",
        _table(found["by_kind"]),
        "## Memory\n",
        "Resident memory, medians. A process that was killed starts again with little.\n",
        _table(found["memory"]),
    ])  # fmt: skip


def figures(found: Row) -> dict[str, str]:
    """The figures of the whole soak."""
    verdict, delay, failures = found["verdict"], found["delay"], found["failures"]
    share = found["accurate_at_once"] / max(1, found["published"])
    fidelity = f"{found['lowest_of']:.2f}, {found['mean_of']:.4f}" if found["published"] else "-"
    elsewhere = f"{found['late_without_driver']} not because the driver had failed and was catching up"
    return {
        "failures, of these two at once": f"{sum(len(row['seconds']) for row in failures)}, "
        f"{sum(2 for row in failures if len(row['seconds']) > 1)}",
        "batches": f"{found['published']:,} of {found['batches']:,}",
        "batches lost, duplicated, different, never corrected": ", ".join(
            _number(verdict[name]) for name in ("lost", "duplicated", "different", "uncorrected")
        ),
        "outputs repeated by the next driver": _number(verdict["repeated"]),
        "first outputs that were accurate": f"{found['accurate_at_once']:,} ({share:.1%})",
        "lowest OF, mean OF of first outputs": fidelity,
        f"outputs late (more than {found['deadline']:g} s)": f"{found['late']}, of these {elsewhere}",
        "outputs more than a second late": str(found["much_late"]),
        "delay of the first output, p50, p99, worst": ", ".join(
            "-" if delay[name] is None else f"{delay[name]:.2f} s" for name in ("p50", "p99", "worst")
        ),
        "drivers that died unexpectedly": str(len(found["unplanned_driver_deaths"])),
        "failures that the test bed could not end": str(len(found["troubles"])),
    }


def picture(found: Row) -> go.Figure:
    """OF, delays and memory over time, with the failures as stripes."""
    titles = ("OF of first outputs", "delay of first outputs, s", "resident memory, GB")
    figure = make_subplots(rows=3, cols=1, shared_xaxes=True, subplot_titles=titles, vertical_spacing=0.06)
    outputs = found["outputs"]
    minutes = [at / 60 for _, at, _, _ in outputs]
    figure.add_scatter(
        x=minutes, y=[of for *_, of in outputs], row=1, col=1, name="OF", mode="lines", line={"color": "#0072B2", "width": 1}
    )
    figure.add_scatter(
        x=minutes, y=[delay for _, _, delay, _ in outputs], row=2, col=1, name="delay", mode="markers",
        marker={"color": "#000000", "size": 3},
    )  # fmt: skip
    figure.add_hline(y=found["deadline"], row=2, col=1, line={"dash": "dot", "color": "#D55E00"})
    for prefix, (name, colour) in _GROUPS.items():
        sums = [sum(mb for one, mb in sample.items() if _group(one) == prefix) / 1024 for _, sample in found["samples"]]
        figure.add_scatter(x=[at / 60 for at, _ in found["samples"]], y=sums, row=3, col=1, name=name, line={"color": colour})
    for row in found["failures"]:
        last = max(chain((end for end in row["ends"] if end is not None), [row["at"] + 1]))
        colour = "#D55E00" if "driver" in row["what"] else "#999999"
        figure.add_vrect(x0=row["at"] / 60, x1=last / 60, fillcolor=colour, opacity=0.25, line_width=0, row="all", col=1)
    figure.update_layout(
        template="plotly_white", height=820, font={"size": 13}, legend={"orientation": "h", "y": -0.08},
        title={"text": f"A soak of {found['minutes']:.0f} minutes; failures grey, those of the driver orange", "x": 0.02},
    )  # fmt: skip
    figure.update_xaxes(title={"text": "minutes"}, row=3)
    figure.update_yaxes(range=[-0.04, 1.04], row=1)
    figure.update_yaxes(type="log", row=2)
    figure.update_yaxes(rangemode="tozero", row=3)
    return figure


def _group(name: str) -> str:
    if name[:1] in "ns" and name[1:].isdecimal():
        return "node"
    return next((prefix for prefix in _GROUPS if name.startswith(prefix)), "")


def _number(batches: Sequence[int]) -> str:
    named = ", ".join(map(str, batches[:10])) + (", …" if len(batches) > 10 else "")
    return f"{len(batches)} ({named})" if batches else "0"


def _table(rows: Sequence[Row]) -> str:
    if not rows:
        return "None.\n"
    lines = [" | ".join(rows[0]), "|".join("---" for _ in rows[0])]
    lines += [" | ".join("-" if value is None else str(value) for value in row.values()) for row in rows]
    return "\n".join(f"| {line} |" if "---" not in line else f"|{line}|" for line in lines) + "\n"
