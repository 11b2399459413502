"""Bounds on the distance of a value on the cone from the global minimum."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.sparse.linalg import ArpackNoConvergence, LinearOperator

from rmopt.core.ambient import Array
from rmopt.core.arguments import instance, integer, number, numbers
from rmopt.core.problem import Problem
from rmopt.costs.convex import ConvexCost, LocalModel
from rmopt.errors import InvalidInputError
from rmopt.linalg import lanczos_eigh, leading_eigh
from rmopt.manifolds.factors import PSDFactors
from rmopt.solvers.batch.oracle import LONGER, LOOKS, ROUNDINGS, Oracle, agree, misfit

Apply = Callable[[Array], Array]

BOUND = "a number b with f(W) ≥ b + trace_weight · tr W for every positive semidefinite W"

EPS = float(np.finfo(float).eps)
# A value may lie below the stated bound by this share of both: the rounding of a sum over many terms.
ROUNDING = 1e-10
# Up to this size, or if the basis of a Lanczos run would be as large, the matrix is formed.
SMALL = 200
# Eigenvectors after the first need not be exact: they are directions to search along.
ROUGH, ROUGH_RESTARTS = 1e-2, 30


@dataclass(frozen=True)
class Certificate:
    """A bound on f(W) − f(W*), from the dual certificate S = ∇f(W).

    For convex f, f(W) − f(W*) ≤ ⟨S, W⟩ − ⟨S, W*⟩ ≤ ⟨S, W⟩ + λ tr W* with λ = max(0, −λ_min(S)); and
    tr W* ≤ (f(W) − b)/β if f ≥ b + β tr everywhere, with b the cost's `lower_bound`. At a global minimum both terms
    vanish (Mirzazadeh et al. 2015, equation 10).

    Attributes
    ----------
    objective : float
        f(W).
    eigenvalue : float
        λ: an upper bound on the largest eigenvalue of −S, at least 0.
    complementarity : float
        ⟨S, W⟩, which vanishes if Y is stationary.
    trace_bound : float
        An upper bound on tr W*.
    excess : float
        f(W) − b, the reference of relative gaps, which a constant added to f and b does not change.
    """

    objective: float
    eigenvalue: float
    complementarity: float
    trace_bound: float
    excess: float

    @property
    def gap(self) -> float:
        """The bound on f(W) − f(W*), at most f(W) − b."""
        bound = self.complementarity + self.eigenvalue * self.trace_bound
        return max(0.0, min(self.excess, bound) if self.excess > 0.0 else bound)

    @property
    def relative_gap(self) -> float:
        """The gap over f(W) − b."""
        return self.gap / self.excess if self.gap > 0.0 else 0.0

    @property
    def lower_bound(self) -> float:
        """A lower bound on f(W*)."""
        return self.objective - self.gap

    def is_global(self, tol: float) -> bool:
        """Return whether the gap is at most `tol` times f(W) − b."""
        return self.relative_gap <= tol


def by_lower_bound(
    cost: ConvexCost, Y: Array, n_candidates: int, tol: float
) -> tuple[Certificate, Array, Array]:
    """Return the certificate of a cost with a lower bound at YYᵀ, and directions (see `certify`)."""
    instance("cost", cost, ConvexCost, "a ConvexCost (rmopt.costs), or a Problem")
    floor, n_candidates = checked_lower_bound(cost), integer("n_candidates", n_candidates, 1)
    Y = numbers("Y", Y, (cost.shape[0], *(np.shape(Y)[1:2] or (1,))))
    local = cost.at(Y)
    trace = float(np.vdot(Y, Y))
    excess = local.value - floor
    if excess < cost.trace_weight * trace - ROUNDING * (abs(local.value) + abs(floor)):
        raise _contradicted(cost, f"its value is {local.value:.6g} at a matrix of trace {trace:.3g}")
    values, vectors, bound = leading_eigenpairs(
        lambda V: -local.apply(V), np.linalg.qr(Y)[0], n_candidates, cost.trace_weight, tol
    )
    certificate = Certificate(
        objective=local.value,
        eigenvalue=max(0.0, float(bound)),
        complementarity=0.5 * float(np.vdot(local.factor_gradient(), Y)),
        trace_bound=max(0.0, excess) / cost.trace_weight,
        excess=max(0.0, excess),
    )
    if excess <= 0.0 and values[0] > 1e-6 * cost.trace_weight:
        raise _contradicted(
            cost, f"its value is {local.value:.6g} and still falls along an eigenvector of −∇f"
        )
    _check_premises(cost, Y, local, vectors[:, :1])
    positive = values > 0.0
    return certificate, values[positive], vectors[:, positive]


def _check_premises(cost: ConvexCost, Y: Array, local: LocalModel, vector: Array) -> None:
    """Refuse a gradient that the values contradict at a random point nearby, and a cost that falls below its tangent.

    No convex cost falls so, and along the certifying eigenvector the bound depends on it.
    """
    rng = np.random.default_rng(0)
    slope = float(np.vdot(vector, local.apply(vector)))
    size = float(np.vdot(Y, Y)) or abs(local.value - (cost.lower_bound or 0.0)) / (abs(slope) or 1.0)
    aside = rng.standard_normal((len(Y), 1))
    near = np.hstack([Y, aside * (0.1 * size / float(np.vdot(aside, aside))) ** 0.5])
    work = Oracle(Problem(PSDFactors(*near.shape), cost), None, None)
    value, ambient = work.look(near)
    gradient = work.gradient(near, ambient)
    flat = 1e-3 * work.manifold.norm(near, gradient)
    doubt = misfit(work, near, value, gradient, flat, rng, seen=flat)
    errors = list[float]()
    for t in size * LONGER ** np.arange(-7.0, 1.0) if doubt is None else ():
        there = cost.at(np.hstack([Y, t**0.5 * vector])).value
        off, most = there - local.value - t * slope, max(abs(there), abs(local.value), abs(t * slope))
        errors.append(off / t if -off > max(ROUNDINGS * EPS * most, 1e-3 * t * abs(slope)) else 0.0)
        if agree(errors[:LOOKS]) or off < -1e-6 * most:
            doubt = (
                f"{t:.1e} along the certifying eigenvector its value is {there:.6g}, below the tangent, "
                f"{there - off:.6g}: its gradient is wrong (see rmopt.checks.check_gradient), or it is not convex "
                "and needs a solver for one rank, such as TrustRegions."
            )
            break
    if doubt is not None:
        raise InvalidInputError(f"{cost} has no certificate of optimality: {doubt}")


def checked_lower_bound(cost: ConvexCost) -> float:
    """Return the lower bound of a cost, and refuse a cost without one or without a trace term."""
    if not number(f"trace_weight of {cost}", cost.trace_weight, least=0) > 0.0:
        raise InvalidInputError(
            f"{type(cost).__name__} has no trace term, so that a minimum need not exist or be certified; add "
            "Trace(beta)."
        )
    if cost.lower_bound is None:
        raise InvalidInputError(
            f"{cost} has no lower bound, which a certificate of optimality needs; set `lower_bound` to {BOUND} "
            "(0 for a loss that is never negative)."
        )
    return number(f"lower_bound of {cost}", cost.lower_bound)


def _contradicted(cost: ConvexCost, seen: str) -> InvalidInputError:
    return InvalidInputError(
        f"lower_bound = {cost.lower_bound:.6g} of {cost} does not hold: {seen} (trace_weight = "
        f"{cost.trace_weight:.3g}); state {BOUND}."
    )


def leading_eigenpairs(
    apply: Apply, basis: Array, k: int, scale: float, tol: float
) -> tuple[Array, Array, float]:
    """Return at most k leading eigenpairs of a symmetric operator, and a bound on all its eigenvalues.

    `apply` maps (p, j) arrays to the operator's products with them. `basis` holds known orthonormal directions: a
    Lanczos run works in their complement alone, in which an optimum has no cluster of eigenvalues at 0. The largest
    eigenvalue is found to about `tol` times `scale` or its own size, whichever is larger. A Lanczos run finds the
    next ones only roughly, and only positive ones are returned. The bound includes the length of the residual and of
    the coupling between `basis` and its complement. (A residual bounds the distance to an eigenvalue. The random
    start of the run makes it unlikely that a larger one was missed.)
    """
    p = len(basis)
    k = min(k, p)
    if p <= SMALL or 4 * k >= p:
        return dense_pairs(apply, p, k)
    products = apply(basis)
    inside = basis.T @ products
    across = products - basis @ inside
    known = float(np.linalg.eigvalsh(inside)[-1]) if inside.size else -np.inf

    def outside(V: Array) -> Array:
        within = basis @ (basis.T @ V)
        V = apply(V - within)
        # Below the eigenvalues in the complement of an optimum: at least −scale, that of the trace alone.
        return V - basis @ (basis.T @ V) - 2.0 * scale * within

    values, vectors = lanczos_pairs(outside, p, 1, scale, tol, None)
    residual = float(np.linalg.norm(outside(vectors) - values * vectors))
    tie = float(np.linalg.norm(across, 2)) if across.size else 0.0
    bound = max(float(values[0]) + residual, known) + tie
    if k > 1 and values[0] > 0.0:
        values, vectors = lanczos_pairs(outside, p, k, float(values[0]), ROUGH, ROUGH_RESTARTS)
        values, vectors = values[values > 0.0], vectors[:, values > 0.0]
    return values, vectors, bound


def downward_eigenpairs(S: Apply, n: int, k: int, resolved: float) -> tuple[Array, Array, float]:
    """Return at most k leading eigenpairs of −S, positive except the first, and a bound on all eigenvalues."""
    k, opposite = min(k, n), lambda V: -S(V)
    if n <= SMALL:
        return dense_pairs(opposite, n, k)
    size = float(abs(lanczos_pairs(S, n, 1, 0.0, ROUGH, None)[0][0]))
    tol = min(max(0.05 * resolved / size, EPS), ROUGH)
    values, vectors = lanczos_pairs(opposite, n, 1, size, tol, None)
    residual = float(np.linalg.norm(S(vectors) + values * vectors))
    bound = float(values[0]) + residual + n * EPS * max(size, float(values[0]))
    if k > 1 and values[0] > resolved:
        more, beside = lanczos_pairs(opposite, n, k, size, ROUGH, ROUGH_RESTARTS)
        if (kept := more > 0.0).any():
            values, vectors = more[kept], beside[:, kept]
    return values, vectors, bound


def dense_pairs(apply: Apply, p: int, k: int) -> tuple[Array, Array, float]:
    """Return the k leading eigenpairs without negative ones after the first, and a bound on all eigenvalues."""
    matrix = apply(np.eye(p))
    values, vectors = leading_eigh(0.5 * (matrix + matrix.T), k)
    rounding = 8.0 * EPS * float(np.abs(matrix).sum(axis=0).max())
    kept = np.arange(k) < max(1, int(np.sum(values > 0.0)))
    return values[kept], vectors[:, kept], float(values[0]) + rounding


def lanczos_pairs(
    apply: Apply, p: int, k: int, scale: float, tol: float, restarts: int | None
) -> tuple[Array, Array]:
    """Return the leading eigenpairs, of k, that converge within some restarts; with None, at least one.

    The operator is shifted by `scale`, so that an eigenvalue near 0 is found to a sensible precision.
    """
    shifted = LinearOperator((p, p), matvec=lambda v: apply(v.reshape(p, 1)).ravel() + scale * v, dtype=float)
    try:
        ncv = min(p, max(2 * k + 1, 40))
        values, vectors = lanczos_eigh(shifted, k, tol=tol, ncv=ncv, maxiter=restarts or 100)
    except ArpackNoConvergence as partial:
        values, vectors = partial.eigenvalues, partial.eigenvectors
        if not len(values) and restarts is None:
            # The operator's own rounding may exceed the tolerance.
            return lanczos_pairs(apply, p, k, scale, 100.0 * tol, None)
    order = np.argsort(-values)
    return values[order] - scale, np.linalg.qr(vectors[:, order])[0]
