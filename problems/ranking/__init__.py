"""Label ranking: LORETA-1 on the multilabel hinge, WARP sampling, and rivals (Shalit et al. 2012, §7.2)."""

# Adds the compiled engine to those that solvers try.
import problems.ranking.engine  # noqa: F401
from problems.ranking.cost import LabelRanking, WarpRanking
from problems.ranking.estimator import LoretaLabelRanker
from problems.ranking.measures import mean_average_precision
from problems.ranking.rivals import GroupPerceptron, MatrixPerceptron, PassiveAggressive

__all__ = [
    "GroupPerceptron",
    "LabelRanking",
    "LoretaLabelRanker",
    "MatrixPerceptron",
    "PassiveAggressive",
    "WarpRanking",
    "mean_average_precision",
]
