"""Other libraries: pymanopt, both ways."""

from rmopt.interop.foreign import FromPymanopt, from_pymanopt
from rmopt.interop.pymanopt import PymanoptSolver, to_pymanopt

__all__ = ["FromPymanopt", "PymanoptSolver", "from_pymanopt", "to_pymanopt"]
