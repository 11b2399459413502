"""Steps that move one row and column of a positive definite matrix, and the search for their length.

The direction is H = u e_kᵀ + e_k uᵀ. With A the matrix without row and column k, B the column k without its
diagonal entry and x = (−A⁻¹B, 1), the inverse is V = A⁻¹ + x xᵀ/D, where D is the Schur complement of A. A step η
leads to

    B + η ū,   x − η (A⁻¹ū),   D + 2bη − aη² + e(η)

where e(η) is the retraction's contribution to the diagonal entry, 0 on the straight line.
"""

from math import exp, expm1, inf, log, sqrt
from typing import NamedTuple

import numpy as np

from rmopt.kernels import njit
from rmopt.kernels.losses import HINGE, LOGISTIC, slope_and_curvature

# Retractions of rows and columns.
STRAIGHT, SCHUR_EXPONENTIAL = range(2)
# The choices of step lengths.
FIXED, FRACTION, EXACT = range(3)
# The largest share of the distance to the boundary for a fixed step.
CLIP = 0.99
# An exact search ends this much beyond the minimiser: then a kink at which it stopped is passed, and the next
# subgradient does not depend on rounding.
BEYOND = 1.0 + 1e-9
MAX_EVALUATIONS = 200
# A step keeps the Schur complement above this share of the diagonal entry, below which an inverse in double precision
# is useless, and makes it at most this much larger.
MARGIN, GROWTH = 1e-7, 100.0


class Schur(NamedTuple):
    """The Schur complement along a direction: D + 2bη − aη²."""

    D: float
    b: float
    a: float


class Line(NamedTuple):
    """The cost along a direction.

    Term t has the score z[t] + η b[t] + e c[t] and the target 1. The barrier is −α log of `barrier`; `cone` gives the
    feasible steps. `cross` = Σ_{j≠k} W_jk u_j, `square` = Σ_{j≠k} u_j².
    """

    retraction: int
    loss: int
    z: np.ndarray
    b: np.ndarray
    c: np.ndarray
    alpha: float
    beta: float
    barrier: Schur
    cone: Schur
    cross: float
    square: float
    diagonal: float  # W_kk
    u_k: float


@njit(cache=True, nogil=True)
def schur_along(w, Vu, u, k):
    """Return the Schur complement along u, from w = V e_k and V ū with ū = u without entry k."""
    wu, quadratic = 0.0, 0.0
    for j in range(u.shape[0]):
        if j != k:
            wu += w[j] * u[j]
            quadratic += u[j] * Vu[j]
    D = 1.0 / w[k]
    a = quadratic - wu * wu * D
    return Schur(D, u[k] + wu * D, max(a, 0.0))


@njit(cache=True, nogil=True)
def max_step(schur):
    """Return the step at which the Schur complement vanishes, or infinity if it never does."""
    root = sqrt(schur.b * schur.b + schur.a * schur.D)
    if schur.b >= 0.0:
        return (schur.b + root) / schur.a if schur.a > 0.0 else inf
    return schur.D / (root - schur.b)


@njit(cache=True, nogil=True)
def reach(retraction, schur, corner):
    """Return the longest step, at which the Schur complement becomes too small or too large."""
    floor = MARGIN * corner
    if retraction == STRAIGHT:
        bound = max_step(Schur(max(schur.D - floor, 0.0), schur.b, schur.a))
        return min(bound, 0.5 * GROWTH * schur.D / schur.b) if schur.b > 0.0 else bound
    if schur.b == 0.0:
        return inf
    most = GROWTH if schur.b > 0.0 else min(floor / schur.D, 1.0)
    return 0.5 * schur.D * log(most) / schur.b


@njit(cache=True, nogil=True)
def extra(retraction, cone, eta):
    """Return e(η), e'(η), e''(η), the retraction's contribution to the diagonal entry."""
    if retraction == STRAIGHT:
        return 0.0, 0.0, 0.0
    tau = 2.0 * cone.b * eta / cone.D
    growth = expm1(tau)
    return (
        cone.D * (growth - tau) + cone.a * eta * eta,
        2.0 * cone.b * growth + 2.0 * cone.a * eta,
        4.0 * cone.b * cone.b / cone.D * exp(tau) + 2.0 * cone.a,
    )


@njit(cache=True, nogil=True)
def schur_at(schur, eta, e):
    """Return D + 2bη − aη² + e."""
    return schur.D + (2.0 * schur.b - schur.a * eta) * eta + e


@njit(cache=True, nogil=True, fastmath={"reassoc", "contract"})
def _hinge_sum(z, b, eta):
    total = 0.0
    for t in range(z.shape[0]):
        total -= b[t] if z[t] + eta * b[t] < 1.0 else 0.0
    return total


@njit(cache=True, nogil=True)
def _loss_derivatives(line, eta, e, de, dde):
    """Return the first and second derivative of the summed losses."""
    if line.loss == HINGE and line.retraction == STRAIGHT:
        return _hinge_sum(line.z, line.b, eta), 0.0
    # A separate loop is compiled without branches, and so vectorised.
    if line.loss == LOGISTIC:
        return _derivative_sums(LOGISTIC, line, eta, e, de, dde)
    return _derivative_sums(line.loss, line, eta, e, de, dde)


@njit(cache=True, nogil=True, forceinline=True, fastmath={"reassoc", "contract"})
def _derivative_sums(loss, line, eta, e, de, dde):
    first, second = 0.0, 0.0
    for t in range(line.z.shape[0]):
        score = line.z[t] + eta * line.b[t] + e * line.c[t]
        velocity = line.b[t] + de * line.c[t]
        descent, bend = slope_and_curvature(loss, score, 1.0)
        first += descent * velocity
        second += descent * dde * line.c[t] + bend * velocity * velocity
    return first, second


@njit(cache=True, nogil=True)
def derivatives(line, eta):
    """Return the first and second derivative of the cost along the curve at η."""
    e, de, dde = extra(line.retraction, line.cone, eta)
    first, second = _loss_derivatives(line, eta, e, de, dde)
    if line.alpha > 0.0:
        value = schur_at(line.barrier, eta, e)
        velocity = 2.0 * (line.barrier.b - line.barrier.a * eta) + de
        acceleration = dde - 2.0 * line.barrier.a
        first -= line.alpha * velocity / value
        second -= line.alpha * (acceleration / value - (velocity / value) ** 2)
    corner, speed = line.diagonal + 2.0 * eta * line.u_k + e, 2.0 * line.u_k + de
    first += line.beta * (2.0 * line.cross + 2.0 * eta * line.square + corner * speed)
    second += line.beta * (2.0 * line.square + speed * speed + corner * dde)
    return first, second


@njit(cache=True, nogil=True)
def minimiser(line, upper):
    """Return a minimiser of the cost along the curve, at most `upper`.

    Along a straight line the cost is convex: a Newton iteration on its derivative, inside a bracket that shrinks at
    every evaluation. Along other curves it may stop falling at several points, and bisection of a bracket found by
    doubling chooses among them as the reference does.
    """
    first, second = derivatives(line, 0.0)
    if not first < 0.0:
        return 0.0
    newton = line.retraction == STRAIGHT
    low, high, bracketed = 0.0, upper, False
    eta = min(-first / second if newton and second > 0.0 else 1.0, upper)
    last = inf
    for _ in range(MAX_EVALUATIONS):
        first, second = derivatives(line, eta)
        if not first <= 0.0:
            high, bracketed = eta, True
        elif eta == upper:
            return upper
        else:
            low = eta
        step = eta - first / second if newton and second > 0.0 else -1.0
        # Newton steps that leave the bracket or do not shrink give way to bisection.
        if not low < step < high or abs(step - eta) > 0.5 * last:
            step = 0.5 * (low + high) if bracketed else min(4.0 * eta, upper)
        last = abs(step - eta)
        if first == 0.0 or last <= 1e-15 * eta or high - low <= 4e-16 * low:
            break
        eta = step
    return min(eta * BEYOND, upper)


@njit(cache=True, nogil=True)
def step_length(search, line, wanted):
    """Return the length of a step: `wanted` is η, the share of the bound, or the searched share.

    If the retraction does not bound the step, a share of the bound means an exact search.
    """
    bound = reach(line.retraction, line.cone, line.diagonal)
    if search == FIXED:
        return min(wanted, CLIP * bound)
    if search == FRACTION and line.retraction == STRAIGHT and bound < inf:
        return wanted * bound
    return minimiser(line, wanted * bound)
