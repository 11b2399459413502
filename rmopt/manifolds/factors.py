"""Matrices of low rank as factors: quotient geometries, in which the rank may fall."""

from typing import Any, ClassVar, Self

import numpy as np
import scipy.linalg

from rmopt import namespaces as ns
from rmopt.core.ambient import Ambient, Array, dense
from rmopt.core.low_rank import LowRankPoint, PSDFactor, PSDPoint, point_of
from rmopt.core.manifold import Manifold, checked_rank
from rmopt.core.product import LowRankFactors, Parts
from rmopt.linalg import factor_product, horizontal, symmetric
from rmopt.manifolds.euclidean import Euclidean
from rmopt.manifolds.product import Product


class PSDFactors(Euclidean):
    """Factors Y of positive semidefinite n × n matrices W = YYᴴ of rank k or less (Burer and Monteiro 2003).

    A point is an n × k array Y, and Y O represents the same W for every orthogonal O. The metric is tr(ξᵀη). The
    gradient of a function of YYᴴ is always horizontal. Unlike on `PSDFixedRank` the rank may fall on the way: use it
    if the cost, a penalty or a constraint drives eigenvalues to zero. For a loss of W itself, such as a distance of
    matrices, `PSDFixedRank` needs fewer steps, even if k is larger than the rank of the solution. A `ConvexCost`
    takes factors directly, other costs by `rmopt.costs.OnFactors`.

    Parameters
    ----------
    n, rank : int
        Numbers of rows and columns of the factors.
    field : {"real", "complex"}

    See Also
    --------
    PSDFixedRank : for a loss of W itself, with fewer steps.
    rmopt.solvers.RankIncremental : increases the rank.

    References
    ----------
    Burer and Monteiro, A nonlinear programming algorithm for solving semidefinite programs via low-rank
    factorization, Mathematical Programming 95 (2003), https://doi.org/10.1007/s10107-002-0352-8.

    Examples
    --------
    >>> import numpy as np
    >>> from rmopt import Problem
    >>> from rmopt.costs import Trace
    >>> from rmopt.manifolds import PSDFactors
    >>> from rmopt.solvers import TrustRegions
    >>> from problems.coembedding import MetricRegression
    >>> X = np.random.default_rng(0).standard_normal((5, 20))
    >>> problem = Problem(PSDFactors(5, 5), MetricRegression(X) + Trace(0.5))
    >>> TrustRegions(tol=1e-8).run(problem, random_state=0).converged
    True
    """

    point_type: ClassVar[type] = PSDFactor

    def __init__(self, n: int, rank: int, *, field: str = "real") -> None:
        super().__init__(n, rank, field=field)
        self.rank, self.sizes = self.shape[1], (self.shape[0],) * 2

    def with_rank(self, k: int) -> Self:
        """Return the manifold of factors with as many rows and k columns."""
        return type(self)(self.shape[0], k, field=self.field)

    horizontal = staticmethod(horizontal)
    # Straight lines are those of the factors, of which one W has many, so no distance of matrices is known.
    exp, log, dist = Manifold.exp, Manifold.log, Manifold.dist
    projected_mean = Manifold.projected_mean

    def point_of(self, point: Array) -> PSDPoint:
        """Return W, whose rank may be below k, as a point of `PSDFixedRank`."""
        return point_of(point)

    def to_dense(self, point: Array) -> Array:
        """Return W as an n × n array, for small matrices and tests."""
        return point @ ns.adjoint(point)


class BoundedRank(Product):
    """Factors A, B of n × m matrices W = ABᵀ of rank k or less, with the metric of flat space.

    A point is `Parts` of A and B. The product has no conjugate, also if they are complex. If the rank falls on the
    way, solvers on manifolds of one rank may end at points that are not stationary among the matrices of bounded
    rank. Here every point that is stationary to second order represents a stationary W (Levin, Kileel and Boumal
    2023). Use `TrustRegions` and a random start of full rank: from a symmetric one no solver finds a direction out of
    a saddle point. If the rank is known, `FixedRankEmbedded` needs fewer steps. `rmopt.costs.OnFactors` turns costs
    of W into costs of factors.

    Parameters
    ----------
    n, m : int
        Numbers of rows and columns of the matrices.
    rank : int
        The largest rank.
    field : {"real", "complex"}

    See Also
    --------
    FixedRankFactors : if the rank is known and does not fall.

    References
    ----------
    Levin, Kileel and Boumal, Finding stationary points on bounded-rank matrices: a geometric hurdle and a smooth
    remedy, Mathematical Programming 199 (2023), https://doi.org/10.1007/s10107-022-01851-2.

    Examples
    --------
    >>> import numpy as np
    >>> from rmopt import Problem, autograd_cost
    >>> from rmopt.manifolds import BoundedRank
    >>> from rmopt.solvers import TrustRegions
    >>> target = np.outer(np.arange(4.0), np.ones(3))
    >>> cost = autograd_cost(lambda A, B: ((A @ B.T - target) ** 2).sum())
    >>> problem = Problem(BoundedRank(4, 3, 2), cost)
    >>> A, B = TrustRegions().run(problem, random_state=0).point
    >>> bool(np.allclose(A @ B.T, target, atol=1e-4))
    True
    """

    point_type: ClassVar[type] = LowRankFactors
    # One matrix has many factors.
    projected_mean = Manifold.projected_mean

    def __init__(self, n: int, m: int, rank: int, *, field: str = "real") -> None:
        super().__init__([Euclidean(n, rank, field=field), Euclidean(m, rank, field=field)])
        self.sizes = self.factors[0].shape[0], self.factors[1].shape[0]
        self.rank = checked_rank(rank, self.sizes)

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({self.sizes[0]}, {self.sizes[1]}, {self.rank}{self.factors[0]._in_field})"
        )

    def point_of(self, point: Parts) -> LowRankPoint:
        """Return ABᵀ as a point of `FixedRankEmbedded`."""
        A, B = point
        return LowRankPoint(*factor_product(A, ns.eye(self.rank, A), ns.conj(B)))


class FixedRankFactors(BoundedRank):
    """Factors A, B of n × m matrices W = ABᵀ of rank k, with a metric invariant to scalings between them.

    A point is `Parts` of A and B. The product has no conjugate, also if they are complex: a function of `A @ B.mH`
    takes many more steps. The metric is tr(ξ_Aᴴη_A BᵀB̄) + tr(ξ_Bᴴη_B AᵀĀ) (Mishra, Apuroop and Sepulchre 2012), so
    that the gradient is (∇f B̄ (BᵀB̄)⁻¹, ∇fᵀ Ā (AᵀĀ)⁻¹): the direction of scaled gradient descent (Tong, Ma and Chi
    2021), which to first order is LORETA's step. `rmopt.costs.OnFactors` turns costs of matrices into costs of
    factors. The dimension is that of the factors, k² more than that of the matrices.

    Parameters
    ----------
    n, m : int
        Numbers of rows and columns of the matrices.
    rank : int
        The rank.
    field : {"real", "complex"}

    See Also
    --------
    FixedRankEmbedded : the matrices themselves, with second derivatives of the quotient.
    rmopt.solvers.ScaledSGD : for known entries, one at a time.
    PSDFactors : symmetric and positive semidefinite.

    References
    ----------
    Mishra, Apuroop and Sepulchre, A Riemannian geometry for low-rank matrix completion, arXiv (2012),
    arXiv:1211.1550. Tong, Ma and Chi, Accelerating ill-conditioned low-rank matrix estimation via scaled
    gradient descent, JMLR 22 (2021), https://jmlr.org/papers/v22/20-1067.html.

    Examples
    --------
    >>> import numpy as np
    >>> from rmopt import Problem, autograd_cost
    >>> from rmopt.manifolds import FixedRankFactors
    >>> from rmopt.solvers import GradientDescent
    >>> target = np.outer([1.0, 2.0, 3.0], [4.0, 5.0])
    >>> cost = autograd_cost(lambda A, B: ((A @ B.T - target) ** 2).sum())
    >>> problem = Problem(FixedRankFactors(3, 2, 1), cost)
    >>> A, B = GradientDescent().run(problem, random_state=0).point
    >>> (A @ B.T).round(4)
    array([[ 4.,  5.],
           [ 8., 10.],
           [12., 15.]])
    """

    def inner_product(self, point: Parts, tangent_vector_a: Parts, tangent_vector_b: Parts) -> float:
        """Return tr(ξ_Aᴴη_A BᵀB̄) + tr(ξ_Bᴴη_B AᵀĀ)."""
        (A, B), (a, b), (c, d), H = point, tangent_vector_a, tangent_vector_b, ns.adjoint
        dot = ns.dot_for(A)
        return float(dot(H(a) @ c, B.mT @ ns.conj(B)) + dot(H(b) @ d, A.mT @ ns.conj(A)))

    def euclidean_to_riemannian_gradient(self, point: Parts, euclidean_gradient: Ambient) -> Parts:
        """Return the derivatives by A and B, times (BᵀB̄)⁻¹ and (AᵀĀ)⁻¹."""
        A, B = point
        G, H = self._derivatives(point, euclidean_gradient)
        return Parts([_divided(G, ns.conj(B)), _divided(H, ns.conj(A))])

    def _derivatives(self, point: Parts, ambient: Ambient) -> list[Array]:
        """Return both blocks, with zeros for missing ones."""
        blocks = self._blocks_of(point, ambient)
        return [dense(blocks[i], X) if i in blocks else ns.zeros(X.shape, X) for i, X in enumerate(point)]

    def euclidean_to_riemannian_hessian(
        self, point: Parts, euclidean_gradient: Ambient, euclidean_hessian: Ambient, tangent_vector: Parts
    ) -> Parts:
        """Return the covariant derivative of the gradient, including that of the metric (Koszul's formula)."""
        (A, B), (a, b) = point, tangent_vector
        gradient = self.euclidean_to_riemannian_gradient(point, euclidean_gradient)
        G, H = self._derivatives(point, euclidean_hessian)

        def part(Z: Array, X: Array, Y: Array, x: Array, y: Array, g: Array, h: Array) -> Array:
            # For W = X Yᴴ, with the conjugate of the other factor as Y.
            Y, y, h = map(ns.conj, (Y, y, h))
            Yh = ns.adjoint(Y)
            bent = Z - g @ symmetric(Yh @ y) + x @ symmetric(Yh @ h) - X @ symmetric(ns.adjoint(y) @ h)
            return _divided(bent, Y)

        g, h = gradient
        return Parts([part(G, A, B, a, b, g, h), part(H, B, A, b, a, h, g)])

    # The metric changes from point to point, so straight lines are not geodesics.
    exp, log, dist = Manifold.exp, Manifold.log, Manifold.dist

    def check_point(self, point: Any) -> str | None:
        reason = super().check_point(point)
        if reason is not None:
            return reason
        for name, factor in zip("AB", point, strict=True):
            values = np.linalg.svdvals(ns.to_numpy(factor))
            if ns.rank_of(values) < self.rank:
                spread = f"singular values run from {values[0]:.1e} to {values[-1]:.1e}"
                return f"{name} has a rank below {self.rank}, for {spread}; BoundedRank takes lower ranks"
        return None


def _divided(vectors: Array, factor: Array) -> Array:
    """Return X (FᴴF)⁻¹."""
    gram, H = ns.adjoint(factor) @ factor, ns.adjoint
    if type(gram) is np.ndarray:
        return H(scipy.linalg.cho_solve(scipy.linalg.cho_factor(gram), H(vectors)))
    return H(ns.namespace(gram).linalg.solve(gram, H(vectors)))
