"""Output fidelity (OF) and internal completeness (IC) of any set of alive tasks."""

from ppa_core.fidelity.compiled import Compiled, Mask, Metric, compile_topology

__all__ = ["Compiled", "Mask", "Metric", "compile_topology"]
