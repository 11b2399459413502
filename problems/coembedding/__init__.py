"""Co-embedding as metric learning: ILA (Mirzazadeh et al. 2015) and its baselines."""

from problems.coembedding.baselines import CalibratedLabelRanking
from problems.coembedding.classifier import CoembeddingClassifier, CoembeddingClassifierCV, coembedding_path
from problems.coembedding.cost import LinkPrediction, MultilabelCoembedding, TagRanking
from problems.coembedding.links import LinkPredictor
from problems.coembedding.recommender import PairwiseInteractionTags, TagRecommender
from problems.coembedding.regression import MetricRegression
from problems.coembedding.thresholds import LabelThresholds

__all__ = [
    "CalibratedLabelRanking",
    "CoembeddingClassifier",
    "CoembeddingClassifierCV",
    "LabelThresholds",
    "LinkPrediction",
    "LinkPredictor",
    "MetricRegression",
    "MultilabelCoembedding",
    "PairwiseInteractionTags",
    "TagRanking",
    "TagRecommender",
    "coembedding_path",
]
