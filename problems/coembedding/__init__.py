"""Co-embedding as metric learning: ILA (Mirzazadeh et al. 2015) and its rivals."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from problems.coembedding.classifier import (
        CoembeddingClassifier,
        CoembeddingClassifierCV,
        coembedding_path,
    )
    from problems.coembedding.links import LinkPrediction, LinkPredictor
    from problems.coembedding.multilabel import MultilabelCoembedding
    from problems.coembedding.recommender import PairwiseInteractionTags, TagRecommender
    from problems.coembedding.regression import MetricRegression
    from problems.coembedding.rivals import CalibratedLabelRanking
    from problems.coembedding.tagging import TagRanking

__all__ = [
    "CalibratedLabelRanking",
    "CoembeddingClassifier",
    "CoembeddingClassifierCV",
    "LinkPrediction",
    "LinkPredictor",
    "MetricRegression",
    "MultilabelCoembedding",
    "PairwiseInteractionTags",
    "TagRanking",
    "TagRecommender",
    "coembedding_path",
]

# scikit-learn and numba take long to import; only what is used is loaded.
_HOMES = {
    "CalibratedLabelRanking": "rivals",
    "CoembeddingClassifier": "classifier",
    "CoembeddingClassifierCV": "classifier",
    "LinkPrediction": "links",
    "LinkPredictor": "links",
    "MetricRegression": "regression",
    "MultilabelCoembedding": "multilabel",
    "PairwiseInteractionTags": "recommender",
    "TagRanking": "tagging",
    "TagRecommender": "recommender",
    "coembedding_path": "classifier",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'problems.coembedding' has no attribute {name!r}")
    return getattr(importlib.import_module(f"problems.coembedding.{_HOMES[name]}"), name)
