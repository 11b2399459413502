"""The straight line, and retractions of the positive definite matrices that do not leave the cone.

Each has the velocity of its curve, for an exact line search.
"""

from typing import Any

import numpy as np
from scipy.linalg import cho_factor, cho_solve, eigvalsh
from scipy.linalg.lapack import cposv, dposv, sposv, zposv

from rmopt import namespaces as ns
from rmopt.core.ambient import Array, RowColumn, dense
from rmopt.core.retraction import Retraction, by_name
from rmopt.errors import InvalidInputError
from rmopt.kernels import row_column
from rmopt.linalg import lyapunov, symmetric, whitened
from rmopt.retractions.grassmann import Exponential

# LAPACK's solves with positive definite matrices, by the type of numbers.
POSV = {"f": sposv, "d": dposv, "F": cposv, "D": zposv}


class Additive(Retraction):
    """R(ξ) = W + ξ: of first order in general, and the exponential map on flat manifolds.

    On an open set such as the positive definite cone the line is bounded, see its `max_step`. A step that leaves the
    manifold raises an `InvalidInputError`.
    """

    order = 1
    kernel = row_column.STRAIGHT
    name = "additive"

    def __call__(self, manifold: Any, point: Array, tangent: Any, t: float = 1.0) -> Array:
        ahead = tangent if t >= 0 else -tangent
        if hasattr(manifold, "max_step") and not abs(t) < manifold.max_step(point, ahead):
            raise InvalidInputError(
                f"the straight line leaves {manifold} within a step of {t:.3g}; take a smaller step (see "
                "`max_step`) or a retraction that never leaves it, such as SchurExponential."
            )
        return point + t * dense(tangent, point)

    def reach(self, manifold: Any, point: Array, tangent: Any) -> float:
        """Return the longest step of a solver along the line."""
        return manifold.safe_step(point, tangent) if hasattr(manifold, "max_step") else float("inf")

    def velocity(self, manifold: Any, point: Array, tangent: Any, t: float) -> Array:
        """Return the derivative of the curve at t."""
        return dense(tangent, point)


class AffineExponential(Exponential):
    """R(ξ) = W exp(W⁻¹ξ): the geodesics of the affine-invariant metric."""

    name = "affine-exponential"

    def velocity(self, manifold: Any, point: Array, tangent: Any, t: float) -> Array:
        """Return the derivative of the curve at t: ξ exp(t W⁻¹ξ)."""
        tangent = dense(tangent, point)
        return symmetric(tangent @ np.linalg.solve(point, self(manifold, point, tangent, t)))

    def reach(self, manifold: Any, point: Array, tangent: Any) -> float:
        """Return the longest step of a solver, which makes some direction a hundred times longer or shorter."""
        fastest = float(np.abs(eigvalsh(dense(tangent, point), point)).max())
        return float(np.log(row_column.GROWTH) / fastest) if fastest > 0.0 else float("inf")


class SecondOrderPD(Retraction):
    """R(ξ) = W + ξ + ½ ξ W⁻¹ ξ, which is ½ (W + (W + ξ) W⁻¹ (W + ξ)).

    References
    ----------
    Jeuris, Vandebril and Vandereycken, A survey and comparison of contemporary algorithms for computing the
    matrix geometric mean, ETNA 39 (2012).
    """

    order = 2
    name = "second-order"

    def __call__(self, manifold: Any, point: Array, tangent: Any, t: float = 1.0) -> Array:
        tangent = dense(tangent, point)
        return symmetric(point + t * tangent + 0.5 * t * t * (tangent @ _solve(point, tangent)))

    def velocity(self, manifold: Any, point: Array, tangent: Any, t: float) -> Array:
        """Return the derivative of the curve at t."""
        tangent = dense(tangent, point)
        return symmetric(tangent + t * (tangent @ _solve(point, tangent)))


class Congruence(Retraction):
    """R(ξ) = (I + L) W (I + L) with L W + W L = ξ: the geodesics of the Bures–Wasserstein metric.

    It continues beyond singular matrices, at which these end.
    """

    order = 2
    name = "congruence"

    def __call__(self, manifold: Any, point: Array, tangent: Array, t: float = 1.0) -> Array:
        moved = t * lyapunov(point, tangent) + ns.eye(point.shape[-1], point)
        return symmetric(moved @ point @ moved)


class SchurExponential(Retraction):
    """Moves a row and column linearly and its Schur complement multiplicatively.

    For H = u e_kᵀ + e_k uᵀ the column k moves along the straight line except for its diagonal entry, which moves
    such that the Schur complement S = W_kk − BᵀA⁻¹B becomes S exp(t Ṡ/S). For a general tangent vector the same is
    done to one row and column after the other: the strictly lower part of the Cholesky factor moves linearly and its
    diagonal multiplicatively (the log-Cholesky exponential of Lin 2019).

    References
    ----------
    Lin, Riemannian geometry of symmetric positive definite matrices via Cholesky decomposition, SIAM J. Matrix
    Anal. Appl. 40 (2019), https://doi.org/10.1137/18M1221084.
    """

    order = 1
    kernel = row_column.SCHUR_EXPONENTIAL
    name = "schur-exponential"

    def __call__(self, manifold: Any, point: Array, tangent: Any, t: float = 1.0) -> Array:
        if isinstance(tangent, RowColumn):
            return self._row_column(point, tangent, t)[0]
        factor, lower, rate = _log_cholesky(point, tangent)
        xp = ns.namespace(factor)
        moved = xp.tril(factor + t * lower, k=-1) + _diagonal(xp.linalg.diagonal(factor) * xp.exp(t * rate))
        return symmetric(moved @ ns.adjoint(moved))

    def velocity(self, manifold: Any, point: Array, tangent: Any, t: float) -> Array:
        """Return the derivative of the curve at t."""
        if isinstance(tangent, RowColumn):
            return self._row_column(point, tangent, t)[1]
        factor, lower, rate = _log_cholesky(point, tangent)
        xp = ns.namespace(factor)
        grown = xp.linalg.diagonal(factor) * xp.exp(t * rate)
        moved = xp.tril(factor + t * lower, k=-1) + _diagonal(grown)
        change = xp.tril(lower, k=-1) + _diagonal(rate * grown)
        return 2.0 * symmetric(change @ ns.adjoint(moved))

    def reach(self, manifold: Any, point: Array, tangent: Any) -> float:
        """Return the longest safe step, at which the Schur complement is just large enough to invert."""
        if not isinstance(tangent, RowColumn):
            return float("inf")
        schur = manifold.schur_along(point, tangent)
        # In single precision it must be larger.
        corner = float(point[tangent.k, tangent.k]) * ns.coarseness(point) ** 0.5
        return float(row_column.reach(self.kernel, schur, corner))

    @staticmethod
    def _row_column(point: Array, tangent: RowColumn, t: float) -> tuple[Array, Array]:
        """Return the point and the velocity for a row and column."""
        k, rest = tangent.k, np.arange(len(point)) != tangent.k
        others = cho_factor(point[np.ix_(rest, rest)]) if rest.any() else None
        B, move = point[rest, k], tangent.u[rest]

        def solve(v: Array) -> Array:
            return cho_solve(others, v) if others is not None else v

        schur = point[k, k] - B @ solve(B)
        rate = 2.0 * (tangent.u[k] - move @ solve(B)) / schur
        column = B + t * move
        reached = solve(column)
        end, velocity = point.copy(), np.zeros_like(point)
        end[rest, k] = end[k, rest] = column
        end[k, k] = schur * np.exp(t * rate) + column @ reached
        velocity[rest, k] = velocity[k, rest] = move
        velocity[k, k] = rate * schur * np.exp(t * rate) + 2.0 * (move @ reached)
        return end, velocity


def _solve(point: Array, tangent: Array) -> Array:
    if type(tangent) is not np.ndarray or tangent.ndim > 2:
        return ns.namespace(tangent).linalg.solve(point, tangent)
    # On small matrices `scipy.linalg.cho_factor` and `cho_solve` take five times as long.
    _, found, flaw = POSV[tangent.dtype.char](point, tangent)
    if flaw:
        raise np.linalg.LinAlgError("the point is not positive definite")
    return found


def _log_cholesky(point: Array, tangent: Any) -> tuple[Array, Array, Array]:
    """Return the Cholesky factor L, the velocity of its lower part, and the relative velocity of its diagonal."""
    xp = ns.namespace(point)
    factor = xp.linalg.cholesky(point)
    inner = whitened(factor, dense(tangent, point))
    rate = 0.5 * xp.linalg.diagonal(inner)
    return factor, factor @ (xp.tril(inner, k=-1) + _diagonal(rate)), rate


def _diagonal(entries: Array) -> Array:
    return entries[..., None, :] * ns.eye(entries.shape[-1], entries)


EUCLIDEAN_RETRACTIONS: dict[str, Retraction] = {"additive": Additive()}
POSITIVE_DEFINITE_RETRACTIONS = by_name(Additive(), SchurExponential(), AffineExponential(), SecondOrderPD())
