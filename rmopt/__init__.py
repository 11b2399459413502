"""Riemannian optimisation for low-rank and manifold learning.

The sub-packages are loaded when first used:

`core`
    The basic classes: manifold, retraction, ambient operator, cost, problem.
`manifolds`, `retractions`, `costs`, `solvers`
    The parts to combine: ``SGD(step_size).run(Problem(manifold, cost))``.
`checks`
    Property checks for your own manifolds, retractions, gradients and engines.
`testing`
    The same checks for the test suite of your package.
`interop`
    pymanopt's optimizers on rmopt's manifolds, and the other way round, if pymanopt is installed.
`torch`
    Optimisers of PyTorch for parameters on manifolds, if PyTorch is installed.
`experiments`
    Tools for the author of a ``rmopt run`` experiment.
"""

import importlib
from typing import TYPE_CHECKING, Any

from rmopt.errors import DivergedError, InvalidInputError, MissingCapabilityError, RmoptError, StorageError

if TYPE_CHECKING:
    from rmopt.core import Problem

_SUBPACKAGES = (
    "checks", "cli", "core", "costs", "engines", "experiments", "interop", "linalg", "manifolds",
    "retractions", "solvers", "testing", "torch",
)  # fmt: skip

__version__ = "0.3.0"

__all__ = [
    "DivergedError", "InvalidInputError", "MissingCapabilityError", "Problem", "RmoptError", "StorageError",
    "autograd_cost", "autograd_residuals", "jax_cost", "jax_residuals", "torch_cost", "torch_residuals",
    *_SUBPACKAGES,
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name in _SUBPACKAGES:
        return importlib.import_module(f"rmopt.{name}")
    if name in __all__:
        home = "rmopt.costs" if name.endswith(("_cost", "_residuals")) else "rmopt.core"
        return getattr(importlib.import_module(home), name)
    raise AttributeError(f"module 'rmopt' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
