"""Reading and writing topology files (JSON). Every error in a file is a `TopologyError` with place and reason."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from difflib import get_close_matches
from enum import StrEnum
from pathlib import Path
from typing import Any, Never, TypeVar

from ppa_core.errors import TopologyError
from ppa_core.topology.model import Topology
from ppa_core.topology.operators import MAX_TASKS, Edge, Input, Operator, Partitioning

MAX_BYTES = 256 * 1024 * 1024
MAX_DIGITS = 1000

_TOP = {"name", "operators", "edges", "measured"}
_OPERATOR = {"name", "tasks", "rate", "input", "selectivity", "weights", "external"}
_EDGE = {"from", "to", "partitioning"}

Kind = TypeVar("Kind", bound=StrEnum)


def load(path: str | Path) -> Topology:
    """Read a topology file."""
    path = Path(path)
    try:
        if path.stat().st_size > MAX_BYTES:
            raise TopologyError(str(path), f"larger than {MAX_BYTES >> 20} MiB; this is not a topology file")
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise TopologyError(str(path), f"cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise TopologyError(str(path), f"not UTF-8 text (byte {error.start}); a topology file is JSON") from error
    except ValueError as error:
        raise TopologyError(repr(str(path)), f"not a valid file name: {error}") from error
    try:
        return loads(text)
    except TopologyError as error:
        raise TopologyError(f"{path}: {error.place}", error.reason) from error


def loads(text: str, max_tasks: int = MAX_TASKS) -> Topology:
    """Read a topology from JSON text. One with more than `max_tasks` tasks is refused before any task is created."""
    try:
        document = json.loads(text, object_pairs_hook=_no_duplicates, parse_constant=_no_constant, parse_int=_whole)
    except json.JSONDecodeError as error:
        raise TopologyError(f"line {error.lineno} column {error.colno}", f"not valid JSON: {error.msg}") from error
    except RecursionError as error:
        raise TopologyError("file", "nested too deeply; this is not a topology file") from error
    return from_dict(document, max_tasks)


def dump(topology: Topology, path: str | Path) -> None:
    """Write a topology file."""
    try:
        Path(path).write_text(dumps(topology) + "\n", encoding="utf-8")
    except OSError as error:
        raise TopologyError(str(path), f"cannot be written: {error.strerror}") from error


def dumps(topology: Topology) -> str:
    """A topology as JSON text, one operator or edge a line."""
    document = to_dict(topology)
    parts = [f'"name": {json.dumps(document["name"], ensure_ascii=False)}']
    for key in ("operators", "edges"):
        rows = ",\n  ".join(json.dumps(row, ensure_ascii=False) for row in document[key])
        parts.append(f'"{key}": [\n  {rows}]' if rows else f'"{key}": []')
    if "measured" in document:
        parts.append(f'"measured": {json.dumps(document["measured"], ensure_ascii=False)}')
    return "{" + ",\n ".join(parts) + "}"


def to_dict(topology: Topology) -> dict[str, Any]:
    """The topology as a JSON document, without fields that have their default value."""
    document: dict[str, Any] = {
        "name": topology.name,
        "operators": [_operator_document(operator) for operator in topology.operators],
        "edges": [{"from": e.source, "to": e.target, "partitioning": e.partitioning.value} for e in topology.edges],
    }
    if topology.measured:
        document["measured"] = {key: _plain(value) for key, value in topology.measured.items()}
    return document


def _operator_document(operator: Operator) -> dict[str, Any]:
    document: dict[str, Any] = {"name": operator.name, "tasks": operator.tasks}
    if operator.rate is not None:
        same = len(set(operator.rate)) == 1
        document["rate"] = _plain(operator.rate[0]) if same else [_plain(rate) for rate in operator.rate]
    if operator.input is not Input.INDEPENDENT:
        document["input"] = operator.input.value
    if operator.selectivity != 1:
        document["selectivity"] = _plain(operator.selectivity)
    if operator.weights:
        document["weights"] = [_plain(weight) for weight in operator.weights]
    if operator.external:
        document["external"] = True
    return document


def _plain(value: float) -> float | int:
    return int(value) if value == int(value) else value


def from_dict(document: Any, max_tasks: int = MAX_TASKS) -> Topology:
    """The topology of a parsed document. One with more than `max_tasks` tasks is refused before any task is created."""
    _fields("file", document, _TOP, required={"operators"})
    operators = _list("operators", document["operators"])
    edges = _list("edges", document.get("edges", []))
    _limit_tasks(operators, max_tasks)
    measured = document.get("measured", {})
    if not isinstance(measured, Mapping):
        _wrong("measured", measured, "an object that maps substreams to rates")
    return Topology(
        name=_text("name", document.get("name", "unnamed")),
        operators=tuple(_operator(f"operators[{i}]", row) for i, row in enumerate(operators)),
        edges=tuple(_edge(f"edges[{i}]", row) for i, row in enumerate(edges)),
        measured={key: _number(f"measured[{key!r}]", value) for key, value in measured.items()},
    )


def _limit_tasks(operators: list[Any], most: int) -> None:
    """Check the total first, because a small file can request a million tasks. Invalid rows are refused later."""
    asked = (row.get("tasks") for row in operators if isinstance(row, dict))
    total = sum(tasks for tasks in asked if isinstance(tasks, int) and tasks > 0)
    if most < MAX_TASKS and total > most:  # beyond MAX_TASKS the topology itself refuses
        raise TopologyError("operators", f"{_shown(total)} tasks in all; the limit here is {most}")


def _operator(place: str, row: Any) -> Operator:
    _fields(place, row, _OPERATOR, required={"name", "tasks"})
    name = _text(f"{place}.name", row["name"])
    place = f"{place} {name!r}"
    tasks = row["tasks"]
    if not isinstance(tasks, int) or isinstance(tasks, bool):
        _wrong(f"{place}.tasks", tasks, "a whole number")
    if not 1 <= tasks <= MAX_TASKS:
        raise TopologyError(f"{place}.tasks", f"{_shown(tasks)} is not a number of tasks from 1 to {MAX_TASKS}")
    external = row.get("external", False)
    if not isinstance(external, bool):
        _wrong(f"{place}.external", external, "true or false")
    weights = _numbers(f"{place}.weights", row["weights"]) if "weights" in row else ()
    if "weights" in row and not weights:
        raise TopologyError(f"{place}.weights", f"0 weights for {tasks} tasks; give one number per task")
    return Operator(
        name=name,
        tasks=tasks,
        rate=_rate(f"{place}.rate", row["rate"], tasks) if "rate" in row else None,
        input=_choice(f"{place}.input", row.get("input", Input.INDEPENDENT), Input),
        selectivity=_number(f"{place}.selectivity", row.get("selectivity", 1)),
        weights=weights,
        external=external,
    )


def _rate(place: str, value: Any, tasks: int) -> tuple[float, ...]:
    if isinstance(value, list):
        return _numbers(place, value)
    return (_number(place, value),) * tasks


def _edge(place: str, row: Any) -> Edge:
    _fields(place, row, _EDGE, required=_EDGE)
    return Edge(
        source=_text(f"{place}.from", row["from"]),
        target=_text(f"{place}.to", row["to"]),
        partitioning=_choice(f"{place}.partitioning", row["partitioning"], Partitioning),
    )


def _fields(place: str, row: Any, allowed: set[str], required: set[str]) -> None:
    if not isinstance(row, dict):
        _wrong(place, row, "an object")
    for key in row:
        if key not in allowed:
            near = get_close_matches(key, allowed, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"the fields are {', '.join(sorted(allowed))}"
            raise TopologyError(place, f"unknown field {_shown(key)}; {hint}")
    for key in sorted(required):
        if key not in row:
            raise TopologyError(place, f"the field {key!r} is missing")


def _list(place: str, value: Any) -> list[Any]:
    if not isinstance(value, list):
        _wrong(place, value, "a list")
    return value


def _text(place: str, value: Any) -> str:
    if not isinstance(value, str):
        _wrong(place, value, "a string")
    return value


def _number(place: str, value: Any) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool):
        _wrong(place, value, "a number")
    try:
        return float(value)
    except OverflowError:
        raise TopologyError(place, f"{_shown(value)} is too large") from None


def _numbers(place: str, value: Any) -> tuple[float, ...]:
    return tuple(_number(f"{place}[{k}]", item) for k, item in enumerate(_list(place, value)))


def _choice(place: str, value: Any, kind: type[Kind]) -> Kind:
    try:
        return kind(value)
    except ValueError:
        raise TopologyError(place, f"{_shown(value)} is not one of {', '.join(kind)}") from None


def _wrong(place: str, value: Any, wanted: str) -> Never:
    raise TopologyError(place, f"{_shown(value)} is not {wanted}")


def _shown(value: Any) -> str:
    try:
        text = json.dumps(value)
    except ValueError:
        text = "a very large number"
    except RecursionError:
        text = "a deeply nested value"
    return text if len(text) <= 60 else text[:57] + "…"


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    document = dict(pairs)
    if len(document) < len(pairs):
        twice = next(key for key, times in Counter(key for key, _ in pairs).items() if times > 1)
        raise TopologyError("file", f"duplicate field {_shown(twice)} in one object")
    return document


def _whole(digits: str) -> int:
    if len(digits) > MAX_DIGITS:  # parsing takes quadratic time
        raise TopologyError("file", f"a number of {len(digits)} digits is too large")
    return int(digits)


def _no_constant(name: str) -> Never:
    raise TopologyError("file", f"{name} is not a number that JSON allows")
