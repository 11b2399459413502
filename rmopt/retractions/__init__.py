"""Ways to move from a point along a tangent vector."""

from rmopt.retractions.arrays import (
    CANONICAL_RETRACTIONS,
    FRAME_RETRACTIONS,
    HYPERBOLIC_RETRACTIONS,
    SIMPLEX_RETRACTIONS,
    SPHERE_RETRACTIONS,
    CanonicalCayley,
    Cayley,
    FrameQR,
    MultiplicativeWeights,
    Normalisation,
    OrthographicHyperbolic,
)
from rmopt.retractions.fixed_rank import (
    FIXED_RANK_RETRACTIONS,
    PSD_RETRACTIONS,
    MetricProjection,
    MetricProjectionPSD,
    Orthographic,
    PolarFactors,
    SecondOrder,
    SecondOrderPSD,
)
from rmopt.retractions.grassmann import GRASSMANN_RETRACTIONS, QR, Exponential, Polar
from rmopt.retractions.positive_definite import (
    POSITIVE_DEFINITE_RETRACTIONS,
    Additive,
    AffineExponential,
    Congruence,
    SchurExponential,
    SecondOrderPD,
)
from rmopt.retractions.product import Componentwise

__all__ = [
    "CANONICAL_RETRACTIONS", "FIXED_RANK_RETRACTIONS", "FRAME_RETRACTIONS", "GRASSMANN_RETRACTIONS",
    "HYPERBOLIC_RETRACTIONS", "POSITIVE_DEFINITE_RETRACTIONS", "PSD_RETRACTIONS", "QR",
    "SIMPLEX_RETRACTIONS", "SPHERE_RETRACTIONS", "Additive", "AffineExponential", "CanonicalCayley",
    "Cayley", "Componentwise", "Congruence", "Exponential", "FrameQR", "MetricProjection",
    "MetricProjectionPSD", "MultiplicativeWeights", "Normalisation", "Orthographic",
    "OrthographicHyperbolic", "Polar", "PolarFactors", "SchurExponential", "SecondOrder", "SecondOrderPD",
    "SecondOrderPSD",
]  # fmt: skip
