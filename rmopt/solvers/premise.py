"""Whether the gradient that a run ends by fits the values of the cost: what `converged` rests on."""

from dataclasses import replace
from typing import Any, TypeVar

import numpy as np

from rmopt.core.points import arrays_of, size_of
from rmopt.core.streams import Stream, generator
from rmopt.errors import warn
from rmopt.precision import real_type
from rmopt.solvers.base import Result
from rmopt.solvers.oracle import Oracle

Ended = TypeVar("Ended", bound=Result)

# Steps of a close look, each so many times as long as the one before. Three in a row must agree.
LOOKS, LONGER, AGREED = 5, 8.0, 3
# Roundings of a value that may be wrong with it.
ROUNDINGS = 16.0


def held(result: Ended, work: Oracle, cost: float, gradient: Any, norm: float, limit: float) -> Ended:
    """Return a result that is converged only where the gradient at its end fits the cost; otherwise warn.

    Parameters
    ----------
    result : Result
    work : Oracle
        Of the problem. It counts the values of the cost that are asked for: one, and up to ten more where this one
        does not seem to fit, or the run did no step.
    cost, gradient, norm : object
        At the end. The length of the gradient is what the run ends by.
    limit : float
        A slope up to this is none.
    """
    if not result.converged:
        return result
    rng, flat = generator(work.seed, Stream.DIRECTIONS), max(norm, limit)
    doubt = misfit(work, result.point, cost, gradient, flat, rng, ended=True, quick=result.updates > 0)
    if doubt is None:
        return result
    warn(f"the run ended by {result.stopped_by}, and has not converged: {doubt}", RuntimeWarning)
    return replace(result, converged=False, stopped_by=f"{result.stopped_by}; {doubt}")


@np.errstate(all="ignore")
def misfit(
    work: Oracle, point: Any, cost: float, gradient: Any, flat: float, rng: np.random.Generator,
    *, ended: bool = False, quick: bool = False,
) -> str | None:  # fmt: skip
    """Return in a sentence how values of the cost contradict a gradient, or that a run `ended` at a minimum; or None.

    Central differences along a random direction have no error of first order for any retraction. The cost contradicts
    the gradient where it rises and falls by more than it bends, and a minimum where it falls on both sides, at three
    lengths of the step that differ by a factor of 64: noise of the cost, whatever its size, and kinks do not.
    Differences of slopes up to `flat` are none. A `quick` look ends with one value where it fits, at a step too short
    for a bend to be seen.
    """
    manifold = work.manifold
    along = manifold.random_tangent_vector(point, rng)
    square, length = work.inner(point, along, along), manifold.norm(point, along)
    if not abs(length * length - square) <= 0.01 * square < np.inf:
        return (
            f"a random tangent vector of {manifold} has norm {length:.1e}, and its inner product with itself is "
            f"{square:.1e}; hold the manifold against rmopt.checks.check_manifold."
        )
    if not square > 0.0:
        return None
    along = along * (1.0 / square**0.5)
    said = float(work.inner(point, gradient, along))
    eps = float(np.finfo(real_type(*arrays_of(point))).eps)
    way = max(manifold.typical_dist, size_of(point))
    if quick:
        h = eps**0.5 * way
        off = _value(work, point, along, h) - cost - h * said
        if abs(off) <= max(8.0 * ROUNDINGS * eps * abs(cost), h * flat):
            return None
    slopes, bends, h = list[float](), list[float](), eps**0.4 * way
    for _ in range(LOOKS):
        up, down = (_value(work, point, along, t) for t in (h, -h))
        noise = ROUNDINGS * eps * max(abs(cost), abs(up), abs(down))
        # By how much one end is further off than the gradient says, and both together are off the middle.
        off, bent = 0.5 * (up - down) - h * said, 0.5 * (up + down) - cost
        slopes.append(off / h if abs(off) > max(2.0 * abs(bent), noise, h * flat) else 0.0)
        bends.append(bent / h**2 if ended and -bent > max(2.0 * abs(off), noise) else 0.0)
        if agree(slopes):
            return (
                f"along a random direction the cost changes by {said + slopes[-1]:.1e} a unit of length, where the "
                f"gradient says {said:.1e}; hold the cost against rmopt.checks.check_gradient."
            )
        if agree(bends):
            return (
                f"the gradient vanishes, but {h:.1e} away along a random direction and back the cost is lower by "
                f"{-bent:.1e}: this is a maximum or a saddle; start elsewhere, or take TrustRegions."
            )
        if not (slopes[-1] or bends[-1]) and len(slopes) == 1:
            return None
        h *= LONGER
    return None


def agree(found: list[float]) -> bool:
    """Return whether the last three are the same, but for a fifth, and not 0."""
    last = found[-AGREED:]
    same = len(last) == AGREED and min(map(abs, last)) > 0.8 * max(map(abs, last))
    return same and abs(sum(map(np.sign, last))) == AGREED


def _value(work: Oracle, point: Any, along: Any, t: float) -> float:
    """Return the cost at the end of a step, or NaN where there is none."""
    try:
        there = work.retract(point, along, t)
        work.counts[0] += 1
        return work.problem.real(work.cost.value(there))
    except (ValueError, ArithmeticError):
        return np.nan
