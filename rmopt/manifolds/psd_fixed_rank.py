"""The embedded and the polar geometry of positive semidefinite n × n matrices of rank k."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp

from rmopt import namespaces as ns
from rmopt.core.ambient import Ambient, Array, applied, dense
from rmopt.core.arguments import integer, number, numbers
from rmopt.core.low_rank import PSDPoint, PSDTangent, point_of
from rmopt.core.manifold import FixedRankManifold, checked_rank
from rmopt.core.matrices import real_matrix
from rmopt.core.points import as_like
from rmopt.core.retraction import Retraction
from rmopt.linalg import diagonal, lanczos_eigh, leading_eigh, leave_span, symmetric
from rmopt.retractions.fixed_rank import PSD_RETRACTIONS, PolarFactors, SecondOrderPSD


class PSDMatrices(FixedRankManifold):
    """Positive semidefinite n × n matrices of rank k, without a metric.

    Points are `PSDPoint` (W = Q S Qᴴ), tangent vectors `PSDTangent`. The tangent space is that of Shalit et
    al. (2012), Lemma 5 (Vandereycken and Vandewalle 2010, Proposition 5.2). Every operation needs O(n k) memory, and
    forms no n × n matrix.
    """

    point_type = PSDPoint
    retractions = PSD_RETRACTIONS | {"polar": PolarFactors()}
    default_retraction: Retraction = SecondOrderPSD()

    def __init__(self, n: int, rank: int, *, field: str = "real") -> None:
        self._take(field)
        self.shape = (integer("n", n, 1),) * 2
        self.rank = checked_rank(rank, self.shape)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.shape[0]}, {self.rank}{self._in_field})"

    @property
    def dim(self) -> int:
        n, k = self.shape[0], self.rank
        return n * k - k * (k - 1) // 2 if self.field == "real" else 2 * n * k - k * k

    # The tangent space

    def inner_product(
        self, point: PSDPoint, tangent_vector_a: PSDTangent, tangent_vector_b: PSDTangent
    ) -> float:
        a, b = tangent_vector_a, tangent_vector_b
        # `ns.dot_for`, written out: L-BFGS takes dozens of products a step.
        dot = np.vdot if a.M.dtype is ns.F8 and type(a.M) is np.ndarray else ns.real_dot
        return float(dot(a.M, b.M) + 2.0 * dot(a.Qp, b.Qp))

    def projection(self, point: PSDPoint, ambient: Ambient) -> PSDTangent:
        """Return the projection of the symmetric or Hermitian part of Z, from the actions Z Q and Zᴴ Q alone."""
        return self._of_action(point, _symmetric_action(ambient, point.Q))

    def transport(self, point_a: PSDPoint, point_b: PSDPoint, tangent_vector_a: PSDTangent) -> PSDTangent:
        """Project the embedded vector without forming its factors, in half the time."""
        Q, M, Qp = point_a.Q, tangent_vector_a.M, tangent_vector_a.Qp
        inside = ns.adjoint(Q) @ point_b.Q
        return self._of_action(point_b, Q @ (M @ inside + ns.adjoint(Qp) @ point_b.Q) + Qp @ inside)

    @staticmethod
    def _of_action(point: PSDPoint, ZQ: Array) -> PSDTangent:
        M = ns.adjoint(point.Q) @ ZQ
        return PSDTangent(symmetric(M), ZQ - point.Q @ M)

    def to_tangent_space(self, point: PSDPoint, vector: PSDTangent) -> PSDTangent:
        return PSDTangent(symmetric(vector.M), leave_span(point.Q, vector.Qp))

    def zero_vector(self, point: PSDPoint) -> PSDTangent:
        return PSDTangent(ns.zeros(point.S.shape, point.S), ns.zeros(point.Q.shape, point.Q))

    # Points

    def refusal(self, point: PSDPoint) -> str | None:
        S, values = ns.to_numpy(point.S), ns.to_numpy(point.eigenvalues())
        if np.abs(S - ns.adjoint(S)).max() > ns.slack(1e-12, S) * np.abs(S).max():
            return f"S is not {'symmetric' if self.field == 'real' else 'Hermitian'}"
        if ns.rank_of(values) < self.rank:
            spread = f"they run from {values[0]:.1e} to {values[-1]:.1e}"
            return (
                f"fewer than {self.rank} eigenvalues are positive, for {spread}; PSDFactors takes lower ranks"
            )
        return None

    def random_point(self, rng: np.random.Generator | None = None, like: Any = None) -> PSDPoint:
        """Return a point with uniformly distributed column space and eigenvalues in [½, 1½]."""
        rng = np.random.default_rng(rng)
        Q, _ = np.linalg.qr(self.drawn(rng, (self.shape[0], self.rank)))
        return as_like(PSDPoint(Q, diagonal(np.sort(rng.uniform(0.5, 1.5, self.rank))[::-1], Q)), like)

    def identity(self) -> PSDPoint:
        """Return the zero-padded identity: ones at the first k places of the diagonal, zeros elsewhere."""
        return self._of_field(PSDPoint(np.eye(self.shape[0], self.rank), np.eye(self.rank)))

    def from_factor(self, Y: Array) -> PSDPoint:
        """Return the point Y Yᴴ for Y of shape (n, k) and full column rank.

        Raises
        ------
        InvalidInputError
            For a wrong shape, values that are not finite, or a product of smaller rank.
        """
        point = point_of(numbers("Y", Y, (self.shape[0], self.rank), self.field))
        return self._checked(point, "the product Y Yᴴ", Y)

    def from_matrix(self, matrix: Any) -> PSDPoint:
        """Return the point closest to a dense or sparse n × n matrix: the k leading eigenpairs of its symmetric part.

        Raises
        ------
        InvalidInputError
            For a wrong shape, values that are not finite, or fewer than k positive eigenvalues.
        """
        given, matrix = matrix, real_matrix("matrix", matrix, self.shape, self.field)
        n, k = self.shape[0], self.rank
        if sp.issparse(matrix) and matrix.data.any() and k < n // 2:
            eigenvalues, vectors = lanczos_eigh(0.5 * (matrix + matrix.T), k)
        else:
            eigenvalues, vectors = np.linalg.eigh(symmetric(dense(matrix)))
        order = np.argsort(-eigenvalues)[:k]
        point = PSDPoint(np.ascontiguousarray(vectors[:, order]), np.diag(eigenvalues[order]))
        return self._checked(point, "the matrix", given)


class PSDFixedRank(PSDMatrices):
    """Positive semidefinite matrices of rank k as a submanifold of ℝⁿˣⁿ or ℂⁿˣⁿ with the Frobenius inner product.

    Points are `PSDPoint` (W = Q S Qᴴ), tangent vectors `PSDTangent`.

    Parameters
    ----------
    n : int
        Number of rows and columns.
    rank : int
        The rank, from 1 to n.
    field : {"real", "complex"}
        Complex matrices are Hermitian.

    See Also
    --------
    PolarPSD : the same matrices with a scale-invariant metric.
    PSDFactors : if the rank may fall on the way.
    PositiveDefinite : full rank.

    References
    ----------
    Vandereycken and Vandewalle, A Riemannian optimization approach for computing low-rank solutions of Lyapunov
    equations, SIAM J. Matrix Anal. Appl. 31 (2010), https://doi.org/10.1137/090764566. Shalit, Weinshall and
    Chechik, Online learning in the embedded manifold of low-rank matrices, JMLR 13 (2012),
    https://jmlr.org/papers/v13/shalit12a.html.

    Examples
    --------
    >>> import numpy as np
    >>> from rmopt.manifolds import PSDFixedRank
    >>> manifold = PSDFixedRank(6, 2)
    >>> W = manifold.to_dense(manifold.random_point(np.random.default_rng(0)))
    >>> int((np.linalg.eigvalsh(W) > 1e-10).sum()), manifold.dim
    (2, 11)
    """

    def euclidean_to_riemannian_hessian(
        self,
        point: PSDPoint,
        euclidean_gradient: Ambient,
        euclidean_hessian: Ambient,
        tangent_vector: PSDTangent,
    ) -> PSDTangent:
        """Return the Riemannian Hessian: the projected ambient one plus the curvature of the manifold.

        The curvature term is N ξ W† + W† ξ N with N the part of the symmetric gradient that is normal to the
        manifold.
        """
        flat = self.projection(point, euclidean_hessian)
        bend = leave_span(point.Q, _symmetric_action(euclidean_gradient, tangent_vector.Qp))
        # X S⁻¹ as a solve.
        H = ns.adjoint
        return PSDTangent(flat.M, flat.Qp + H(ns.namespace(bend).linalg.solve(point.S, H(bend))))

    def projected_mean(self, points: Sequence[PSDPoint], weights: Array) -> PSDPoint:
        xp = ns.namespace(points[0].Q)
        Q, R = xp.linalg.qr(xp.concat([point.Q for point in points], axis=1))
        # The block of R that belongs to a point, with its core between.
        columns = [R[:, i * self.rank : (i + 1) * self.rank] for i in range(len(points))]
        parts = zip(weights, columns, points, strict=True)
        core = sum(float(weight) * (C @ point.S @ ns.adjoint(C)) for weight, C, point in parts)
        values, vectors = leading_eigh(symmetric(core), self.rank)
        return PSDPoint(Q @ vectors, diagonal(values, Q))


class PolarPSD(PSDMatrices):
    """The same matrices as `PSDFixedRank`, seen as (Stiefel × positive definite) / O(k) (Meyer et al. 2011).

    W = Q S Qᴴ is a column space with a positive definite matrix on it. A tangent vector moves Q by Δ = Q_p S⁻¹
    and S by M. Its squared norm is tr(ΔᴴΔ)/λ + tr((S⁻¹M)²)/(1 − λ), so that the metric is invariant to rotations and
    scalings of W. Points and tangent vectors are stored as on `PSDFixedRank`, with the same numbers and another
    length.

    Parameters
    ----------
    n : int
        Number of rows and columns.
    rank : int
        The rank, from 1 to n.
    weight : float
        λ, between 0 and 1: large values move mainly the column space.
    field : {"real", "complex"}

    See Also
    --------
    PSDFixedRank : the metric of the ambient space, with second derivatives.

    References
    ----------
    Meyer, Bonnabel and Sepulchre, Regression on fixed-rank positive semidefinite matrices: a Riemannian
    approach, JMLR 12 (2011), https://jmlr.org/papers/v12/meyer11a.html.

    Examples
    --------
    >>> import numpy as np
    >>> from rmopt.manifolds import PolarPSD
    >>> manifold = PolarPSD(6, 2)
    >>> W = manifold.identity()
    >>> xi = manifold.projection(W, np.diag([1.0, 2.0, 0.0, 0.0, 0.0, 0.0]))
    >>> round(manifold.inner_product(W, xi, xi), 6)
    10.0
    """

    default_retraction = PolarFactors()

    def __init__(self, n: int, rank: int, weight: float = 0.5, *, field: str = "real") -> None:
        self.weight = number("weight", weight, above=0, below=1)
        super().__init__(n, rank, field=field)

    def __repr__(self) -> str:
        return f"PolarPSD({self.shape[0]}, {self.rank}, weight={self.weight}{self._in_field})"

    def inner_product(
        self, point: PSDPoint, tangent_vector_a: PSDTangent, tangent_vector_b: PSDTangent
    ) -> float:
        """Return tr(ΔₐᴴΔ_b)/λ + tr(S⁻¹Mₐ S⁻¹M_b)/(1 − λ)."""
        both = (tangent_vector_a, tangent_vector_b)
        solve = ns.namespace(point.S).linalg.solve
        scaled_a, scaled_b = (solve(point.S, part.M) for part in both)
        move_a, move_b = (solve(point.S, ns.adjoint(part.Qp)) for part in both)
        move, scaled = ns.real_dot(move_a, move_b), ns.real_dot(scaled_b, ns.adjoint(scaled_a))
        return float(move / self.weight + scaled / (1.0 - self.weight))

    def euclidean_to_riemannian_gradient(self, point: PSDPoint, euclidean_gradient: Ambient) -> PSDTangent:
        """Return the gradient in the polar metric: M = (1 − λ) S QᴴG Q S and Q_p = 2λ (I − QQᴴ) G Q S²."""
        Q, S = point.Q, point.S
        GQ = _symmetric_action(euclidean_gradient, Q)
        return PSDTangent(
            (1.0 - self.weight) * symmetric(S @ (ns.adjoint(Q) @ GQ) @ S),
            2.0 * self.weight * leave_span(Q, GQ) @ (S @ S),
        )


def _symmetric_action(ambient: Ambient, X: Array) -> Array:
    """Return the product of X with the symmetric or Hermitian part of an ambient operator."""
    turned, image = ambient.T, applied(ambient, X)
    if ns.is_complex(X):
        return 0.5 * (image + ns.conj(applied(turned, ns.conj(X))))
    return image if turned is ambient else 0.5 * (image + applied(turned, X))
