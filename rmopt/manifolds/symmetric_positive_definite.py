"""Symmetric or Hermitian positive definite matrices with three metrics, by coordinates in which each is flat."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from functools import partial
from math import log
from typing import Any, ClassVar

import numpy as np

from rmopt import namespaces as ns
from rmopt.core.ambient import Ambient, Array, dense
from rmopt.core.arguments import integer, one_of
from rmopt.core.manifold import Manifold
from rmopt.core.memo import latest
from rmopt.core.points import as_like
from rmopt.core.retraction import Retraction, by_name
from rmopt.core.transport import ByProjection, Transport
from rmopt.errors import InvalidInputError, broke_down
from rmopt.linalg import eigh, exp_differences, lyapunov, solve_lower, symmetric, whitened
from rmopt.manifolds.arrays import Keeping, weighted_sum
from rmopt.retractions.grassmann import Exponential
from rmopt.retractions.positive_definite import Congruence, SchurExponential, SecondOrderPD


class Metric(ABC):
    """A Riemannian metric of positive definite matrices W, shape (..., d, d), symmetric or Hermitian.

    `flat` and `bent` map tangent vectors at W to such matrices and back such that ⟨ξ, η⟩ = tr(flat ξ · flat η).
    Gradients, lengths and an isometric transport follow.
    """

    retractions: ClassVar[Mapping[str, Retraction]]

    def flat(self, W: Array, *vectors: Array) -> list[Array]:
        """Return the coordinates of tangent vectors."""
        frame = self.frame(W)
        return [self.coordinates(frame, vector) for vector in vectors]

    @abstractmethod
    def frame(self, W: Array) -> Any:
        """Return the basis for coordinates of all tangent vectors at W, and weights in it."""

    def coordinates(self, frame: Any, vector: Array) -> Array:
        """Return the coordinates of one tangent vector."""
        return _entrywise(frame[0], vector, frame[1])

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
        """Return the coordinates of `log`, also from one A to many B of shape (N, …, d, d)."""
        return self.flat(A, self.log(A, B))[0]

    def apart(self, A: Array, B: Array) -> Array:
        """Return arrays whose lengths are the distances."""
        return self.towards(A, B)

    def transport(self, A: Array, B: Array, xi: Array) -> Array:
        """Transport a tangent vector, preserving lengths and angles."""
        return self.bent(B, self.flat(A, xi)[0])


class SymmetricPositiveDefinite(Keeping):
    """Symmetric positive definite d × d matrices W, or batches of them, with one of three metrics.

    Tangent vectors are symmetric arrays ξ. With ``field="complex"`` both are Hermitian, in d² dimensions.

    "affine-invariant"
        tr(W⁻¹ξ W⁻¹η) (Bhatia 2007). Invariant to changes of basis. Singular matrices are infinitely far away. For
        coordinate descent over single rows and columns use `PositiveDefinite`, which is the same.
    "log-euclidean"
        That of the logarithm log W in flat space (Arsigny et al. 2007). Singular matrices are infinitely far away.
    "bures-wasserstein"
        ½ tr(L η) with L W + W L = ξ, that of optimal transport between normal distributions (Bhatia, Jain and Lim
        2019). Singular matrices are at finite distance: `exp` raises an error if a geodesic meets one.

    Exponential, logarithm and distance have closed forms. `transport` preserves lengths and angles, and is parallel
    for the first two.

    Parameters
    ----------
    d : int
        Number of rows and columns.
    k : int
        The number of matrices: if more than 1, a point is a k × d × d array.
    metric : "affine-invariant", "log-euclidean" or "bures-wasserstein"
    field : {"real", "complex"}

    See Also
    --------
    PositiveDefinite : affine-invariant, also for coordinate descent.
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

    # `transport` takes longer and saves no iterations.
    default_transport: Transport = ByProjection()

    def __init__(self, d: int, k: int = 1, metric: str = "affine-invariant", *, field: str = "real") -> None:
        self._take(field)
        self.d, self.k = integer("d", d, 1), integer("k", k, 1)
        self.shape = (self.d, self.d) if k == 1 else (self.k, self.d, self.d)
        self.metric = one_of("metric", metric, METRICS)
        self.retractions = self._metric.retractions
        self.default_retraction = next(iter(self.retractions.values()))

    def __repr__(self) -> str:
        batch = f", k={self.k}" if self.k > 1 else ""
        return f"SymmetricPositiveDefinite({self.d}{batch}, metric={self.metric!r}{self._in_field})"

    @property
    def _metric(self) -> Metric:
        return METRICS[self.metric]

    @property
    def dim(self) -> int:
        return self.k * (self.d + self._per_number * (self.d * (self.d - 1) // 2))

    # The tangent space

    def inner_product(self, point: Array, tangent_vector_a: Array, tangent_vector_b: Array) -> float:
        return float(self.inner(point, tangent_vector_a, tangent_vector_b))

    def inner(self, point: Array, tangent_vector_a: Array, tangent_vector_b: Array) -> Any:
        same = tangent_vector_b is tangent_vector_a
        vectors = [tangent_vector_a] if same else [tangent_vector_a, tangent_vector_b]
        try:
            flat = self._flat(point, *(dense(vector, point) for vector in vectors))
        except InvalidInputError:
            # By rounding the run has left the cone, outside which there is no metric: solvers treat NaN as
            # divergence.
            return float("nan")
        return ns.real_dot(flat[0], flat[-1])

    def _flat(self, point: Array, *vectors: Array) -> list[Array]:
        """Return the coordinates of tangent vectors, of which a run caches the last few."""
        frame, known = self._kept_at(point, lambda W: (self._metric.frame(W), {}))
        return [latest(known, vector, partial(self._metric.coordinates, frame), 6) for vector in vectors]

    def inner_products(self, point: Array, tangent_vectors_a: Array, tangent_vectors_b: Array) -> Array:
        pair = [dense(vectors, point) for vectors in (tangent_vectors_a, tangent_vectors_b)]
        return self._products(*self._metric.flat(point, *pair))

    def projection(self, point: Array, ambient: Ambient) -> Array:
        return symmetric(dense(ambient, point))

    def euclidean_to_riemannian_gradient(self, point: Array, euclidean_gradient: Ambient) -> Array:
        """Return the gradient from the symmetric part of a Euclidean one."""
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
        inner = ns.matched(symmetric(self.drawn(rng, tuple(point.shape))), point)
        return self._metric.bent(point, inner) / float(ns.real_dot(inner, inner)) ** 0.5

    # Geodesics

    def exp(self, point: Array, tangent_vector: Ambient) -> Array:
        """Follow the geodesic.

        Raises
        ------
        InvalidInputError
            If it leaves the positive definite matrices, as it may in the Bures–Wasserstein metric.
        """
        return self._metric.exp(point, dense(tangent_vector, point))

    def log(self, point_a: Array, point_b: Array) -> Array:
        _hold(point_a, point_b)
        return self._metric.log(point_a, point_b)

    def dist(self, point_a: Array, point_b: Array) -> Any:
        _hold(point_a, point_b)
        apart = self._metric.apart(point_a, point_b)
        if apart.ndim == len(self.shape) and not ns.is_traced(apart):
            return float(ns.real_dot(apart, apart)) ** 0.5
        return self._products(apart, apart) ** 0.5

    def transport(self, point_a: Array, point_b: Array, tangent_vector_a: Ambient) -> Array:
        return self._metric.transport(point_a, point_b, dense(tangent_vector_a, point_a))

    def projected_mean(self, points: Sequence[Array], weights: Array) -> Array:
        return weighted_sum(points, weights)

    # Points

    def refusal(self, point: Array) -> str | None:
        point = ns.to_numpy(point)
        askew, scale = (np.abs(part).max((-2, -1)) for part in (point - ns.adjoint(point), point))
        if (askew > ns.slack(1e-12, point) * scale).any():
            return "the matrix is not symmetric"
        values = np.linalg.eigvalsh(point)
        if (definite := _definite(values)).all():
            return None
        least, largest = values[~definite][0][[0, -1]]
        return (
            f"the matrix is not positive definite to machine precision: its least eigenvalue is {least:.1e}, and its "
            f"largest {largest:.1e}; add a small multiple of the identity"
        )

    def random_point(self, rng: np.random.Generator | None = None, like: Any = None) -> Array:
        """Return a matrix with uniformly distributed eigenvectors and eigenvalues in [½, 1½]."""
        rng = np.random.default_rng(rng)
        Q, _ = np.linalg.qr(self.drawn(rng))
        return as_like(_composed(Q, rng.uniform(0.5, 1.5, self.shape[:-1])), like)


class SpecialPositiveDefinite(SymmetricPositiveDefinite):
    """Symmetric or Hermitian positive definite d × d matrices W of determinant 1, or batches of them.

    Tangent vectors are symmetric arrays ξ with tr(W⁻¹ξ) = 0, and the metric is the affine-invariant one. Geodesics
    are those of all positive definite matrices, whose cone is the product of this manifold and a line, that of
    log det W.

    Parameters
    ----------
    d : int
        Number of rows and columns, 2 or more.
    k : int
        The number of matrices: if more than 1, a point is a k × d × d array.
    field : {"real", "complex"}

    See Also
    --------
    SymmetricPositiveDefinite : any determinant.

    Examples
    --------
    >>> import numpy as np
    >>> from rmopt.manifolds import SpecialPositiveDefinite
    >>> manifold = SpecialPositiveDefinite(2)
    >>> manifold.dim, round(float(manifold.dist(np.eye(2), np.diag([np.e, 1.0 / np.e]))), 4)
    (2, 1.4142)
    """

    # The sum of such matrices has another determinant.
    projected_mean = Manifold.projected_mean

    def __init__(self, d: int, k: int = 1, *, field: str = "real") -> None:
        super().__init__(integer("d", d, 2), k, field=field)
        self.retractions = by_name(Exponential())
        self.default_retraction = self.retractions["exponential"]

    def __repr__(self) -> str:
        batch = f", k={self.k}" if self.k > 1 else ""
        return f"SpecialPositiveDefinite({self.d}{batch}{self._in_field})"

    @property
    def dim(self) -> int:
        return super().dim - self.k

    def _traceless(self, point: Array, vector: Array) -> Array:
        xp = ns.namespace(vector)
        rate = ns.real(xp.linalg.trace(xp.linalg.solve(point, vector))) / self.d
        return vector - rate[..., None, None] * point

    def projection(self, point: Array, ambient: Ambient) -> Array:
        """Return the orthogonal projection in the metric."""
        return self._traceless(point, super().projection(point, ambient))

    def euclidean_to_riemannian_gradient(self, point: Array, euclidean_gradient: Ambient) -> Array:
        return self._traceless(point, super().euclidean_to_riemannian_gradient(point, euclidean_gradient))

    def euclidean_to_riemannian_hessian(
        self, point: Array, euclidean_gradient: Ambient, euclidean_hessian: Ambient, tangent_vector: Array
    ) -> Array:
        whole = super().euclidean_to_riemannian_hessian(
            point, euclidean_gradient, euclidean_hessian, tangent_vector
        )
        return self._traceless(point, whole)

    def random_tangent_vector(self, point: Array, rng: np.random.Generator | None = None) -> Array:
        vector = self._traceless(point, super().random_tangent_vector(point, rng))
        return vector / self.norm(point, vector)

    def exp(self, point: Array, tangent_vector: Ambient) -> Array:
        """Follow the geodesic."""
        return self._scaled(super().exp(point, tangent_vector))

    def _scaled(self, W: Array) -> Array:
        return W / ns.real(ns.namespace(W).linalg.det(W))[..., None, None] ** (1.0 / self.d)

    def refusal(self, point: Array) -> str | None:
        if (reason := super().refusal(point)) is not None:
            return reason
        off = np.abs(np.linalg.det(ns.to_numpy(point)) - 1.0).max()
        return f"its determinant differs from 1 by {off:.1e}" if off > ns.slack(1e-9, point) else None

    def random_point(self, rng: np.random.Generator | None = None, like: Any = None) -> Array:
        """Return a matrix with uniformly distributed eigenvectors, the largest eigenvalue up to 3 times the least."""
        return as_like(self._scaled(super().random_point(rng)), like)


# Below this ratio of eigenvalues the least one has lost a quarter of its digits.
LEAST_RATIO = 1e-4


class AffineInvariant(Metric):
    """tr(W⁻¹ξ W⁻¹η), invariant to changes of basis (Bhatia 2007, chapter 6)."""

    retractions: ClassVar[Mapping[str, Retraction]] = by_name(SecondOrderPD(), Exponential())

    def frame(self, W: Array) -> Array:
        return cholesky(W)

    def coordinates(self, frame: Array, vector: Array) -> Array:
        return whitened(frame, vector)

    def bent(self, W: Array, coordinates: Array) -> Array:
        factor = cholesky(W)
        return _in_basis(factor, coordinates)

    def gradient(self, W: Array, G: Array) -> Array:
        """Return W G W."""
        return symmetric(W @ G @ W)

    def hessian(self, W: Array, G: Array, H: Array, xi: Array) -> Array:
        """Return W H W + sym(ξ G W)."""
        return symmetric(W @ H @ W + xi @ G @ W)

    def exp(self, W: Array, xi: Array) -> Array:
        """Return W exp(W⁻¹ξ)."""
        factor, xp = cholesky(W), ns.namespace(xi)
        values, vectors = eigh(whitened(factor, xi))
        return _squared((factor @ vectors) * xp.exp(0.5 * values)[..., None, :])

    def log(self, A: Array, B: Array) -> Array:
        factor, values, vectors = self._relative(A, B)
        return _composed(factor @ vectors, ns.namespace(values).log(values))

    def towards(self, A: Array, B: Array) -> Array:
        _, values, vectors = self._relative(A, B)
        return _composed(vectors, ns.namespace(values).log(values))

    def apart(self, A: Array, B: Array) -> Array:
        """Return the logarithms of the eigenvalues of A⁻¹B."""
        xp, inner = ns.namespace(B), whitened(cholesky(A), B)
        values = xp.linalg.eigvalsh(inner)
        return xp.log(values if _all(_are_narrow(values)) else self._relative(A, B)[1])[..., None]

    def transport(self, A: Array, B: Array, xi: Array) -> Array:
        """Transport a tangent vector in parallel along the geodesic: E ξ Eᴴ with E = (B A⁻¹)^½."""
        factor, values, vectors = self._relative(A, B)
        carried = ns.adjoint(vectors) @ whitened(factor, xi) @ vectors
        return _in_basis((factor @ vectors) * ns.namespace(values).sqrt(values)[..., None, :], carried)

    @staticmethod
    def _relative(A: Array, B: Array) -> tuple[Array, Array, Array]:
        """Return L, Λ, U with A = L Lᴴ and B = L U Λ Uᴴ Lᴴ."""
        factor = cholesky(A)
        values, vectors = eigh(whitened(factor, B))
        if not _all(narrow := _are_narrow(values)):
            # Singular values of L⁻¹ times the factor of B keep the digits that small eigenvalues lose.
            xp = ns.namespace(B)
            others, singular, _ = xp.linalg.svd(solve_lower(factor, cholesky(B)))
            vectors = xp.where(narrow[..., None, None], vectors, others)
            values = xp.where(narrow[..., None], values, singular**2)
        return factor, values, vectors


class LogEuclidean(Metric):
    """The flat metric of the matrix logarithm: ⟨ξ, η⟩ = tr(D log[ξ] D log[η]) (Arsigny et al. 2007)."""

    retractions: ClassVar[Mapping[str, Retraction]] = by_name(Exponential(), SchurExponential())

    def frame(self, W: Array) -> tuple[Array, Array]:
        logarithms, basis = _log_spectrum(W)
        return basis, 1.0 / exp_differences(logarithms)

    def bent(self, W: Array, coordinates: Array) -> Array:
        logarithms, basis = _log_spectrum(W)
        return _entrywise(basis, coordinates, exp_differences(logarithms))

    def hessian(self, W: Array, G: Array, H: Array, xi: Array) -> Array:
        """Return the second derivative of S ↦ f(exp S) along σ = D log[ξ], mapped to W.

        It is D exp[D exp[H] + D² exp[σ, G]].
        """
        logarithms, basis = _log_spectrum(W)
        once, back = exp_differences(logarithms), ns.adjoint(basis)
        turned, along, slope = (back @ part @ basis for part in (G, xi, H))
        pairs = (along / once)[..., :, :, None] * turned[..., None, :, :]
        curved = ns.namespace(pairs).sum(exp_differences(logarithms, order=2) * pairs, axis=-2)
        return _in_basis(basis, once * (once * slope + 2.0 * symmetric(curved)))

    def exp(self, W: Array, xi: Array) -> Array:
        """Return exp(log W + D log[ξ])."""
        xp = ns.namespace(W)
        values, vectors = eigh(self._log(W) + self.flat(W, xi)[0])
        # For a wider spectrum the logarithm cannot invert it.
        values = _held(values, values[..., -1] - values[..., 0] <= -log(8.0 * _rounding(values)))
        return _squared(vectors * xp.exp(0.5 * values)[..., None, :])

    def log(self, A: Array, B: Array) -> Array:
        return self.bent(A, self.towards(A, B))

    def towards(self, A: Array, B: Array) -> Array:
        return self._log(B) - self._log(A)

    @staticmethod
    def _log(W: Array) -> Array:
        logarithms, basis = _log_spectrum(W)
        return _composed(basis, logarithms)


class BuresWasserstein(Metric):
    """½ tr(L η) with L W + W L = ξ, from optimal transport between normal distributions.

    A geodesic may end after finite length, when I + L becomes singular (Bhatia, Jain and Lim 2019).
    """

    retractions: ClassVar[Mapping[str, Retraction]] = by_name(Congruence(), Exponential())

    def frame(self, W: Array) -> tuple[Array, Array]:
        values, basis = _spectrum(W)
        return basis, (2.0 * _sums(values)) ** -0.5

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
            If the geodesic leaves the positive definite matrices on the way.
        """
        L = lyapunov(W, xi)
        xp = ns.namespace(L)
        least = float(xp.min(xp.linalg.eigvalsh(L)))
        if not least > -1.0 and np.isfinite(least):
            raise InvalidInputError(
                f"the geodesic of the Bures–Wasserstein metric meets a singular matrix after {-1.0 / least:.3g} of "
                "the tangent vector; take a shorter one, or the retraction 'congruence', which continues beyond."
            )
        moved = L + ns.eye(W.shape[-1], W)
        return symmetric(moved @ W @ moved)

    def log(self, A: Array, B: Array) -> Array:
        """Return T A + A T − 2 A for the optimal transport map T, with T A T = B."""
        factor, xp = cholesky(A), ns.namespace(B)
        back = ns.adjoint(factor)
        values, vectors = eigh(symmetric(back @ B @ factor))
        root = _composed(vectors, xp.sqrt(ns.at_least(values, 0.0)))
        # T = F⁻ᴴ (FᴴBF)^½ F⁻¹, so that T A is F⁻ᴴ (FᴴBF)^½ Fᴴ.
        moved = xp.linalg.solve(back, root - back @ factor) @ back
        return moved + ns.adjoint(moved)

    def apart(self, A: Array, B: Array) -> Array:
        """Return differences of aligned Cholesky factors, which are exact even between close points."""
        factor, other = cholesky(A), cholesky(B)
        left, _, right = ns.namespace(other).linalg.svd(ns.adjoint(factor) @ other)
        return factor @ left - other @ ns.adjoint(right)


METRICS: dict[str, Metric] = {
    "affine-invariant": AffineInvariant(), "log-euclidean": LogEuclidean(), "bures-wasserstein": BuresWasserstein(),
}  # fmt: skip


def _rounding(values: Array) -> float:
    """Return the rounding error of eigenvalues relative to the largest one."""
    return float(values.shape[-1] * 2.0**-52 * ns.coarseness(values))


def _definite(values: Array) -> Any:
    """Return which spectra are positive beyond a rounding of the largest eigenvalue. Within it signs are random."""
    return values[..., 0] > _rounding(values) * abs(values[..., -1])


def _held(values: Array, inside: Any) -> Array:
    """Return spectra that are all inside, and refuse others, or replace them by NaN while JAX traces."""
    if ns.is_traced(values):
        return ns.namespace(values).where(inside[..., None], values, np.nan)
    if not _all(inside):
        raise outside()
    return values


def _hold(*matrices: Array) -> None:
    for W in matrices:
        values = ns.namespace(W).linalg.eigvalsh(W)
        _held(values, _definite(values))


def _are_narrow(values: Array) -> Any:
    """Return which spectra are narrow enough for their small ends to keep their digits."""
    return values[..., 0] > LEAST_RATIO * values[..., -1]


def _all(conditions: Any) -> bool:
    # In numpy the method takes half the time of the function.
    xp = ns.namespace(conditions)
    return bool(conditions.all() if xp is np else xp.all(conditions))


def cholesky(W: Array) -> Array:
    """Return the Cholesky factors, and refuse a point that is not positive definite."""
    try:
        return ns.namespace(W).linalg.cholesky(W)
    except (ValueError, RuntimeError) as error:
        if not broke_down(error):
            raise
        raise outside() from None


def outside() -> InvalidInputError:
    """Return the error for a point that is not positive definite."""
    return InvalidInputError(
        "the point is not positive definite to machine precision; take smaller steps if they led there, or "
        "add a small multiple of the identity."
    )


def _composed(basis: Array, values: Array) -> Array:
    """Return E Λ Eᴴ."""
    return symmetric((basis * values[..., None, :]) @ ns.adjoint(basis))


def _squared(half: Array) -> Array:
    """Return H Hᴴ, which is positive definite by construction."""
    return symmetric(half @ ns.adjoint(half))


def _in_basis(basis: Array, inner: Array) -> Array:
    """Return V M Vᴴ."""
    return symmetric(basis @ inner @ ns.adjoint(basis))


def _entrywise(basis: Array, matrix: Array, weights: Array) -> Array:
    """Multiply the entries of a matrix in a basis."""
    return _in_basis(basis, weights * (ns.adjoint(basis) @ matrix @ basis))


def _spectrum(W: Array) -> tuple[Array, Array]:
    """Return eigenvalues and eigenvectors, and refuse a point that is not positive definite."""
    values, basis = eigh(W)
    return _held(values, _definite(values)), basis


def _log_spectrum(W: Array) -> tuple[Array, Array]:
    values, basis = _spectrum(W)
    return ns.namespace(values).log(values), basis


def _sums(values: Array) -> Array:
    return values[..., :, None] + values[..., None, :]
