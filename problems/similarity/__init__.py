"""Similarity learning: LORETA (Shalit et al. 2012), what it is compared with, and the softmax over cosines.

==============================================  ====================================================
Paper                                           Code
==============================================  ====================================================
LORETA-1 and -PSD (Algorithms 4 and 5)          `LoretaSimilarity`, `problems.loreta`, `rmopt.retractions`
triplets of classes                             `ClassTriplets`, `rmopt.costs.TripletSum`
OASIS, LEGO                                     `Oasis`, `Lego`
descent on factors, passive-aggressive          `FactoredGradientDescent`, `PSDGradientDescent`, `PassiveAggressive`
section 7.1                                     ``rmopt run similarity``
==============================================  ====================================================

Shalit, Weinshall and Chechik, Online learning in the embedded manifold of low-rank matrices, JMLR 13 (2012),
https://jmlr.org/papers/v13/shalit12a.html.
"""

from problems.online import Lego, Oasis
from problems.similarity.baselines import FactoredGradientDescent, PassiveAggressive, PSDGradientDescent
from problems.similarity.estimators import BilinearSimilarity, ContrastiveSimilarity, LoretaSimilarity
from problems.triplets import ClassTriplets

__all__ = [
    "BilinearSimilarity", "ClassTriplets", "ContrastiveSimilarity", "FactoredGradientDescent", "Lego",
    "LoretaSimilarity", "Oasis", "PSDGradientDescent", "PassiveAggressive",
]  # fmt: skip
