"""Output fidelity and internal completeness of any set of alive tasks."""

from ppa_core.fidelity.compiled import Compiled, Mask, Metric, compile_topology

__all__ = ["Compiled", "Mask", "Metric", "compile_topology"]
