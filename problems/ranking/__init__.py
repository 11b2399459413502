"""Label ranking: LORETA-1 and its baselines (Shalit et al. 2012, §7.2), and logistic regression of low rank.

==============================================  ====================================================
Paper                                           Code
==============================================  ====================================================
multi-label ranking by LORETA-1, section 7.2    `LoretaLabelRanker`, `LabelRanking`
sampled negatives (WARP)                        `WarpRanking`
perceptrons, passive-aggressive                 ``problems.ranking.baselines``
its experiment                                  ``rmopt run ranking``
no paper: cross-entropy of all labels           `LowRankLogisticRegression`, `LogisticLabels`
==============================================  ====================================================

Shalit, Weinshall and Chechik, Online learning in the embedded manifold of low-rank matrices, JMLR 13 (2012),
https://jmlr.org/papers/v13/shalit12a.html.
"""

# Adds the compiled engine to those that solvers try.
import problems.ranking.engine  # noqa: F401
from problems.ranking.cost import LabelRanking, LogisticLabels, WarpRanking
from problems.ranking.estimators import LoretaLabelRanker, LowRankLogisticRegression
from problems.ranking.measures import mean_average_precision, precision_at

__all__ = [
    "LabelRanking", "LogisticLabels", "LoretaLabelRanker", "LowRankLogisticRegression", "WarpRanking",
    "mean_average_precision", "precision_at",
]  # fmt: skip
