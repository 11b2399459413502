"""Similarity learning: LORETA (Shalit et al. 2012) and its rivals."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from problems.full_matrix import Lego, Oasis
    from problems.similarity.estimator import LoretaSimilarity
    from problems.similarity.model import BilinearSimilarity
    from problems.similarity.rivals import (
        FactoredGradientDescent,
        PassiveAggressive,
        PSDGradientDescent,
    )
    from problems.triplets import ClassTriplets

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
    "BilinearSimilarity": "problems.similarity.model",
    "ClassTriplets": "problems.triplets",
    "FactoredGradientDescent": "problems.similarity.rivals",
    "Lego": "problems.full_matrix",
    "Oasis": "problems.full_matrix",
    "PSDGradientDescent": "problems.similarity.rivals",
    "LoretaSimilarity": "problems.similarity.estimator",
    "PassiveAggressive": "problems.similarity.rivals",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'problems.similarity' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)
