"""Triplet losses with a log-determinant barrier: the cost of metric learning."""

from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.linalg import cho_factor, cho_solve

from rmopt.core.ambient import Array, RowColumn, dense
from rmopt.core.arguments import bounded, number, one_of
from rmopt.core.cost import BlockCost
from rmopt.core.low_rank import PSDPoint
from rmopt.core.matrices import as_rows, row_dots
from rmopt.costs.bilinear import checked_triplets
from rmopt.costs.losses import Loss, as_loss, hinge
from rmopt.linalg import symmetric

# The share of stored numbers from which dense products are faster than sparse ones.
DENSE_SHARE = 0.25
# The largest size of an intermediate result, and the size below which a matrix is always dense.
CHUNK, SMALL = 4_000_000, 100_000
SCORES = ("similarity", "distance")


class LogDetTriplet(BlockCost):
    """Σ_t φ(qᵀW(p − n), 1) − α log det(W + κI) + β/2 ‖W‖² over positive definite W (Atzmon et al. 2015, eq. 3).

    Each triplet (q, p, n) means that the row q of X is more similar to the row p than to the row n. The paper prints
    the barrier with a plus. With κ = 0 it keeps W away from the boundary of the cone. With κ > 0 and a smooth loss
    the cost is smooth on the closed cone, as the convergence theorem of the paper requires. Then, or with α = 0, the
    minimum may be a singular W, which coordinate descent misses and full gradients find: use `LBFGS` from the
    identity on ``PSDFactors(d, d)``, with ``OnFactors(cost)``.

    Parameters
    ----------
    X : array or sparse matrix, shape (N, d)
    triplets : int array, shape (T, 3)
        Row numbers: query, positive, negative.
    loss : Loss
        The loss of a score with the target 1: `hinge`, `squared_hinge`, `logistic` or your own.
    alpha : float
        α ≥ 0.
    beta : float
        β > 0. With β = 0 the cost is unbounded below if all triplets can be satisfied, or if a feature never occurs,
        because −α log det falls for ever.
    kappa : float
        κ ≥ 0.
    sparsity : float
        λ ≥ 0 of the additional term λ Σ_k ‖(W_jk)_{j≠k}‖, which coordinate descent treats by proximal steps: entire
        features lose their links to the others (Atzmon, Shalit and Chechik 2015, *Learning sparse metrics, one
        feature at a time*). It is not part of `gradient`.
    score : {"similarity", "distance"}
        "similarity", the paper's: qᵀW(p − n). "distance": ½ (‖q − n‖² − ‖q − p‖²) in the metric W, for p nearer than
        n. They agree for rows of equal length in W.

    Raises
    ------
    InvalidInputError
        If data, triplets or weights cannot be used.

    See Also
    --------
    problems.metric.CometMetric : the estimator.
    TripletSum : without a barrier, for low ranks.

    References
    ----------
    Atzmon, Shalit and Chechik, Metric learning using block coordinate descent, draft (2015).

    Examples
    --------
    >>> import numpy as np
    >>> from rmopt import Problem
    >>> from rmopt.costs import LogDetTriplet
    >>> from rmopt.manifolds import PositiveDefinite
    >>> from rmopt.solvers import CoordinateDescent
    >>> X = np.array([[0.0, 0.0], [0.0, 1.0], [2.0, 0.0], [1.0, 1.0]])
    >>> cost = LogDetTriplet(X, [[3, 1, 2], [3, 2, 0]], alpha=0.1, beta=0.1)
    >>> problem = Problem(PositiveDefinite(2), cost)
    >>> W = CoordinateDescent(max_iter=100).run(problem, random_state=0).point
    >>> cost.value(W) < cost.value(np.eye(2)), bool(np.linalg.eigvalsh(W)[0] > 0)
    (True, True)
    """

    remedy = "take PositiveDefinite"

    def __init__(
        self,
        X: Any,
        triplets: Any,
        loss: Loss = hinge,
        *,
        alpha: float = 1e-3,
        beta: float = 1e-3,
        kappa: float = 0.0,
        sparsity: float = 0.0,
        score: str = "similarity",
    ) -> None:
        weight = bounded(number, least=0, most=1e150)
        self.alpha, self.kappa = weight("alpha", alpha), weight("kappa", kappa)
        self.sparsity = weight("sparsity", sparsity)
        self.distance = one_of("score", score, SCORES) == "distance"
        # Without it there is no minimum if all triplets can be satisfied.
        self.beta = number("beta", beta, above=0, most=1e150)
        self.rows = as_rows(X, "X", copy=True)
        self.triplets = checked_triplets(triplets, self.rows.shape[0], self.rows.shape[0])
        self.loss = as_loss(loss)
        n, d = self.rows.shape
        self.is_dense = bool(self.rows.nnz > DENSE_SHARE * n * d)
        # The matrix for products.
        self.X: Any = self.rows.toarray() if self.is_dense or n * d <= SMALL else self.rows

    @property
    def point_type(self) -> Any:  # type: ignore[override]
        """Arrays, and also singular W, from `OnFactors`, if there is no barrier at the boundary."""
        return (np.ndarray, PSDPoint) if self.kappa > 0.0 or self.alpha == 0.0 else np.ndarray

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of rows and columns of W, (d, d)."""
        return self.rows.shape[1], self.rows.shape[1]

    @property
    def n_blocks(self) -> int:
        """Number of blocks, d: block k is row and column k."""
        return int(self.rows.shape[1])

    def scores(self, point: Array, some: Array | None = None) -> Array:
        """Return the scores of all triplets, or of some by their numbers, for a symmetric W."""
        triplets = self.triplets if some is None else self.triplets[some]
        scores = np.empty(len(triplets))
        order = np.argsort(triplets[:, 0], kind="stable")
        size = max(1, CHUNK // self.n_blocks)
        for part in np.split(order, range(size, len(order), size)):
            q, p, n = triplets[part].T
            rows, place = np.unique(q, return_inverse=True)
            scores[part] = row_dots(self.X[p] - self.X[n], np.asarray(self.X[rows] @ point)[place])
        if self.distance:
            # ½ (‖q − n‖² − ‖q − p‖²) = qᵀW(p − n) − ½ pᵀWp + ½ nᵀWn.
            rows, place = np.unique(triplets[:, 1:], return_inverse=True)
            squares = np.empty(len(rows))
            for part in np.split(np.arange(len(rows)), range(size, len(rows), size)):
                squares[part] = row_dots(self.X[rows[part]], np.asarray(self.X[rows[part]] @ point))
            p, n = squares[place.reshape(-1, 2)].T
            scores -= 0.5 * (p - n)
        return scores

    def value(self, point: Array) -> float:
        """Return the cost, including the sparsity term."""
        point = _whole(point)
        targets = np.ones(len(self.triplets))
        total = self.loss.values(self.scores(point), targets).sum() + 0.5 * self.beta * np.vdot(point, point)
        if self.alpha > 0.0:
            sign, log_det = np.linalg.slogdet(self._shifted(point))
            if sign <= 0.0:
                return float("inf")
            total -= self.alpha * log_det
        if self.sparsity > 0.0:
            squares = (point * point).sum(axis=0) - np.diag(point) ** 2
            total += self.sparsity * np.sqrt(np.maximum(squares, 0.0)).sum()
        return float(total)

    def gradient(self, point: Array) -> Array:
        """Return the symmetric Euclidean gradient of the smooth part: a subgradient at kinks of the loss."""
        point = _whole(point)
        slopes = self.loss.slopes(self.scores(point), np.ones(len(self.triplets)))
        gradient = self._pulled(slopes) + self.beta * point
        if self.alpha > 0.0:
            gradient -= self.alpha * _inverse(self._shifted(point))
        return gradient

    def hessian(self, point: Array, direction: Any) -> Array:
        """Return the derivative of the gradient along a symmetric direction."""
        point, direction = _whole(point), symmetric(dense(direction))
        curvatures = self.loss.curvatures(self.scores(point), np.ones(len(self.triplets)))
        result = self._pulled(curvatures * self.scores(direction)) + self.beta * direction
        if self.alpha > 0.0:
            inverse = _inverse(self._shifted(point))
            result += self.alpha * symmetric(inverse @ direction @ inverse)
        return result

    def block_gradient(self, point: Array, block: int) -> RowColumn:
        """Return row and column k of the gradient."""
        return RowColumn.from_column(block, np.add.reduce(self._gradient_parts(point, block)))

    def block_scale(self, point: Array, block: int) -> float:
        """Return the summed lengths of column k of the gradients of losses, barrier and Frobenius term."""
        return sum(float(np.linalg.norm(part)) for part in self._gradient_parts(point, block))

    def _gradient_parts(self, point: Array, block: int) -> tuple[Array, Array, Array]:
        slopes = self.loss.slopes(self.scores(point), np.ones(len(self.triplets)))
        barrier = np.zeros(self.n_blocks)
        if self.alpha > 0.0:
            barrier = -self.alpha * _solved(self._shifted(point), np.eye(1, self.n_blocks, block)[0])
        return self._pulled(slopes, block), barrier, self.beta * point[block]

    def proximal_step(self, point: Array, block: int, step: float) -> Array:
        """Return the point whose column k off the diagonal is shrunk by step · λ in length."""
        others = np.arange(len(point)) != block
        length = float(np.linalg.norm(point[others, block]))
        if self.sparsity == 0.0 or length == 0.0:
            return point
        shrunk = point.copy()
        shrunk[others, block] *= max(0.0, 1.0 - step * self.sparsity / length)
        shrunk[block, others] = shrunk[others, block]
        return shrunk

    @np.errstate(all="ignore")
    def best_multiple_of_identity(self) -> Array:
        """Return the multiple of the identity with the least cost, as a start of the right scale."""
        from scipy.optimize import brentq

        d = self.n_blocks
        inner, targets = self.scores(np.eye(d)), np.ones(len(self.triplets))

        def slope(power: float) -> float:
            scale = 2.0**power
            barrier = self.alpha * d / (scale + self.kappa) if self.alpha > 0.0 else 0.0
            return float(inner @ self.loss.slopes(scale * inner, targets)) - barrier + self.beta * d * scale

        # If every smaller multiple is better, one of 2⁻²⁰⁰.
        low = high = 0.0
        while slope(high) < 0.0:
            high += 2.0
        while slope(low) > 0.0 and low > -200.0:
            low -= 2.0
        return 2.0 ** (brentq(slope, low, high) if slope(low) <= 0.0 else low) * np.eye(d)

    def _shifted(self, point: Array) -> Array:
        return point + self.kappa * np.eye(len(point)) if self.kappa > 0.0 else point

    def _pulled(self, weights: Array, k: int | None = None) -> Array:
        """Return the gradient of the weighted sum of scores, or its column k."""
        couplings = self.couplings(weights)
        if k is not None:
            return np.asarray(self.X.T @ (couplings @ self.rows[:, [k]].toarray())).ravel()
        if not sp.issparse(self.X):
            return self.X.T @ (couplings @ self.X)
        (count, d), pulled = self.rows.shape, np.empty(self.shape)
        size = max(1, CHUNK // count)
        for first in range(0, d, size):
            part = slice(first, first + size)
            pulled[:, part] = self.X.T @ (couplings @ self.X[:, part].toarray())
        return pulled

    def couplings(self, weights: Array) -> Any:
        """Return C, of shape (N, N), with Xᵀ C X the gradient of the weighted sum of scores."""
        q, p, n = self.triplets.T
        count = self.rows.shape[0]
        own = 0.5 * self.distance * (np.bincount(n, weights, count) - np.bincount(p, weights, count))
        entries = (np.concatenate([weights, -weights]), (np.concatenate([q, q]), np.concatenate([p, n])))
        couplings = sp.csr_array(entries, shape=(count, count))
        return 0.5 * (couplings + couplings.T) + sp.diags_array(own)


def _solved(matrix: Array, right: Array) -> Array:
    """Return M⁻¹ B, or NaN outside the cone, with an infinite cost."""
    try:
        return cho_solve(cho_factor(matrix), right)
    except np.linalg.LinAlgError:
        return np.full_like(right, np.nan)


def _inverse(matrix: Array) -> Array:
    return symmetric(_solved(matrix, np.eye(len(matrix))))


def _whole(point: Array | PSDPoint) -> Array:
    return dense(point.as_ambient()) if isinstance(point, PSDPoint) else point
