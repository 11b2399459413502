"""Whether the gradient that a run ends by fits the values of the cost: what `converged` rests on."""

from dataclasses import replace
from typing import Any, TypeVar

import numpy as np

from rmopt.core.points import arrays_of, size_of
from rmopt.core.streams import Stream, generator
from rmopt.errors import warn
from rmopt.precision import real_type
from rmopt.solvers.batch.oracle import Oracle
from rmopt.solvers.run import Result

Ended = TypeVar("Ended", bound=Result)

# Steps of a close look, each so many times as long as the one before. Three in a row must agree.
LOOKS, LONGER, AGREED = 6, 8.0, 3
# Roundings of a value that may be wrong with it.
ROUNDINGS = 16.0


def held(
    result: Ended, work: Oracle, cost: float, gradient: Any, norm: float, limit: float, first: float,
    *, ended: bool = True,
) -> Ended:  # fmt: skip
    """Return a result that is converged only where the gradient at its end fits the cost; otherwise warn.

    Parameters
    ----------
    result : Result
    work : Oracle
        Of the problem. It counts the values of the cost that are asked for: one, and up to fourteen more where this
        one does not seem to fit or cannot tell, or the run did no step.
    cost, gradient, norm : object
        At the end. The length of the gradient is what the run ends by.
    limit : float
        A slope up to this is none.
    first : float
        The length of the first gradient: a thousandth of it is to be seen.
    ended : bool
        Whether the gradient vanishes at the end of the run, which must not be a maximum or a saddle then.
    """
    if not result.converged:
        return result
    rng, flat = generator(work.seed, Stream.DIRECTIONS), max(norm, limit)
    seen = 0.0 if result.updates == 0 else 1e-3 * first
    doubt = misfit(work, result.point, cost, gradient, flat, rng, seen=seen, ended=ended)
    if doubt is None:
        return result
    warn(f"the run ended by {result.stopped_by}, and has not converged: {doubt}", RuntimeWarning)
    return replace(result, converged=False, stopped_by=f"{result.stopped_by}; {doubt}")


@np.errstate(all="ignore")
def misfit(
    work: Oracle, point: Any, cost: float, gradient: Any, flat: float, rng: np.random.Generator,
    *, seen: float = 0.0, ended: bool = False,
) -> str | None:  # fmt: skip
    """Return in a sentence how values of the cost contradict a gradient, or that a run `ended` at a minimum; or None.

    Central differences along a random direction have no error of first order for any retraction. The cost contradicts
    the gradient where it rises and falls by more than it bends, and a minimum where it falls on both sides, at three
    lengths of the step that differ by a factor of 64: noise of the cost, whatever its size, and kinks do not.
    Differences of slopes up to `flat` are none. Where one up to `seen` would show at a step so short that no bend is
    seen, a single value there is enough, if it fits.
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
    said, steep = float(work.inner(point, gradient, along)), manifold.norm(point, gradient)
    eps = float(np.finfo(real_type(*arrays_of(point))).eps)
    # As far as the numbers of the point are changed by a share of their size.
    way = size_of(point) / (size_of(along) or np.inf) or manifold.typical_dist
    h, noise = eps**0.5 * way, 8.0 * ROUNDINGS * eps * abs(cost)
    if noise <= h * seen and abs(_value(work, point, along, h) - cost - h * said) <= max(noise, h * flat):
        return None

    def look(h: float) -> tuple[float, float, float]:
        """Return by how much one end is further off than said, both are off the middle, and what rounding hides."""
        up, down = _value(work, point, along, h), _value(work, point, along, -h)
        noise = ROUNDINGS * eps * max(abs(cost), abs(up), abs(down))
        return 0.5 * (up - down) - h * said, 0.5 * (up + down) - cost, noise

    slopes, bends, clear, h = list[float](), list[float](), list[bool](), eps**0.45 * way
    for _ in range(LOOKS):
        off, both, noise = look(h)
        # Kinks are as steep as they are bent, at the shortest step too.
        clear.append(abs(off) > 2.0 * abs(both))
        slopes.append(off / h if abs(off) > max(noise, h * flat) else 0.0)
        bends.append(both / h**2 if ended and -both > max(2.0 * abs(off), noise, 2.0 * h * steep) else 0.0)
        if agree(slopes) and clear[-AGREED]:
            # A slope is the same at a step that is far shorter, unless rounding hides it there.
            short = h / LONGER ** (AGREED + 3)
            off, _, noise = look(short)
            if abs(slopes[-1]) * short > 2.0 * noise and not agree([*slopes[1 - AGREED :], off / short]):
                return None
            return (
                f"along a random direction the cost changes by {said + slopes[-1]:.1e} a unit of length, where the "
                f"gradient says {said:.1e}; hold the cost against rmopt.checks.check_gradient."
            )
        if agree(bends):
            return (
                f"the gradient vanishes, but {h:.1e} away along a random direction and back the cost is lower by "
                f"{-both:.1e}: this is a maximum or a saddle; start elsewhere, or take "
                "TrustRegions(second_order=True)."
            )
        if (noise <= h * seen if seen else abs(both) > noise) and not any(slopes + bends):
            return None
        h *= LONGER
    return None


def agree(numbers: list[float]) -> bool:
    """Return whether the last three are the same, but for a fifth, and not 0."""
    last = numbers[-AGREED:]
    same = len(last) == AGREED and min(map(abs, last)) > 0.8 * max(map(abs, last))
    return same and abs(sum(map(np.sign, last))) == AGREED


def _value(work: Oracle, point: Any, along: Any, t: float) -> float:
    """Return the cost at the end of a step, or NaN where there is none."""
    try:
        there = work.retract(point, along, t)
        work.counts[0] += 1
        return work.problem.real(work.cost.value(there))
    except Exception:  # A cost may refuse what lies beside a boundary in its own way.
        return np.nan
