"""The manifold of n × m matrices of rank k, with the metric of the ambient space."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp

from rmopt import namespaces as ns
from rmopt.core.ambient import Ambient, Array, Factored, dense, images
from rmopt.core.arguments import integer, numbers
from rmopt.core.low_rank import LowRankPoint, LowRankTangent
from rmopt.core.manifold import FixedRankManifold, checked_rank
from rmopt.core.matrices import real_matrix
from rmopt.core.points import as_like
from rmopt.core.retraction import Retraction
from rmopt.linalg import diagonal, factor_product, lanczos_svd, leave_span, truncated_svd_of_product
from rmopt.retractions.fixed_rank import FIXED_RANK_RETRACTIONS, SecondOrder


class FixedRankEmbedded(FixedRankManifold):
    """Matrices of rank k as a submanifold of ℝⁿˣᵐ or ℂⁿˣᵐ with the Frobenius inner product.

    Points are `LowRankPoint` (W = U S Vᴴ), tangent vectors `LowRankTangent`. The tangent space is
    that of Shalit et al. (2012), Lemma 2. The Hessian follows Vandereycken (2013). Every operation needs O((n + m) k)
    memory. Nothing of size n × m is formed.

    Parameters
    ----------
    n, m : int
        Numbers of rows and columns.
    rank : int
        The rank, from 1 to min(n, m).
    field : {"real", "complex"}

    See Also
    --------
    FixedRankFactors : factors with a scale-invariant metric, and costs as functions of A and B.
    PSDFixedRank : symmetric and positive semidefinite.
    Grassmann : if one factor has a closed form given the other.

    References
    ----------
    Shalit, Weinshall and Chechik, Online learning in the embedded manifold of low-rank matrices, JMLR 13 (2012),
    https://jmlr.org/papers/v13/shalit12a.html. Vandereycken, Low-rank matrix completion by Riemannian
    optimization, SIAM J. Optim. 23 (2013), https://doi.org/10.1137/110845768.

    Examples
    --------
    >>> import numpy as np
    >>> from rmopt.manifolds import FixedRankEmbedded
    >>> manifold = FixedRankEmbedded(60, 40, 3)
    >>> W = manifold.from_matrix(np.random.default_rng(0).standard_normal((60, 40)))
    >>> W.U.shape, W.S.shape, W.V.shape, manifold.dim
    ((60, 3), (3, 3), (40, 3), 291)
    """

    point_type = LowRankPoint
    default_retraction: Retraction = SecondOrder()
    retractions = FIXED_RANK_RETRACTIONS

    def __init__(self, n: int, m: int, rank: int, *, field: str = "real") -> None:
        self._take(field)
        self.shape = (integer("n", n, 1), integer("m", m, 1))
        self.rank = checked_rank(rank, self.shape)

    def __repr__(self) -> str:
        return f"FixedRankEmbedded({self.shape[0]}, {self.shape[1]}, {self.rank}{self._in_field})"

    @property
    def dim(self) -> int:
        n, m = self.shape
        return (n + m - self.rank) * self.rank * self._per_number

    # The tangent space

    def projection(self, point: LowRankPoint, ambient: Ambient) -> LowRankTangent:
        """Return P_U Z P_V + P_U⊥ Z P_V + P_U Z P_V⊥, from the actions Z V and Zᴴ U alone."""
        ZV, ZtU = images(ambient, point.V, point.U)
        M = ns.adjoint(point.U) @ ZV
        return LowRankTangent(M, ZV - point.U @ M, leave_span(point.V, ZtU))

    def to_tangent_space(self, point: LowRankPoint, vector: LowRankTangent) -> LowRankTangent:
        return LowRankTangent(vector.M, leave_span(point.U, vector.Up), leave_span(point.V, vector.Vp))

    def inner_product(
        self, point: LowRankPoint, tangent_vector_a: LowRankTangent, tangent_vector_b: LowRankTangent
    ) -> float:
        a, b = tangent_vector_a, tangent_vector_b
        # `ns.dot_for`, written out: L-BFGS takes dozens of products a step.
        dot = np.vdot if a.M.dtype is ns.F8 and type(a.M) is np.ndarray else ns.real_dot
        return float(dot(a.M, b.M) + dot(a.Up, b.Up) + dot(a.Vp, b.Vp))

    def transport(
        self, point_a: LowRankPoint, point_b: LowRankPoint, tangent_vector_a: LowRankTangent
    ) -> LowRankTangent:
        if type(point_a.U) is not np.ndarray or point_a.U.dtype.kind == "c":
            return super().transport(point_a, point_b, tangent_vector_a)
        # On small matrices `dot` takes half the time of `@`.
        left = point_a.U.dot(tangent_vector_a.M) + tangent_vector_a.Up
        ZV = left.dot(point_a.V.T.dot(point_b.V)) + point_a.U.dot(tangent_vector_a.Vp.T.dot(point_b.V))
        ZtU = point_a.V.dot(left.T.dot(point_b.U)) + tangent_vector_a.Vp.dot(point_a.U.T.dot(point_b.U))
        M = point_b.U.T.dot(ZV)
        return LowRankTangent(M, ZV - point_b.U.dot(M), ZtU - point_b.V.dot(point_b.V.T.dot(ZtU)))

    def zero_vector(self, point: LowRankPoint) -> LowRankTangent:
        return LowRankTangent(*(ns.zeros(part.shape, part) for part in (point.S, point.U, point.V)))

    def euclidean_to_riemannian_hessian(
        self,
        point: LowRankPoint,
        euclidean_gradient: Ambient,
        euclidean_hessian: Ambient,
        tangent_vector: LowRankTangent,
    ) -> LowRankTangent:
        """Return the Riemannian Hessian: the projected ambient one plus the curvature of the manifold.

        The curvature term is N ξᴴ (W†)ᴴ + (W†)ᴴ ξᴴ N with N the part of the gradient normal to the
        manifold (Vandereycken 2013, Proposition 2.2, here for any invertible S).
        """
        flat = self.projection(point, euclidean_hessian)
        along_V, along_U = images(euclidean_gradient, tangent_vector.Vp, tangent_vector.Up)
        bend_left, bend_right = leave_span(point.U, along_V), leave_span(point.V, along_U)
        # X S⁻ᴴ and X S⁻¹ as solves.
        solve, H = ns.namespace(point.S).linalg.solve, ns.adjoint
        return LowRankTangent(
            flat.M,
            flat.Up + H(solve(point.S, H(bend_left))),
            flat.Vp + H(solve(H(point.S), H(bend_right))),
        )

    # Points

    def refusal(self, point: LowRankPoint) -> str | None:
        sigma = ns.to_numpy(point.singular_values())
        if ns.rank_of(sigma) < self.rank:
            spread = f"singular values run from {sigma[0]:.1e} to {sigma[-1]:.1e}"
            return f"the rank is below {self.rank}, for {spread}; BoundedRank takes lower ranks"
        return None

    def projected_mean(self, points: Sequence[LowRankPoint], weights: Array) -> LowRankPoint:
        concat = ns.namespace(points[0].U).concat
        left = [point.U @ (point.S * float(w)) for point, w in zip(points, weights, strict=True)]
        left, right = concat(left, axis=1), concat([point.V for point in points], axis=1)
        U, sigma, V = truncated_svd_of_product(left, ns.eye(left.shape[1], left), right, self.rank)
        return LowRankPoint(U, diagonal(sigma, U), V)

    def random_point(self, rng: np.random.Generator | None = None, like: Any = None) -> LowRankPoint:
        """Return a point with uniformly distributed column and row space and singular values in [½, 1½]."""
        rng = np.random.default_rng(rng)
        (n, m), k = self.shape, self.rank
        U, _ = np.linalg.qr(self.drawn(rng, (n, k)))
        V, _ = np.linalg.qr(self.drawn(rng, (m, k)))
        return as_like(LowRankPoint(U, diagonal(np.sort(rng.uniform(0.5, 1.5, k))[::-1], U), V), like)

    def identity(self) -> LowRankPoint:
        """Return the zero-padded identity: ones at the first k places of the diagonal, zeros elsewhere."""
        (n, m), k = self.shape, self.rank
        return self._of_field(LowRankPoint(np.eye(n, k), np.eye(k), np.eye(m, k)))

    def from_factors(self, A: Array, B: Array) -> LowRankPoint:
        """Return the point A Bᵀ for A of shape (n, k) and B of shape (m, k), both of full column rank.

        Raises
        ------
        InvalidInputError
            For wrong shapes, values that are not finite, or a product of smaller rank.
        """
        (n, m), k = self.shape, self.rank
        parts = numbers("A", A, (n, k), self.field), np.eye(k), ns.conj(numbers("B", B, (m, k), self.field))
        return self._checked(LowRankPoint(*factor_product(*parts)), "the product A Bᵀ", A, B)

    def from_matrix(self, matrix: Any) -> LowRankPoint:
        """Return the point closest to a dense or sparse n × m matrix: its k leading singular triples.

        Raises
        ------
        InvalidInputError
            For a wrong shape, values that are not finite, or a matrix of smaller rank.
        """
        given, k = matrix, self.rank
        matrix = real_matrix("matrix", matrix, self.shape, self.field)
        if sp.issparse(matrix) and matrix.data.any() and k < min(self.shape) // 2:
            U, sigma, Vh = lanczos_svd(matrix, k)
        else:
            U, sigma, Vh = np.linalg.svd(dense(matrix), full_matrices=False)
        U, V = np.ascontiguousarray(U[:, :k]), np.ascontiguousarray(ns.adjoint(Vh[:k]))
        return self._checked(LowRankPoint(U, np.diag(sigma[:k]), V), "the matrix", given)

    def as_point(self, given: Any) -> Any:
        """Return a point, also from the triple (U, s, Vᴴ) of a singular value decomposition."""
        if isinstance(given, list | tuple) and [np.ndim(part) for part in given] == [2, 1, 2]:
            (n, m), k = self.shape, self.rank
            U, Vh = numbers("U", given[0], (n, k), self.field), numbers("Vᴴ", given[2], (k, m), self.field)
            return self.from_factors(U * numbers("s", given[1], (k,)), Vh.T)
        return given

    def from_gradients(self, gradients: Sequence[Factored]) -> LowRankPoint:
        """Return the best rank-k approximation of minus the sum of one or more gradients.

        This is the "zero matrix" start of Shalit et al. (2012), §7.2.1: the zero matrix is not on the
        manifold, so the first 2k subgradients are added up and truncated to rank k. The sign is minus, as in the
        first step from zero.

        Raises
        ------
        InvalidInputError
            If the sum has a rank below k.
        """
        left, right = ([dense(getattr(one, side)) for one in gradients] for side in ("left", "right"))
        concat = ns.namespace(left[0]).concat
        left, right = concat(left, axis=1), ns.conj(concat(right, axis=1))
        U, sigma, V = truncated_svd_of_product(-left, ns.eye(left.shape[1], left), right, self.rank)
        return self._checked(LowRankPoint(U, diagonal(sigma, U), V), "the sum of the gradients", left, right)
