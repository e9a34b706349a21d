"""Operators and edges, the parts of a topology, and the checks that concern operators alone."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from ppa_core.errors import TopologyError

MAX_TASKS = 1_000_000
"""A topology with more tasks is refused: it is most likely a typing error."""

MAX_NUMBER = 1e15
"""Upper limit of rates, weights and selectivities: larger products would overflow."""

MAX_RATE = 1e290
"""Upper limit of an operator's output rate: larger sums over all operators would overflow."""

_FORBIDDEN = set(",>")


class Partitioning(StrEnum):
    """How the output of N1 upstream tasks reaches N2 downstream tasks."""

    ONE_TO_ONE = "one-to-one"
    SPLIT = "split"
    MERGE = "merge"
    FULL = "full"


class Input(StrEnum):
    """Whether an operator processes its input streams independently (a union) or joins them."""

    INDEPENDENT = "independent"
    CORRELATED = "correlated"


@dataclass(frozen=True, slots=True)
class Operator:
    """An operator with `tasks` parallel tasks. `rate` (tuples/s of each task) makes it a source."""

    name: str
    tasks: int
    rate: tuple[float, ...] | None = None
    input: Input = Input.INDEPENDENT
    selectivity: float = 1.0
    weights: tuple[float, ...] = ()
    external: bool = False

    def task(self, number: int) -> str:
        """The id of task `number`, counted from 1."""
        return f"{self.name}.{number}"


@dataclass(frozen=True, slots=True)
class Edge:
    """The output of `source` flows to `target`, partitioned over its tasks."""

    source: str
    target: str
    partitioning: Partitioning


def place_of(index: int, operator: Operator) -> str:
    return f"operators[{index}] {operator.name!r}"


def check_operators(operators: tuple[Operator, ...]) -> None:
    if not operators:
        raise TopologyError("operators", "the list is empty; a topology needs at least one operator")
    seen: set[str] = set()
    for i, operator in enumerate(operators):
        place = place_of(i, operator)
        _check_name(f"operators[{i}].name", operator.name)
        if operator.name in seen:
            raise TopologyError(place, "another operator has the same name")
        seen.add(operator.name)
        if not _is_whole(operator.tasks):
            raise TopologyError(f"{place}.tasks", f"{operator.tasks!r} is not a whole number")
        if operator.tasks < 1:
            raise TopologyError(f"{place}.tasks", f"{operator.tasks} tasks; an operator has at least 1")
        if operator.tasks > MAX_TASKS:
            raise TopologyError(f"{place}.tasks", f"{operator.tasks} tasks; at most {MAX_TASKS} are supported")
        if operator.rate is not None:
            _check_list(f"{place}.rate", "rates", operator.rate, operator.tasks)
        _check_list(f"{place}.weights", "weights", operator.weights, operator.tasks, optional=True)
        if operator.weights and sum(operator.weights) == 0:
            raise TopologyError(f"{place}.weights", "all weights are 0; at least one must be positive")
        check_number(f"{place}.selectivity", operator.selectivity)
    total = sum(operator.tasks for operator in operators)
    if total > MAX_TASKS:
        raise TopologyError("operators", f"{total} tasks in all; at most {MAX_TASKS} are supported")


def _check_name(place: str, name: str) -> None:
    if not is_text(name) or not name or name != name.strip() or len(name) > 100:
        raise TopologyError(place, "a name must have 1 to 100 characters and no spaces at its ends")
    if any(c in _FORBIDDEN or not c.isprintable() for c in name):
        raise TopologyError(place, f"{name!r} contains a character that is not allowed: a comma, a '>' or a control character")


def _check_list(place: str, noun: str, values: tuple[float, ...], tasks: int, *, optional: bool = False) -> None:
    if len(values) != tasks and not (optional and not values):
        raise TopologyError(place, f"{len(values)} {noun} for {tasks} tasks; give one number per task")
    for k, value in enumerate(values):
        if not _is_number(value):  # checked first, because formatting the place of a million numbers takes a second
            check_number(f"{place}[{k}]", value)


def check_number(place: str, value: float) -> None:
    if not _is_number(value):
        raise TopologyError(place, f"{str(value)[:60]} is not a number from 0 to {MAX_NUMBER:g}")


# Python does not check types at run time; these functions do.


def is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def is_partitioning(value: object) -> bool:
    return isinstance(value, Partitioning)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= MAX_NUMBER
