"""Similarity learning: LORETA (Shalit et al. 2012) and its rivals."""

from typing import TYPE_CHECKING, Any

from problems.similarity.model import BilinearSimilarity
from problems.similarity.sampling import ClassTriplets

if TYPE_CHECKING:
    from problems.similarity.estimator import LoretaSimilarity

__all__ = ["BilinearSimilarity", "ClassTriplets", "LoretaSimilarity"]


def __getattr__(name: str) -> Any:
    # scikit-learn takes half a second to import; only the estimator needs it.
    if name == "LoretaSimilarity":
        from problems.similarity.estimator import LoretaSimilarity

        return LoretaSimilarity
    raise AttributeError(f"module 'problems.similarity' has no attribute {name!r}")
