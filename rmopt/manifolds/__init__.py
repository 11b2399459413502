"""Manifolds to optimise on."""

from rmopt.manifolds.arrays import ArrayManifold
from rmopt.manifolds.curved import Hyperbolic, Simplex
from rmopt.manifolds.doubly_stochastic import DoublyStochastic, SymmetricDoublyStochastic
from rmopt.manifolds.euclidean import Euclidean, Positive, SkewSymmetric, Symmetric
from rmopt.manifolds.factors import BoundedRank, FixedRankFactors, PSDFactors
from rmopt.manifolds.fixed_rank_embedded import FixedRankEmbedded
from rmopt.manifolds.generalized import GeneralizedGrassmann, GeneralizedStiefel
from rmopt.manifolds.grassmann import Grassmann
from rmopt.manifolds.means import TangentPCA, frechet_mean, geometric_median, projected_mean, tangent_pca
from rmopt.manifolds.positive_definite import PositiveDefinite
from rmopt.manifolds.product import Power, Product
from rmopt.manifolds.psd_fixed_rank import PolarPSD, PSDFixedRank
from rmopt.manifolds.special_euclidean import SpecialEuclidean
from rmopt.manifolds.sphere import Elliptope, Oblique, Sphere
from rmopt.manifolds.stiefel import SpecialOrthogonal, Stiefel, Unitary
from rmopt.manifolds.symmetric_positive_definite import SpecialPositiveDefinite, SymmetricPositiveDefinite
from rmopt.manifolds.tensors import FixedMultilinearRank, TensorTrain

__all__ = [
    "ArrayManifold", "BoundedRank", "DoublyStochastic", "Elliptope", "Euclidean", "FixedMultilinearRank",
    "FixedRankEmbedded", "FixedRankFactors", "GeneralizedGrassmann", "GeneralizedStiefel", "Grassmann",
    "Hyperbolic", "Oblique", "PSDFactors", "PSDFixedRank", "PolarPSD", "Positive", "PositiveDefinite",
    "Power", "Product", "Simplex", "SkewSymmetric", "SpecialEuclidean", "SpecialOrthogonal",
    "SpecialPositiveDefinite", "Sphere", "Stiefel", "Symmetric", "SymmetricDoublyStochastic",
    "SymmetricPositiveDefinite", "TangentPCA", "TensorTrain", "Unitary", "frechet_mean", "geometric_median",
    "projected_mean", "tangent_pca",
]  # fmt: skip
