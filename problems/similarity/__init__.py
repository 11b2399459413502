"""Similarity learning: LORETA (Shalit et al. 2012), its baselines, and the softmax over cosines.

==============================================  ====================================================
Paper                                           Code
==============================================  ====================================================
LORETA-1 and -PSD (Algorithms 4 and 5)          `LoretaSimilarity`, `problems.loreta`, `rmopt.retractions`
triplets of classes                             `ClassTriplets`, `rmopt.costs.TripletSum`
OASIS, LEGO                                     ``problems.online``
descent on factors, passive-aggressive          ``problems.similarity.baselines``
section 7.1                                     ``rmopt run similarity``
==============================================  ====================================================

Shalit, Weinshall and Chechik, Online learning in the embedded manifold of low-rank matrices, JMLR 13 (2012),
https://jmlr.org/papers/v13/shalit12a.html.
"""

from problems.similarity.estimators import ContrastiveSimilarity, LoretaSimilarity
from problems.triplets import ClassTriplets

__all__ = ["ClassTriplets", "ContrastiveSimilarity", "LoretaSimilarity"]
