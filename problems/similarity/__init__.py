"""Similarity learning: LORETA (Shalit et al. 2012) and its rivals."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from problems.similarity.estimator import LoretaSimilarity
    from problems.similarity.model import BilinearSimilarity
    from problems.similarity.rivals import (
        FactoredGradientDescent,
        Lego,
        Oasis,
        PassiveAggressive,
        PSDGradientDescent,
    )
    from problems.similarity.sampling import ClassTriplets

__all__ = [
    "BilinearSimilarity",
    "ClassTriplets",
    "FactoredGradientDescent",
    "Lego",
    "LoretaSimilarity",
    "Oasis",
    "PSDGradientDescent",
    "PassiveAggressive",
]

# scikit-learn and numba take long to import; only what is used is loaded.
_HOMES = {
    "BilinearSimilarity": "model",
    "ClassTriplets": "sampling",
    "FactoredGradientDescent": "rivals",
    "Lego": "rivals",
    "Oasis": "rivals",
    "PSDGradientDescent": "rivals",
    "LoretaSimilarity": "estimator",
    "PassiveAggressive": "rivals",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'problems.similarity' has no attribute {name!r}")
    return getattr(importlib.import_module(f"problems.similarity.{_HOMES[name]}"), name)
