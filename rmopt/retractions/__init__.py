"""Ways to move from a point along a tangent vector."""

from rmopt.retractions.euclidean import Additive
from rmopt.retractions.fixed_rank import FIXED_RANK_RETRACTIONS, MetricProjection, Orthographic, SecondOrder
from rmopt.retractions.psd_fixed_rank import (
    PSD_RETRACTIONS,
    MetricProjectionPSD,
    PolarFactors,
    SecondOrderPSD,
)

__all__ = [
    "FIXED_RANK_RETRACTIONS",
    "PSD_RETRACTIONS",
    "Additive",
    "MetricProjection",
    "MetricProjectionPSD",
    "Orthographic",
    "PolarFactors",
    "SecondOrder",
    "SecondOrderPSD",
]
