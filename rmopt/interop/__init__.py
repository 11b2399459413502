"""pymanopt, both ways."""

from rmopt.interop.pymanopt import PymanoptSolver, from_pymanopt, to_pymanopt

__all__ = ["PymanoptSolver", "from_pymanopt", "to_pymanopt"]
