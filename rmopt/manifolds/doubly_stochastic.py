"""Positive matrices whose rows and columns have the sum 1, with the Fisher-Rao metric."""

from collections.abc import Callable
from typing import Any

import numpy as np

from rmopt import namespaces as ns
from rmopt.core.ambient import Ambient, Array, dense
from rmopt.core.arguments import integer
from rmopt.core.points import as_like
from rmopt.core.retraction import Retraction
from rmopt.linalg import symmetric
from rmopt.manifolds.arrays import ArrayManifold
from rmopt.retractions.arrays import SINKHORN_RETRACTIONS, Sinkhorn, balanced


class DoublyStochastic(ArrayManifold):
    """The n × n matrices X of positive numbers whose rows and columns have the sum 1 (Douik and Hassibi 2019).

    Tangent vectors have rows and columns of the sum 0, and ⟨ξ, η⟩ = Σ ξᵢⱼηᵢⱼ/xᵢⱼ. Minima must lie inside, as those of
    costs with an entropy do. A run whose numbers vanish ends with an explanation, without convergence.

    Parameters
    ----------
    n : int

    See Also
    --------
    SymmetricDoublyStochastic : symmetric matrices.
    Simplex : if only the columns have the sum 1.
    scipy.optimize.linear_sum_assignment : for linear costs, whose minima are permutations.

    References
    ----------
    Douik and Hassibi, Manifold optimization over the set of doubly stochastic matrices: a second-order geometry,
    IEEE Transactions on Signal Processing 67 (2019), https://doi.org/10.1109/TSP.2019.2946024.

    Examples
    --------
    >>> import numpy as np
    >>> from rmopt import Problem, autograd_cost
    >>> from rmopt.manifolds import DoublyStochastic
    >>> from rmopt.solvers import LBFGS
    >>> A = np.array([[0.5, 0.4], [0.2, 0.7]])
    >>> problem = Problem(
    ...     DoublyStochastic(2), autograd_cost(lambda X: ((X - A) ** 2).sum())
    ... )
    >>> LBFGS(tol=1e-9).run(problem, random_state=0).point.round(6)
    array([[0.65, 0.35],
           [0.35, 0.65]])
    """

    default_retraction: Retraction = Sinkhorn()
    retractions = SINKHORN_RETRACTIONS

    def __init__(self, n: int) -> None:
        self.shape = (integer("n", n, 2),) * 2

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.shape[0]})"

    @property
    def dim(self) -> int:
        return (self.shape[0] - 1) ** 2

    @property
    def typical_dist(self) -> float:
        return float(self.shape[0] ** 0.5)

    def inner(self, point: Array, tangent_vector_a: Array, tangent_vector_b: Array) -> Any:
        return super().inner(point, tangent_vector_a / point, tangent_vector_b)

    def inner_product(self, point: Array, tangent_vector_a: Array, tangent_vector_b: Array) -> float:
        return float(self.inner(point, tangent_vector_a, tangent_vector_b))

    def inner_products(self, point: Array, tangent_vectors_a: Array, tangent_vectors_b: Array) -> Array:
        return self._products(tangent_vectors_a / point, tangent_vectors_b)

    def projection(self, point: Array, ambient: Ambient) -> Array:
        """Return Z − (α1ᵀ + 1βᵀ) ∘ X, whose rows and columns have the sum 0: it is orthogonal in the metric."""
        Z, xp = dense(ambient, point), ns.namespace(point)
        rows, columns = xp.sum(Z, axis=-1)[..., None], xp.sum(Z, axis=-2)[..., None]
        # Singular along α = 1, β = −1, and at the boundary.
        identity, n = ns.eye(self.shape[0], point), self.shape[0]
        normal = (1.0 + 4.0 * float(ns.limits(point).eps)) * identity - point @ point.mT + 1.0 / n
        alpha = xp.linalg.solve(normal, rows - point @ columns)
        return Z - (alpha + (columns - point.mT @ alpha).mT) * point

    def euclidean_to_riemannian_gradient(self, point: Array, euclidean_gradient: Ambient) -> Array:
        return self.projection(point, point * dense(euclidean_gradient, point))

    def euclidean_to_riemannian_hessian(
        self, point: Array, euclidean_gradient: Ambient, euclidean_hessian: Ambient, tangent_vector: Array
    ) -> Array:
        """Return P(X ∘ H + ½ ξ ∘ grad / X), for the derivative of the gradient less ½ grad ∘ ξ / X."""
        slopes = self.euclidean_to_riemannian_gradient(point, euclidean_gradient) / point
        return self.projection(point, point * dense(euclidean_hessian, point) + 0.5 * tangent_vector * slopes)

    @np.errstate(all="ignore")
    def edge(
        self, point: Array, gradient: Array, norm: float, gradient_at: Callable[[Array], Array]
    ) -> str | None:
        """Return one sentence if a run has gone to the boundary, towards which its cost falls, or None.

        If numbers vanish, so does the gradient, whatever the slope of the cost, which is gradient / X there. For
        numbers near 0 this slope is negative if the minimum lies inside, as that of an entropy does.
        """
        X, slopes, n = ns.to_numpy(point), ns.to_numpy(gradient / point), self.shape[0]
        steep = (1.0 / n**2 > X) & (slopes > 1e-3 * norm / n**0.5)
        if not steep.any():
            return None
        there = ns.asarray(np.where(steep, ns.limits(point).tiny, X), point)
        if (ns.to_numpy(gradient_at(there) / there) < -1e-6 * norm)[steep].all():
            return None
        return (
            f"the minimum lies on the boundary, where numbers of {self} are 0 (the least is {X.min():.0e}); add an "
            "entropy to the cost, as λ Σ x log x, or round the result"
        )

    def refusal(self, point: Array) -> str | None:
        X = ns.to_numpy(point)
        error = max(np.abs(X.sum(-1) - 1.0).max(), np.abs(X.sum(-2) - 1.0).max())
        if not X.min() > 0.0:
            return f"its least number is {X.min():.1e}; all of them must be positive"
        if error > ns.slack(1e-10, point):
            return f"sums of its rows or columns differ from 1 by {error:.1e}; divide by them in turns"
        return None

    def random_point(self, rng: np.random.Generator | None = None, like: Any = None) -> Array:
        """Return uniformly distributed numbers between 0.1 and 1.1 with balanced rows and columns."""
        return as_like(balanced(np.random.default_rng(rng).random(self.shape) + 0.1), like)


class SymmetricDoublyStochastic(DoublyStochastic):
    """The symmetric n × n matrices of positive numbers whose rows have the sum 1 (Douik and Hassibi 2019).

    Parameters
    ----------
    n : int

    See Also
    --------
    DoublyStochastic : not symmetric.

    References
    ----------
    Douik and Hassibi, Manifold optimization over the set of doubly stochastic matrices: a second-order geometry,
    IEEE Transactions on Signal Processing 67 (2019), https://doi.org/10.1109/TSP.2019.2946024.

    Examples
    --------
    >>> from rmopt.manifolds import SymmetricDoublyStochastic
    >>> manifold = SymmetricDoublyStochastic(4)
    >>> X = manifold.random_point(0)
    >>> manifold.dim, float(abs(X - X.T).max())
    (6, 0.0)
    """

    @property
    def dim(self) -> int:
        return self.shape[0] * (self.shape[0] - 1) // 2

    def projection(self, point: Array, ambient: Ambient) -> Array:
        return symmetric(super().projection(point, symmetric(dense(ambient, point))))

    def refusal(self, point: Array) -> str | None:
        error = np.abs(ns.to_numpy(point) - ns.to_numpy(point.mT)).max()
        if error > ns.slack(1e-12, point):
            return f"it is not symmetric: X − Xᵀ reaches {error:.1e}; take (X + Xᵀ)/2"
        return super().refusal(point)

    def random_point(self, rng: np.random.Generator | None = None, like: Any = None) -> Array:
        """Return a random symmetric matrix with balanced rows."""
        drawn = np.random.default_rng(rng).random(self.shape) + 0.1
        return as_like(symmetric(balanced(drawn + drawn.T)), like)
