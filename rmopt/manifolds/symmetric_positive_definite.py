"""Symmetric positive definite matrices, also in batches; and three metrics, by coordinates in which each is flat."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from rmopt.core.ambient import Ambient, Array, dense
from rmopt.core.arguments import integer, one_of
from rmopt.core.retraction import Retraction, by_name
from rmopt.core.transport import ByProjection, Transport
from rmopt.errors import InvalidInputError
from rmopt.linalg import exp_differences, lyapunov, symmetric, whitened
from rmopt.manifolds.arrays import ArrayManifold, weighted_sum
from rmopt.precision import matched, slack
from rmopt.retractions.grassmann import Exponential
from rmopt.retractions.positive_definite import Congruence, SchurExponential, SecondOrderPD


class Metric(ABC):
    """A Riemannian metric of symmetric positive definite matrices W, shape (..., d, d).

    `flat` and `bent` map tangent vectors at W to symmetric matrices and back such that ⟨ξ, η⟩ = tr(flat ξ · flat η);
    gradients, lengths and a transport that keeps them follow.
    """

    retractions: ClassVar[Mapping[str, Retraction]]

    @abstractmethod
    def flat(self, W: Array, *vectors: Array) -> list[Array]:
        """Return the coordinates of tangent vectors."""

    @abstractmethod
    def bent(self, W: Array, coordinates: Array) -> Array:
        """Return the tangent vector of these coordinates."""

    def gradient(self, W: Array, G: Array) -> Array:
        """Return the gradient for a symmetric Euclidean one."""
        return self.bent(W, self.bent(W, G))

    @abstractmethod
    def hessian(self, W: Array, G: Array, H: Array, xi: Array) -> Array:
        """Return the Hessian along ξ for a symmetric Euclidean gradient and its derivative along ξ."""

    @abstractmethod
    def exp(self, W: Array, xi: Array) -> Array:
        """Follow the geodesic."""

    @abstractmethod
    def log(self, A: Array, B: Array) -> Array:
        """Return the initial velocity of the geodesic from A to B."""

    def towards(self, A: Array, B: Array) -> Array:
        """Return the coordinates of that; also from one A to many B, of shape (N, …, d, d)."""
        return self.flat(A, self.log(A, B))[0]

    def dist(self, A: Array, B: Array) -> float:
        """Return the distance."""
        return float(np.linalg.norm(self.towards(A, B)))

    def transport(self, A: Array, B: Array, xi: Array) -> Array:
        """Carry a tangent vector along; lengths and angles stay."""
        return self.bent(B, self.flat(A, xi)[0])


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

    def __init__(self, d: int, k: int = 1, metric: str = "affine-invariant") -> None:
        self.d, self.k = integer("d", d, 1), integer("k", k, 1)
        self.shape = (self.d, self.d) if k == 1 else (self.k, self.d, self.d)
        self.metric = one_of("metric", metric, METRICS)
        self.retractions = self._metric.retractions
        self.default_retraction = next(iter(self.retractions.values()))

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
        _hold(point_a, point_b)
        return self._metric.log(point_a, point_b)

    def dist(self, point_a: Array, point_b: Array) -> float:
        _hold(point_a, point_b)
        return self._metric.dist(point_a, point_b)

    def transport(self, point_a: Array, point_b: Array, tangent_vector_a: Ambient) -> Array:
        return self._metric.transport(point_a, point_b, dense(tangent_vector_a, point_a))

    def projected_mean(self, points: Sequence[Array], weights: Array) -> Array:
        return weighted_sum(points, weights)

    # Points

    def refusal(self, point: Array) -> str | None:
        askew, scale = (np.abs(part).max((-2, -1)) for part in (point - point.mT, point))
        if (askew > slack(1e-12, point) * scale).any():
            return "the matrix is not symmetric"
        values = np.linalg.eigvalsh(point)
        if (definite := _definite(values)).all():
            return None
        least, largest = values[~definite][0][[0, -1]]
        return (
            f"the matrix is not positive definite to machine precision: its least eigenvalue is {least:.1e}, and its "
            f"largest {largest:.1e}; add a small multiple of the identity"
        )

    def random_point(self, rng: np.random.Generator | None = None) -> Array:
        """Return a matrix with uniformly distributed eigenvectors and eigenvalues in [½, 1½]."""
        rng = np.random.default_rng(rng)
        Q, _ = np.linalg.qr(rng.standard_normal(self.shape))
        return symmetric((Q * rng.uniform(0.5, 1.5, (*self.shape[:-2], 1, self.d))) @ Q.mT)


# Below this ratio of eigenvalues the least one has lost a quarter of its digits.
LEAST_RATIO = 1e-4


class AffineInvariant(Metric):
    """tr(W⁻¹ξ W⁻¹η): no change of basis alters it (Bhatia 2007, chapter 6)."""

    retractions: ClassVar[Mapping[str, Retraction]] = by_name(SecondOrderPD(), Exponential())

    def flat(self, W: Array, *vectors: Array) -> list[Array]:
        factor = cholesky(W)
        return [whitened(factor, vector) for vector in vectors]

    def bent(self, W: Array, coordinates: Array) -> Array:
        factor = cholesky(W)
        return symmetric(factor @ coordinates @ factor.mT)

    def gradient(self, W: Array, G: Array) -> Array:
        """Return W G W."""
        return symmetric(W @ G @ W)

    def hessian(self, W: Array, G: Array, H: Array, xi: Array) -> Array:
        """Return W H W + sym(ξ G W)."""
        return symmetric(W @ H @ W + xi @ G @ W)

    def exp(self, W: Array, xi: Array) -> Array:
        """Return W exp(W⁻¹ξ)."""
        factor = cholesky(W)
        values, vectors = np.linalg.eigh(whitened(factor, xi))
        return _squared((factor @ vectors) * np.exp(0.5 * values)[..., None, :])

    def log(self, A: Array, B: Array) -> Array:
        factor, values, vectors = self._relative(A, B)
        return _composed(factor @ vectors, np.log(values))

    def towards(self, A: Array, B: Array) -> Array:
        _, values, vectors = self._relative(A, B)
        return _composed(vectors, np.log(values))

    def dist(self, A: Array, B: Array) -> float:
        """Return the length of the logarithms of the eigenvalues of A⁻¹B."""
        values = np.linalg.eigvalsh(whitened(cholesky(A), B))
        return float(np.linalg.norm(np.log(self._relative(A, B)[1] if _are_wide(values).any() else values)))

    def transport(self, A: Array, B: Array, xi: Array) -> Array:
        """Carry a tangent vector along the geodesic, in parallel: E ξ Eᵀ with E = (B A⁻¹)^½."""
        factor, values, vectors = self._relative(A, B)
        carried = vectors.mT @ whitened(factor, xi) @ vectors
        spread = (factor @ vectors) * np.sqrt(values)[..., None, :]
        return symmetric(spread @ carried @ spread.mT)

    @staticmethod
    def _relative(A: Array, B: Array) -> tuple[Array, Array, Array]:
        """Return L, Λ, U with A = L Lᵀ and B = L U Λ Uᵀ Lᵀ."""
        factor = cholesky(A)
        values, vectors = np.linalg.eigh(whitened(factor, B))
        wide = _are_wide(values)
        if wide.any():
            # Singular values of L⁻¹ times the factor of B keep the digits that small eigenvalues lose.
            halves = np.linalg.solve(np.broadcast_to(factor, B.shape)[wide], cholesky(B[wide]))
            vectors[wide], singular, _ = np.linalg.svd(halves)
            values[wide] = singular**2
        return factor, values, vectors


class LogEuclidean(Metric):
    """That of the matrix logarithm in flat space: ⟨ξ, η⟩ = tr(D log[ξ] D log[η]) (Arsigny et al. 2007)."""

    retractions: ClassVar[Mapping[str, Retraction]] = by_name(Exponential(), SchurExponential())

    def flat(self, W: Array, *vectors: Array) -> list[Array]:
        logarithms, basis = _log_spectrum(W)
        return [_entrywise(basis, vector, 1.0 / exp_differences(logarithms)) for vector in vectors]

    def bent(self, W: Array, coordinates: Array) -> Array:
        logarithms, basis = _log_spectrum(W)
        return _entrywise(basis, coordinates, exp_differences(logarithms))

    def hessian(self, W: Array, G: Array, H: Array, xi: Array) -> Array:
        """Return the second derivative of S ↦ f(exp S) along σ = D log[ξ], carried to W.

        It is D exp[D exp[H] + D² exp[σ, G]].
        """
        logarithms, basis = _log_spectrum(W)
        once = exp_differences(logarithms)
        turned, along, slope = (basis.mT @ part @ basis for part in (G, xi, H))
        along = along / once
        twice = exp_differences(logarithms, order=2)
        curved = np.einsum("...ikj,...ik,...kj->...ij", twice, along, turned)
        return _in_basis(basis, once * (once * slope + curved + curved.mT))

    def exp(self, W: Array, xi: Array) -> Array:
        """Return exp(log W + D log[ξ])."""
        values, vectors = np.linalg.eigh(self._log(W) + self.flat(W, xi)[0])
        # From wider a spectrum no logarithm finds its way back.
        if (values[..., -1] - values[..., 0] > -np.log(8.0 * W.shape[-1] * np.finfo(W.dtype).eps)).any():
            raise outside()
        return _squared(vectors * np.exp(0.5 * values)[..., None, :])

    def log(self, A: Array, B: Array) -> Array:
        return self.bent(A, self.towards(A, B))

    def towards(self, A: Array, B: Array) -> Array:
        return self._log(B) - self._log(A)

    @staticmethod
    def _log(W: Array) -> Array:
        logarithms, basis = _log_spectrum(W)
        return _composed(basis, logarithms)


class BuresWasserstein(Metric):
    """½ tr(L η) with L W + W L = ξ, that of optimal transport between normal distributions.

    Geodesics reach singular matrices after finite length, where I + L is singular (Bhatia, Jain and Lim 2019).
    """

    retractions: ClassVar[Mapping[str, Retraction]] = by_name(Congruence(), Exponential())

    def flat(self, W: Array, *vectors: Array) -> list[Array]:
        values, basis = _spectrum(W)
        return [_entrywise(basis, vector, (2.0 * _sums(values)) ** -0.5) for vector in vectors]

    def bent(self, W: Array, coordinates: Array) -> Array:
        values, basis = _spectrum(W)
        return _entrywise(basis, coordinates, (2.0 * _sums(values)) ** 0.5)

    def gradient(self, W: Array, G: Array) -> Array:
        """Return 2 (G W + W G)."""
        return 4.0 * symmetric(G @ W)

    def hessian(self, W: Array, G: Array, H: Array, xi: Array) -> Array:
        """Return the Hessian of Han, Mishra, Jawanpuria and Gao (2021, section 3)."""
        L = lyapunov(W, xi)
        gradient = self.gradient(W, G)
        bent = 4.0 * symmetric(H @ W) + 2.0 * symmetric(G @ xi)
        return bent + 4.0 * symmetric(W @ symmetric(G @ L)) - symmetric(L @ gradient)

    def exp(self, W: Array, xi: Array) -> Array:
        """Return (I + L) W (I + L).

        Raises
        ------
        InvalidInputError
            When the geodesic leaves the positive definite matrices on the way.
        """
        L = lyapunov(W, xi)
        least = float(np.linalg.eigvalsh(L).min())
        if not least > -1.0 and np.isfinite(least):
            raise InvalidInputError(
                f"the geodesic of the Bures–Wasserstein metric meets a singular matrix after {-1.0 / least:.3g} of "
                "the tangent vector; take a shorter one, or the retraction 'congruence', which goes on behind."
            )
        moved = L + np.eye(W.shape[-1], dtype=W.dtype)
        return symmetric(moved @ W @ moved)

    def log(self, A: Array, B: Array) -> Array:
        """Return T A + A T − 2 A for the optimal transport map T, with T A T = B."""
        factor = cholesky(A)
        values, vectors = np.linalg.eigh(symmetric(factor.mT @ B @ factor))
        root = _composed(vectors, np.sqrt(np.maximum(values, 0.0)))
        # T = F⁻ᵀ (FᵀBF)^½ F⁻¹, so that T A is F⁻ᵀ (FᵀBF)^½ Fᵀ.
        moved = np.linalg.solve(factor.mT, root - factor.mT @ factor) @ factor.mT
        return moved + moved.mT

    def dist(self, A: Array, B: Array) -> float:
        """Return the distance of Cholesky factors, turned to each other: exact also between close points."""
        factor, other = cholesky(A), cholesky(B)
        left, _, right = np.linalg.svd(factor.mT @ other)
        return float(np.linalg.norm(factor @ left - other @ right.mT))


METRICS: dict[str, Metric] = {
    "affine-invariant": AffineInvariant(), "log-euclidean": LogEuclidean(), "bures-wasserstein": BuresWasserstein(),
}  # fmt: skip


def _definite(values: Array) -> Any:
    """Return which spectra are positive; by a rounding of the largest eigenvalue the sign of others is chance."""
    rounding = values.shape[-1] * np.finfo(values.dtype).eps
    return values[..., 0] > rounding * np.abs(values[..., -1])


def _hold(*matrices: Array) -> None:
    if not all(_definite(np.linalg.eigvalsh(W)).all() for W in matrices):
        raise outside()


def _are_wide(values: Array) -> Any:
    """Return which spectra are so wide that their small ends lose digits."""
    return ~(values[..., 0] > LEAST_RATIO * values[..., -1])


def cholesky(W: Array) -> Array:
    """Return the Cholesky factors, or say that a point is not positive definite."""
    try:
        return np.linalg.cholesky(W)
    except np.linalg.LinAlgError:
        raise outside() from None


def outside() -> InvalidInputError:
    """Return what to say of a point that is not positive definite."""
    return InvalidInputError(
        "the point is not positive definite to machine precision; take smaller steps where they led there, or add a "
        "small multiple of the identity."
    )


def _composed(basis: Array, values: Array) -> Array:
    """Return E Λ Eᵀ."""
    return symmetric((basis * values[..., None, :]) @ basis.mT)


def _squared(half: Array) -> Array:
    """Return H Hᵀ, which is positive definite by construction."""
    return symmetric(half @ half.mT)


def _in_basis(basis: Array, inner: Array) -> Array:
    """Return V M Vᵀ."""
    return symmetric(basis @ inner @ basis.mT)


def _entrywise(basis: Array, matrix: Array, weights: Array) -> Array:
    """Multiply the entries of a matrix in a basis."""
    return _in_basis(basis, weights * (basis.mT @ matrix @ basis))


def _spectrum(W: Array) -> tuple[Array, Array]:
    """Return eigenvalues and eigenvectors, or say that a point is not positive definite."""
    values, basis = np.linalg.eigh(W)
    if not _definite(values).all():
        raise outside()
    return values, basis


def _log_spectrum(W: Array) -> tuple[Array, Array]:
    values, basis = _spectrum(W)
    return np.log(values), basis


def _sums(values: Array) -> Array:
    return values[..., :, None] + values[..., None, :]
