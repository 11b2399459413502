"""Ways to move from a point along a tangent vector."""

from rmopt.retractions.euclidean import Additive
from rmopt.retractions.fixed_rank import FIXED_RANK_RETRACTIONS, MetricProjection, Orthographic, SecondOrder
from rmopt.retractions.positive_definite import (
    POSITIVE_DEFINITE_RETRACTIONS,
    AffineExponential,
    SchurExponential,
    SecondOrderPD,
)
from rmopt.retractions.psd_fixed_rank import (
    PSD_RETRACTIONS,
    MetricProjectionPSD,
    PolarFactors,
    SecondOrderPSD,
)

__all__ = [
    "FIXED_RANK_RETRACTIONS",
    "POSITIVE_DEFINITE_RETRACTIONS",
    "PSD_RETRACTIONS",
    "Additive",
    "AffineExponential",
    "MetricProjection",
    "MetricProjectionPSD",
    "Orthographic",
    "PolarFactors",
    "SchurExponential",
    "SecondOrder",
    "SecondOrderPD",
    "SecondOrderPSD",
]
