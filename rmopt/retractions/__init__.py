"""Retractions, which move a point along a tangent vector."""

from rmopt.retractions.arrays import (
    CanonicalCayley,
    Cayley,
    FrameQR,
    MultiplicativeWeights,
    Normalisation,
    OrthographicHyperbolic,
    Sinkhorn,
)
from rmopt.retractions.fixed_rank import (
    FIXED_RANK_RETRACTIONS,
    PSD_RETRACTIONS,
    MetricProjection,
    MetricProjectionPSD,
    Orthographic,
    PolarFactors,
    PowerIteration,
    SecondOrder,
    SecondOrderPSD,
)
from rmopt.retractions.grassmann import GRASSMANN_RETRACTIONS, QR, Exponential, GeneralizedPolar, Polar
from rmopt.retractions.positive_definite import (
    POSITIVE_DEFINITE_RETRACTIONS,
    Additive,
    AffineExponential,
    Congruence,
    SchurExponential,
    SecondOrderPD,
)
from rmopt.retractions.product import Componentwise
from rmopt.retractions.tensors import HOSVD, TTSVD

__all__ = [
    "FIXED_RANK_RETRACTIONS", "GRASSMANN_RETRACTIONS", "HOSVD", "POSITIVE_DEFINITE_RETRACTIONS",
    "PSD_RETRACTIONS", "QR", "TTSVD", "Additive", "AffineExponential", "CanonicalCayley", "Cayley",
    "Componentwise", "Congruence", "Exponential", "FrameQR", "GeneralizedPolar", "MetricProjection",
    "MetricProjectionPSD", "MultiplicativeWeights", "Normalisation", "Orthographic", "OrthographicHyperbolic",
    "Polar", "PolarFactors", "PowerIteration", "SchurExponential", "SecondOrder", "SecondOrderPD", "SecondOrderPSD",
    "Sinkhorn",
]  # fmt: skip
