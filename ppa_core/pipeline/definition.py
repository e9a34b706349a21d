"""Pipelines: sources, operators and the streams between them. `Pipeline.topology` is the input of the planners.

>>> import pyarrow as pa
>>> class Numbers:
...     schema = pa.schema({"n": pa.int64()})
...     def read(self, task, batch):
...         return pa.table({"n": [10 * batch + task]})
...     def rate(self, task):
...         return 1.0
>>> def total(context, state, inputs):
...     before = state["total"]["n"][0].as_py() if "total" in state else 0
...     now = pa.table({"n": [before + sum(inputs[0]["n"].to_pylist())]})
...     return Result(now, add={"total": now})
>>> pipeline = Pipeline("totals").source("in", 4, Numbers()).operator("out", 2, {"in": ("full", "n")}, total)
>>> len(pipeline.topology().tasks)
6
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from inspect import signature
from typing import Any, Protocol

import pyarrow as pa

from ppa_core.errors import BadInput, PpaError
from ppa_core.pipeline import partitioning as spread
from ppa_core.pipeline.kinds import is_mapping, is_number, is_whole
from ppa_core.pipeline.partitioning import Partitioned
from ppa_core.pipeline.streams import Stream, is_key
from ppa_core.topology import Build, Partitioning, Topology

How = str | Partitioning | tuple[str | Partitioning, str]
"""How an upstream's output is partitioned: `"merge"`, or with a key column: `("full", "word")`."""


class Source(Protocol):
    """A replayable stream: `read` must return the same table for the same (task, batch), at any time and on any machine."""

    @property
    def schema(self) -> pa.Schema:
        """The columns of every table that `read` returns."""

    def read(self, task: int, batch: int) -> pa.Table:
        """The tuples of one task in one batch, both counted from 0."""

    def rate(self, task: int) -> float:
        """The expected tuples/s of a task, for the planner."""


@dataclass(frozen=True)
class Context:
    """The operator, task (counted from 0), batch (counted from 0) and batch interval of a step call."""

    operator: str
    task: int
    batch: int
    batch_seconds: float


@dataclass(frozen=True)
class Result:
    """The result of a step: its output, the state segments that it adds or replaces by name, and the names that it drops."""

    output: pa.Table
    add: Mapping[str, pa.Table] = field(default_factory=dict)
    drop: Sequence[str] = ()


class Step(Protocol):
    """How a task processes a batch: a deterministic function of its arguments, without other state, clock or randomness.

    `state` maps the names of the task's segments to tables; a segment is read when it is accessed. `inputs` has one table for
    each input stream: the tuples from the upstream tasks, in the order of these tasks.
    """

    def __call__(self, context: Context, state: Mapping[str, pa.Table], inputs: Sequence[pa.Table], /) -> Result: ...


class Facts(Protocol):
    """Optional attributes of a step. `Pipeline.operator` uses those that exist, unless the caller overrides them.

    The steps in `ppa_core.pipeline.operators` have all of them.
    """

    def output_schema(self, inputs: Sequence[pa.Schema]) -> pa.Schema:
        """The columns of the output, given those of each input. Raises BadInput for unsuitable inputs."""

    def lookback_batches(self, batch_seconds: float) -> int | None:
        """How many past batches the state and the output can depend on: 0 without state, None if unlimited.

        A task that starts with an empty state this many batches before batch b has the same manifests and outputs from batch b
        on, byte for byte, as one that ran from batch 0. Raises BadInput for an unsuitable batch interval.
        """

    @property
    def correlated(self) -> bool:
        """Whether output requires all input streams, as for a join, and not any of them."""

    @property
    def selectivity(self) -> float:
        """Expected output tuples per input tuple."""

    @property
    def keyed_by(self) -> tuple[str, ...]:
        """Tuples with equal values in these columns must be in one task; empty if not needed. The output has them unchanged."""

    @property
    def keeps_columns(self) -> bool:
        """Whether all columns of a tuple are unchanged in the output, as for a filter."""


class StepFailed(PpaError):
    """An error in a step, in reading its source or in writing its result; the message names operator, task and batch."""

    def __init__(self, operator: str, task: str, batch: int, reason: str) -> None:
        super().__init__(f"operator {operator!r}, task {task}, batch {batch}: {reason}")
        self.operator, self.task, self.batch, self.reason = operator, task, batch, reason

    def __reduce__(self) -> tuple[type[StepFailed], tuple[str, str, int, str]]:
        return StepFailed, (self.operator, self.task, self.batch, self.reason)


@dataclass(frozen=True)
class PipelineOperator:
    """One operator of a pipeline: a source, or a step with its input streams."""

    name: str
    tasks: int
    schema: pa.Schema
    source: Source | None = None
    step: Step | None = None
    inputs: tuple[Stream, ...] = ()
    join: bool = False
    selectivity: float = 1.0
    lookback_batches: int | None = 0
    """How many past batches the state can depend on, see `Facts.lookback_batches`; None if unlimited."""
    partitioned: Partitioned | None = None
    """The key by which its output is partitioned over its tasks, if known."""

    def task(self, number: int) -> str:
        """The id of task `number`, counted from 0: `"<name>.<number + 1>"`."""
        return f"{self.name}.{number + 1}"


@dataclass(frozen=True)
class Pipeline:
    """A pipeline: every call returns a new pipeline with one more operator, or raises BadInput.

    An operator's upstreams must already be defined, so operators are in topological order and there are no cycles.
    """

    name: str
    batch_seconds: float = 1.0
    operators: tuple[PipelineOperator, ...] = ()

    def __post_init__(self) -> None:
        if not is_number(self.batch_seconds) or not self.batch_seconds > 0:
            raise BadInput(f"pipeline {self.name!r}", f"a batch interval of {self.batch_seconds} s; it must be positive")

    def source(self, name: str, tasks: int, source: Source) -> Pipeline:
        """Add a source with `tasks` tasks. It can be replayed, so its tasks are external: they never fail."""
        place = f"source {name!r}"
        _check_tasks(place, tasks)
        lacking = [each for each in ("schema", "read", "rate") if not hasattr(source, each)]
        if lacking:
            raise BadInput(
                place, f"{type(source).__name__} is not a source: it has no {' and no '.join(lacking)}; see `Source`"
            )
        own = getattr(source, "tasks", tasks)
        if own != tasks:
            reason = f"{tasks} tasks, but its input is partitioned over {own}: rows would be lost or duplicated"
            raise BadInput(place, f"{reason}; use the same number for both")
        _check_schema(place, source.schema)
        return self._with(PipelineOperator(name, tasks, source.schema, source=source))

    def operator(
        self,
        name: str,
        tasks: int,
        inputs: Mapping[str, How],
        step: Step,
        *,
        join: bool | None = None,
        selectivity: float | None = None,
        schema: pa.Schema | None = None,
        lookback_batches: int | None = None,
    ) -> Pipeline:
        """Add an operator with `tasks` tasks that runs `step` on `inputs`: the upstreams and how their output is partitioned.

        `join`: output requires all input streams, not any of them; `selectivity`: output tuples per input tuple, for the
        planner; `schema`: that of the output; `lookback_batches`: how many past batches the state can depend on. Omitted ones
        are taken from the step (see `Facts`); the defaults are: no join, 1, the schema of the first input, unlimited.
        """
        place = f"operator {name!r}"
        _check_tasks(place, tasks)
        if not is_mapping(inputs):
            reason = f"its inputs are {type(inputs).__name__}; give the partitioning of each upstream"
            raise BadInput(place, f'{reason}: {{"upstream": ("full", "column")}}')
        if not inputs:
            raise BadInput(place, "no input; an operator needs at least one upstream, and a pipeline begins with a source")
        if not callable(step):
            raise BadInput(place, f"its step is {type(step).__name__}, which cannot be called as (context, state, inputs)")
        _check_step(place, step)
        streams = tuple(self._stream(name, tasks, upstream, how) for upstream, how in inputs.items())
        schemas = [self.by_name[stream.source].schema for stream in streams]
        facts = _facts(place, step, schemas, self.batch_seconds)
        made = PipelineOperator(
            name,
            tasks,
            facts["schema"] if schema is None else schema,
            None,
            step,
            streams,
            facts["join"] if join is None else join,
            facts["selectivity"] if selectivity is None else selectivity,
            facts["lookback_batches"] if lookback_batches is None else lookback_batches,
        )
        lies = {stream: spread.partitioned(stream, self.by_name[stream.source].partitioned) for stream in streams}
        _check_operator(place, made, lies)
        return self._with(replace(made, partitioned=spread.output(step, made.schema, list(lies.values()))))

    def topology(self, measured: Mapping[str, float] | None = None) -> Topology:
        """The topology for the planner; `measured` are measured rates by substream, such as `{"O1.1>O3.1": 123.4}`."""
        build = Build(self.name)
        for operator in self.operators:
            if operator.source is not None:
                rates = [operator.source.rate(task) for task in range(operator.tasks)]
                build = build.source(operator.name, operator.tasks, rates, external=True)
            else:
                inputs = {stream.source: stream.partitioning for stream in operator.inputs}
                build = build.operator(
                    operator.name, operator.tasks, inputs, join=operator.join, selectivity=operator.selectivity
                )
        return build.done(measured)

    @cached_property
    def by_name(self) -> dict[str, PipelineOperator]:
        return {operator.name: operator for operator in self.operators}

    @cached_property
    def streams(self) -> tuple[Stream, ...]:
        """All streams, by downstream operator and then in the order of its inputs."""
        return tuple(stream for operator in self.operators for stream in operator.inputs)

    @cached_property
    def outputs(self) -> dict[str, tuple[Stream, ...]]:
        """The streams out of each operator; a sink has none."""
        return {o.name: tuple(stream for stream in self.streams if stream.source == o.name) for o in self.operators}

    def _with(self, operator: PipelineOperator) -> Pipeline:
        if operator.name in self.by_name:
            raise BadInput(f"operator {operator.name!r}", "duplicate operator name")
        longer = replace(self, operators=(*self.operators, operator))
        longer.topology()  # refuses what is wrong with names, rates and numbers of tasks
        return longer

    def _stream(self, name: str, tasks: int, upstream: str, how: How) -> Stream:
        place = f"operator {name!r}, input {upstream!r}"
        if upstream not in self.by_name:
            known = ", ".join(self.by_name) or "none yet"
            raise BadInput(place, f"unknown operator; defined before this one: {known}")
        kind, key = how if isinstance(how, tuple) and len(how) == 2 else (how, None)
        try:
            partitioning = Partitioning(kind)
        except ValueError:
            pair = 'or with a key, as in ("full", "column")'
            raise BadInput(place, f"unknown partitioning {kind!r}; choose one of {', '.join(Partitioning)}, {pair}") from None
        source = self.by_name[upstream]
        if key is None:
            if partitioning in (Partitioning.FULL, Partitioning.SPLIT):
                raise BadInput(place, f"{partitioning} needs a key column: ({partitioning.value!r}, column)")
        elif key not in source.schema.names:
            raise BadInput(place, f"key {key!r} is not a column of {upstream!r}; it has {', '.join(source.schema.names)}")
        elif not is_key(source.schema.field(key).type):
            allowed = "an integer, a string, bytes, a date, a time or a boolean"
            raise BadInput(place, f"key {key!r} is of type {source.schema.field(key).type}; a key must be {allowed}")
        return Stream(upstream, name, partitioning, key, source.tasks, tasks)


def _facts(place: str, step: Any, inputs: Sequence[pa.Schema], batch_seconds: float) -> dict[str, Any]:
    """The attributes of a step (see `Facts`), with defaults for missing ones."""
    try:
        return {
            "schema": step.output_schema(inputs) if callable(getattr(step, "output_schema", None)) else inputs[0],
            "join": getattr(step, "correlated", False),
            "selectivity": getattr(step, "selectivity", 1.0),
            "lookback_batches": step.lookback_batches(batch_seconds)
            if callable(getattr(step, "lookback_batches", None))
            else None,
        }
    except BadInput as error:
        raise BadInput(f"{place}, {error.place}", error.reason) from None


def _check_operator(place: str, operator: PipelineOperator, inputs: Mapping[Stream, Partitioned | None]) -> None:
    if operator.join and len(operator.inputs) < 2:
        raise BadInput(place, "a join with one input; a join needs at least two: remove join or add another upstream")
    if operator.lookback_batches is not None and not (is_whole(operator.lookback_batches) and operator.lookback_batches >= 0):
        raise BadInput(
            place,
            f"lookback_batches is {operator.lookback_batches!r}; it must be a whole number of at least 0, or None",
        )
    if not is_number(operator.selectivity):
        raise BadInput(place, f"a selectivity of {operator.selectivity!r}; it must be a number, output tuples per input tuple")
    _check_schema(place, operator.schema)
    keys = getattr(operator.step, "keyed_by", ())
    if keys and operator.tasks > 1:
        spread.check(place, operator.join, keys, inputs)


def _check_step(place: str, step: Step) -> None:
    try:
        signature(step).bind(None, {}, [])
    except TypeError:
        called = getattr(step, "__name__", type(step).__name__)
        remedy = f"to apply a function to a table, use map({called})"
        raise BadInput(place, f"its step {called!r} cannot be called as (context, state, inputs); {remedy}") from None
    except ValueError:
        return  # its signature is not known


def _check_tasks(place: str, tasks: int) -> None:
    if not is_whole(tasks) or tasks < 1:
        raise BadInput(place, f"{tasks!r} tasks; it must be a whole number of at least 1")


def _check_schema(place: str, schema: pa.Schema) -> None:
    if not isinstance(schema, pa.Schema):
        raise BadInput(place, f"its schema is {type(schema).__name__}, not a pyarrow.Schema")
    if len(set(schema.names)) < len(schema.names):
        raise BadInput(place, f"two columns have the same name: {', '.join(schema.names)}")
    for column in schema:
        if pa.types.is_dictionary(column.type):
            raise BadInput(f"{place}, column {column.name!r}", "dictionary-encoded; use the type of its values instead")
