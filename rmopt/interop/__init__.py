"""Other libraries: pymanopt, both ways; and `rmopt.interop.flower`, which is imported by its name."""

from rmopt.interop.pymanopt import PymanoptSolver, from_pymanopt, to_pymanopt

__all__ = ["PymanoptSolver", "from_pymanopt", "to_pymanopt"]
