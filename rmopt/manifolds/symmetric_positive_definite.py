"""Symmetric positive definite matrices, also in batches, with one of three metrics."""

from typing import Any

import numpy as np

from rmopt.core.ambient import Ambient, Array, dense
from rmopt.core.arguments import integer, one_of
from rmopt.core.points import in_precision
from rmopt.core.retraction import Retraction
from rmopt.core.transport import ByProjection, Transport
from rmopt.errors import InvalidInputError
from rmopt.linalg import symmetric
from rmopt.manifolds.arrays import ArrayManifold
from rmopt.manifolds.spd_metrics import METRICS, Metric
from rmopt.precision import matched, slack


class SymmetricPositiveDefinite(ArrayManifold):
    """Symmetric positive definite d × d matrices W, or batches of them, with one of three metrics.

    Tangent vectors are symmetric arrays ξ.

    "affine-invariant"
        tr(W⁻¹ξ W⁻¹η) (Bhatia 2007). Singular matrices are infinitely far away; no change of basis alters it. For
        coordinate descent over single rows and columns take `PositiveDefinite`, which is the same.
    "log-euclidean"
        That of the logarithm log W in flat space (Arsigny et al. 2007). Singular matrices are infinitely far away.
    "bures-wasserstein"
        ½ tr(L η) with L W + W L = ξ, that of optimal transport between normal distributions (Bhatia, Jain and Lim
        2019). Singular matrices are at finite distance: `exp` raises where a geodesic meets one.

    Exponential, logarithm and distance have closed forms; `transport` keeps lengths and angles, and is parallel with
    the first two.

    Parameters
    ----------
    d : int
        Number of rows and columns.
    k : int
        With more than 1, a point is a k × d × d array of as many matrices.
    metric : "affine-invariant", "log-euclidean" or "bures-wasserstein"
    retraction : Retraction or str, optional
        The default retraction; unless given `SecondOrderPD`, `Exponential` and `Congruence`, each for its metric.

    Raises
    ------
    InvalidInputError
        For a size that is not positive, or an unknown metric.

    See Also
    --------
    PositiveDefinite : affine-invariant, for coordinate descent as well.
    PSDFixedRank : a low rank.

    References
    ----------
    Bhatia, Positive Definite Matrices, Princeton University Press (2007), https://doi.org/10.1515/9781400827787.
    Arsigny, Fillard, Pennec and Ayache, Geometric means in a novel vector space structure on symmetric
    positive-definite matrices, SIAM J. Matrix Anal. Appl. 29 (2007), https://doi.org/10.1137/050637996. Bhatia,
    Jain and Lim, On the Bures–Wasserstein distance between positive definite matrices, Expositiones Mathematicae
    37 (2019), https://doi.org/10.1016/j.exmath.2018.01.002.

    Examples
    --------
    >>> import numpy as np
    >>> from rmopt.manifolds import SymmetricPositiveDefinite
    >>> for metric in ("affine-invariant", "log-euclidean", "bures-wasserstein"):
    ...     manifold = SymmetricPositiveDefinite(2, metric=metric)
    ...     print(round(manifold.dist(np.eye(2), 4.0 * np.eye(2)), 4))
    1.9605
    1.9605
    1.4142
    """

    # `transport` takes longer, and saves no iterations.
    default_transport: Transport = ByProjection()

    def __init__(
        self, d: int, k: int = 1, metric: str = "affine-invariant", retraction: Retraction | str | None = None
    ) -> None:
        self.d, self.k = integer("d", d, 1), integer("k", k, 1)
        self.shape = (self.d, self.d) if k == 1 else (self.k, self.d, self.d)
        self.metric = one_of("metric", metric, METRICS)
        self.retractions = self._metric.retractions
        self.default_retraction = next(iter(self.retractions.values()))
        self.default_retraction = self.fitting(retraction)

    def __repr__(self) -> str:
        batch = f", k={self.k}" if self.k > 1 else ""
        return f"SymmetricPositiveDefinite({self.d}{batch}, metric={self.metric!r})"

    @property
    def _metric(self) -> Metric:
        return METRICS[self.metric]

    @property
    def dim(self) -> int:
        return self.k * self.d * (self.d + 1) // 2

    # The tangent space

    def inner_product(self, point: Array, tangent_vector_a: Array, tangent_vector_b: Array) -> float:
        same = tangent_vector_b is tangent_vector_a
        vectors = [tangent_vector_a] if same else [tangent_vector_a, tangent_vector_b]
        try:
            flat = self._metric.flat(point, *(dense(vector, point) for vector in vectors))
        except InvalidInputError:
            # Rounding has led a run out of the cone, where there is no metric: solvers take NaN for divergence.
            return float("nan")
        return float(np.vdot(flat[0], flat[-1]))

    def projection(self, point: Array, ambient: Ambient) -> Array:
        return symmetric(dense(ambient, point))

    def euclidean_to_riemannian_gradient(self, point: Array, euclidean_gradient: Ambient) -> Array:
        """Return the gradient for a Euclidean one, of which the symmetric part counts."""
        return self._metric.gradient(point, symmetric(dense(euclidean_gradient, point)))

    def euclidean_to_riemannian_hessian(
        self, point: Array, euclidean_gradient: Ambient, euclidean_hessian: Ambient, tangent_vector: Array
    ) -> Array:
        """Return the Hessian along ξ for the Euclidean gradient and its derivative along ξ."""
        G, H = (symmetric(dense(part, point)) for part in (euclidean_gradient, euclidean_hessian))
        return self._metric.hessian(point, G, H, dense(tangent_vector, point))

    def embedding(self, point: Array, tangent_vector: Ambient) -> Array:
        return dense(tangent_vector, point)

    def random_tangent_vector(self, point: Array, rng: np.random.Generator | None = None) -> Array:
        """Return a tangent vector of length 1 in a uniformly distributed direction."""
        inner = matched(symmetric(np.random.default_rng(rng).standard_normal(self.shape)), point)
        return self._metric.bent(point, inner) / np.linalg.norm(inner)

    # Geodesics

    def exp(self, point: Array, tangent_vector: Ambient) -> Array:
        """Follow the geodesic.

        Raises
        ------
        InvalidInputError
            When it leaves the positive definite matrices, as it may with the Bures–Wasserstein metric.
        """
        return self._metric.exp(point, dense(tangent_vector, point))

    def log(self, point_a: Array, point_b: Array) -> Array:
        return self._metric.log(point_a, point_b)

    def dist(self, point_a: Array, point_b: Array) -> float:
        return self._metric.dist(point_a, point_b)

    def transport(self, point_a: Array, point_b: Array, tangent_vector_a: Ambient) -> Array:
        return self._metric.transport(point_a, point_b, dense(tangent_vector_a, point_a))

    # Points

    def refusal(self, point: Array) -> str | None:
        if np.abs(point - point.mT).max() > slack(1e-12, point) * np.abs(point).max():
            return "the matrix is not symmetric"
        try:
            np.linalg.cholesky(point)
        except np.linalg.LinAlgError:
            least = np.linalg.eigvalsh(point).min()
            return f"the matrix is not positive definite: its least eigenvalue is {least:.1e}"
        return None

    def random_point(self, rng: np.random.Generator | None = None, dtype: Any = float) -> Array:
        """Return a matrix with uniformly distributed eigenvectors and eigenvalues in [½, 1½]."""
        rng = np.random.default_rng(rng)
        Q, _ = np.linalg.qr(rng.standard_normal(self.shape))
        return in_precision(
            symmetric((Q * rng.uniform(0.5, 1.5, (*self.shape[:-2], 1, self.d))) @ Q.mT), dtype
        )
