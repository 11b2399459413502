"""Co-embedding as metric learning: ILA (Mirzazadeh et al. 2015) and its baselines."""

from problems.coembedding.baselines import CalibratedLabelRanking
from problems.coembedding.cost import (
    LinkPrediction,
    MetricRegression,
    MultilabelCoembedding,
    OneVsRestCoembedding,
    TagRanking,
)
from problems.coembedding.estimators import (
    CoembeddingClassifier,
    CoembeddingClassifierCV,
    coembedding_path,
)
from problems.coembedding.links import LinkPredictor, PairwiseInteractionTags, TagRecommender
from problems.thresholds import LabelThresholds

__all__ = [
    "CalibratedLabelRanking", "CoembeddingClassifier", "CoembeddingClassifierCV", "LabelThresholds",
    "LinkPrediction", "LinkPredictor", "MetricRegression", "MultilabelCoembedding", "OneVsRestCoembedding",
    "PairwiseInteractionTags", "TagRanking", "TagRecommender", "coembedding_path",
]  # fmt: skip
