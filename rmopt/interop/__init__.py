"""Other libraries: pymanopt, both ways."""

from rmopt.interop.pymanopt import FromPymanopt, PymanoptSolver, from_pymanopt, to_pymanopt

__all__ = ["FromPymanopt", "PymanoptSolver", "from_pymanopt", "to_pymanopt"]
