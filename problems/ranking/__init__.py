"""Label ranking: LORETA-1 on the multilabel hinge, WARP sampling, and rivals (Shalit et al. 2012, §7.2)."""

from typing import TYPE_CHECKING, Any

# Adds the compiled engine to those that solvers try.
import problems.ranking.engine  # noqa: F401

if TYPE_CHECKING:
    from problems.ranking.cost import LabelRanking, WarpRanking
    from problems.ranking.estimator import LoretaLabelRanker
    from problems.ranking.measures import mean_average_precision
    from problems.ranking.rivals import GroupPerceptron, MatrixPerceptron, PassiveAggressive

_HOMES = {
    "GroupPerceptron": "rivals",
    "LabelRanking": "cost",
    "LoretaLabelRanker": "estimator",
    "MatrixPerceptron": "rivals",
    "PassiveAggressive": "rivals",
    "WarpRanking": "cost",
    "mean_average_precision": "measures",
}

__all__ = [
    "GroupPerceptron",
    "LabelRanking",
    "LoretaLabelRanker",
    "MatrixPerceptron",
    "PassiveAggressive",
    "WarpRanking",
    "mean_average_precision",
]


def __getattr__(name: str) -> Any:
    # The command line needs no estimator, and scikit-learn takes a second to import.
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
