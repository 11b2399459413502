"""Conversions to and from pymanopt, if installed by ``pip install "rmopt[pymanopt]"``."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rmopt.interop.pymanopt import PymanoptSolver, from_pymanopt, to_pymanopt

__all__ = ["PymanoptSolver", "from_pymanopt", "to_pymanopt"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        return getattr(importlib.import_module("rmopt.interop.pymanopt"), name)
    raise AttributeError(f"module 'rmopt.interop' has no attribute {name!r}")
