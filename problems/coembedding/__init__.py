"""Co-embedding as metric learning: ILA (Mirzazadeh et al. 2015) and its baselines.

==============================================  ====================================================
Paper                                           Code
==============================================  ====================================================
ILA                                             `rmopt.solvers.RankIncremental`
equation 12                                     `MetricRegression`, ``rmopt run metric-regression``
large margin nearest neighbours (section 2)     `LargeMarginNeighbors`
links (section 3)                               `LinkPrediction`, `LinkPredictor`
equation 13 (section 6)                         `MultilabelCoembedding`, `CoembeddingClassifier`,
                                                ``rmopt run coembedding``
equation 14 (section 7)                         `TagRanking`, `TagRecommender`, `PairwiseInteractionTags`,
                                                ``rmopt run tagging``
calibrated label ranking, chains                `CalibratedLabelRanking`, `problems.coembedding.baselines`
==============================================  ====================================================

Mirzazadeh, White, György and Schuurmans, Scalable metric learning for co-embedding, ECML PKDD (2015),
https://doi.org/10.1007/978-3-319-23528-8_39.
"""

from problems.coembedding.baselines import CalibratedLabelRanking
from problems.coembedding.cost import (
    LargeMarginNeighbors,
    LinkPrediction,
    MetricRegression,
    MultilabelCoembedding,
    OneVsRestCoembedding,
    TagRanking,
)
from problems.coembedding.estimators import CoembeddingClassifier, CoembeddingClassifierCV
from problems.coembedding.links import LinkPredictor, PairwiseInteractionTags, TagRecommender
from problems.thresholds import LabelThresholds

__all__ = [
    "CalibratedLabelRanking", "CoembeddingClassifier", "CoembeddingClassifierCV", "LabelThresholds",
    "LargeMarginNeighbors", "LinkPrediction", "LinkPredictor", "MetricRegression", "MultilabelCoembedding",
    "OneVsRestCoembedding", "PairwiseInteractionTags", "TagRanking", "TagRecommender",
]  # fmt: skip
