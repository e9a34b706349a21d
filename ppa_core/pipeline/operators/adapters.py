"""Steps written with pandas or polars: functions from data frames to data frames.

A function without state takes a frame for each input and returns a frame. With `state`, the schema of a state of one frame,
it takes the previous state (empty in the first batch) and then the inputs, and returns the output and the new state. The whole
state is written whenever it changes, and the output can depend on all past batches: for windows, the other steps of this
package are cheaper to run and to recover.

In pandas frames, integers and booleans have the nullable types (`Int64`, `boolean`), whether a batch has nulls or not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any, ClassVar, Literal

import pyarrow as pa

from ppa_core.errors import BadInput, Unavailable
from ppa_core.pipeline.definition import Context, Result
from ppa_core.pipeline.operators.columns import listed

Library = Literal["pandas", "polars"]
_STATE = "state"


def pandas_step(
    function: Callable[..., Any], schema: pa.Schema, *, state: pa.Schema | None = None, lookback_batches: int | None = None
) -> FrameStep:
    """A step that applies a function to pandas frames; `schema` is that of its output.

    With `state`, `lookback_batches` is the number of past batches that the state can depend on; unlimited if omitted.
    """
    return FrameStep("pandas", function, schema, state, lookback_batches)


def polars_step(
    function: Callable[..., Any], schema: pa.Schema, *, state: pa.Schema | None = None, lookback_batches: int | None = None
) -> FrameStep:
    """A step that applies a function to polars frames, see `pandas_step`."""
    return FrameStep("polars", function, schema, state, lookback_batches)


@dataclass(frozen=True)
class FrameStep:
    """See `pandas_step` and `polars_step`."""

    library: Library
    function: Callable[..., Any]
    schema: pa.Schema
    state: pa.Schema | None = None
    batches: int | None = None

    correlated: ClassVar[bool] = False
    selectivity: ClassVar[float] = 1.0
    keyed_by: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        _imported(self.library)
        for name, schema in (("schema", self.schema), ("state", self.state)):
            if schema is not None and not isinstance(schema, pa.Schema):
                raise BadInput(f"{self.library}_step", f"its {name} is {type(schema).__name__}, not a pyarrow.Schema")

    def output_schema(self, inputs: Sequence[pa.Schema]) -> pa.Schema:
        """The declared schema, after a test call on empty frames."""
        place = f"{self.library}_step"
        try:
            self(Context("", 0, 0, 1.0), {}, [schema.empty_table() for schema in inputs])
        except Exception as error:
            has = " and ".join(", ".join(schema.names) for schema in inputs)
            reason = f"{type(error).__name__}: {error}".splitlines()[0]
            raise BadInput(place, f"called on empty frames with the columns {has}, it raised {reason}") from error
        return self.schema

    def lookback_batches(self, batch_seconds: float) -> int | None:
        return 0 if self.state is None else self.batches

    def __call__(self, context: Context, state: Mapping[str, pa.Table], inputs: Sequence[pa.Table], /) -> Result:
        frames = [_frame(self.library, table) for table in inputs]
        if self.state is None:
            return Result(_table(self.library, self.function(*frames), self.schema, "output"))
        before = state[_STATE] if _STATE in state else self.state.empty_table()
        made = self.function(_frame(self.library, before), *frames)
        if not (isinstance(made, tuple) and len(made) == 2):
            raise TypeError(f"with a state the function must return the output and the state, not {type(made).__name__}")
        after = _table(self.library, made[1], self.state, "state")
        return Result(_table(self.library, made[0], self.schema, "output"), {_STATE: after})


@cache
def _imported(library: Library) -> Any:
    try:
        return import_module(library)
    except ImportError as error:
        raise Unavailable(f"{library} is not installed: {error}; run `pip install {library}` on all machines") from error


def _frame(library: Library, table: pa.Table) -> Any:
    module = _imported(library)
    return table.to_pandas(types_mapper=_nullable) if library == "pandas" else module.from_arrow(table)


def _nullable(kind: pa.DataType) -> Any:
    """The pandas type of a column that could not hold nulls otherwise; None for the usual one."""
    pandas = _imported("pandas")
    if pa.types.is_boolean(kind):
        return pandas.BooleanDtype()
    if pa.types.is_integer(kind):
        return getattr(pandas, f"{'Int' if pa.types.is_signed_integer(kind) else 'UInt'}{kind.bit_width}Dtype")()
    return None


def _table(library: Library, frame: Any, schema: pa.Schema, what: str) -> pa.Table:
    """A frame as a table with the columns of `schema`; refused if they are not the same ones."""
    module = _imported(library)
    if not isinstance(frame, module.DataFrame):
        raise TypeError(f"the {what} is {type(frame).__name__}, not a {library} DataFrame")
    if set(frame.columns) != set(schema.names):
        has = ", ".join(str(name) for name in frame.columns)
        raise TypeError(f"the {what} has the columns ({has}), but the schema has ({listed(schema)})")
    if library == "pandas":
        return pa.Table.from_pandas(frame, schema=schema, preserve_index=False).replace_schema_metadata()
    return frame.select(schema.names).to_arrow().cast(schema)
