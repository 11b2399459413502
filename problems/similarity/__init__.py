"""Similarity learning: LORETA (Shalit et al. 2012), what it is compared with, and the softmax over cosines."""

from problems.online import Lego, Oasis
from problems.similarity.baselines import FactoredGradientDescent, PassiveAggressive, PSDGradientDescent
from problems.similarity.estimators import BilinearSimilarity, ContrastiveSimilarity, LoretaSimilarity
from problems.triplets import ClassTriplets

__all__ = [
    "BilinearSimilarity", "ClassTriplets", "ContrastiveSimilarity", "FactoredGradientDescent", "Lego",
    "LoretaSimilarity", "Oasis", "PSDGradientDescent", "PassiveAggressive",
]  # fmt: skip
