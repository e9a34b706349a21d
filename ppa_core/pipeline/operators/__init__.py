"""The built-in steps: deterministic and vectorised over Arrow. Errors are reported when the pipeline is defined.

- `map`, `flat_map`, `filter`, `rekey`: stateless, batch by batch;
- `count`, `sum`, `mean`, `min`, `max`, `distinct`, and `aggregate` for several at once: by key over a window;
- `top`: the largest rows of a batch or of an aggregate;
- `join`: tuples of two or more streams with equal keys within a window;
- `pandas_step`, `polars_step`: a user's own functions on data frames.

Windows are `tumbling` or `sliding` and consist of whole batches: there is no event time. Nulls are handled as in SQL.

>>> import pyarrow as pa
>>> import pyarrow.compute as pc
>>> from ppa_core.pipeline.definition import Pipeline, Source
>>> def split(lines: pa.Table) -> pa.Table:
...     return pa.table({"word": pc.list_flatten(pc.utf8_split_whitespace(lines["line"]))})
>>> def words(lines: Source) -> Pipeline:
...     return (
...         Pipeline("words")
...         .source("lines", 2, lines)
...         .operator("words", 2, {"lines": "one-to-one"}, flat_map(split))
...         .operator("counts", 4, {"words": ("full", "word")}, count(by="word", window=sliding(10, every=1)))
...         .operator("top", 1, {"counts": "merge"}, top(10, "count"))
...     )

`map`, `filter`, `sum`, `min` and `max` would hide Python's built-ins if imported by name: import the package as `op` instead.
"""

from ppa_core.pipeline.operators.adapters import FrameStep, pandas_step, polars_step
from ppa_core.pipeline.operators.aggregates import Aggregate, aggregate, count, distinct, max, mean, min, sum
from ppa_core.pipeline.operators.joins import Join, join
from ppa_core.pipeline.operators.measures import Count, Distinct, Max, Mean, Min, Sum
from ppa_core.pipeline.operators.rows import Filter, Map, Rekey, filter, flat_map, map, rekey
from ppa_core.pipeline.operators.top import Top, top
from ppa_core.pipeline.operators.windows import Window, sliding, tumbling

__all__ = [
    "Aggregate", "Count", "Distinct", "Filter", "FrameStep", "Join", "Map", "Max", "Mean", "Min", "Rekey", "Sum", "Top",
    "Window", "aggregate", "count", "distinct", "filter", "flat_map", "join", "map", "max", "mean", "min", "pandas_step",
    "polars_step", "rekey", "sliding", "sum", "top", "tumbling",
]  # fmt: skip
