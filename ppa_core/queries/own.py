"""Loading a user's own pipeline from a file or module."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow as pa

from ppa_core.errors import BadInput, PpaError

_loading: list[str] = []


def being_loaded() -> str | None:
    """The file or module that is being loaded at the moment, if any."""
    return _loading[-1] if _loading else None


def load_own(name: str) -> tuple[Callable[..., Any], Callable[[pa.Table, pa.Table], float | None]]:
    """The function named by `FILE.py:FUNCTION` or `MODULE:FUNCTION`, and the accuracy function of its module."""
    place, _, function = name.rpartition(":")
    module = _from_file(place, name) if place.endswith(".py") else _module(place, name)
    make = getattr(module, function, None)
    if not callable(make):
        raise BadInput(f"query {name!r}", f"{place} has no function {function!r}")
    return make, getattr(module, "accuracy", overlap)


def overlap(tentative: pa.Table, accurate: pa.Table) -> float | None:
    """The share of the accurate output's rows that are in the tentative output; None if both are empty."""
    if not accurate.num_rows:
        return None if not tentative.num_rows else 0.0
    wanted, found = (
        set(zip(*(column.to_pylist() for column in table.columns), strict=True)) for table in (accurate, tentative)
    )
    return len(wanted & found) / len(wanted)


def _from_file(place: str, name: str) -> ModuleType:
    path = Path(place).resolve()
    if not path.is_file():
        raise BadInput(f"query {name!r}", f"no such file: {place}")
    called = f"_ppa_query_{path.stem}"
    known = sys.modules.get(called)
    if known is not None and getattr(known, "__file__", None) == str(path):
        return known
    spec = importlib.util.spec_from_file_location(called, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[called] = module
    _loading.append(place)
    sys.path.insert(0, str(path.parent))  # the file can import modules from its own folder
    try:
        spec.loader.exec_module(module)
    except PpaError:
        del sys.modules[called]
        raise
    except Exception as error:
        del sys.modules[called]
        raise BadInput(f"query {name!r}", f"{place} cannot be run: {type(error).__name__}: {error}") from error
    finally:
        _loading.pop()
        sys.path.remove(str(path.parent))
    _ship(module)
    return module


def _module(place: str, name: str) -> ModuleType:
    _loading.append(place)
    try:
        return importlib.import_module(place)
    except PpaError:
        raise
    except Exception as error:
        raise BadInput(f"query {name!r}", f"{place} cannot be imported: {type(error).__name__}: {error}") from error
    finally:
        _loading.pop()


def _ship(module: ModuleType) -> None:
    """Pickle the file's definitions by value, because Spark's workers cannot import the file."""
    try:
        from pyspark import cloudpickle
    except ImportError:
        return
    cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
