"""Co-embedding as metric learning: ILA (Mirzazadeh et al. 2015) and its rivals."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from problems.coembedding.regression import MetricRegression

__all__ = ["MetricRegression"]

# scikit-learn and numba take long to import; only what is used is loaded.
_HOMES = {
    "MetricRegression": "regression",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'problems.coembedding' has no attribute {name!r}")
    return getattr(importlib.import_module(f"problems.coembedding.{_HOMES[name]}"), name)
