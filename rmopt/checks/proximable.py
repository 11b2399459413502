"""Laws of nonsmooth terms: of their proximal maps and the slopes of these."""

from typing import Any

import numpy as np

from rmopt.checks.geometry import written
from rmopt.checks.laws import Check, Law, hold, law
from rmopt.core.ambient import Array
from rmopt.core.arguments import instance, integer, sequence
from rmopt.costs.proximable import LEAST, Proximable, excess
from rmopt.namespaces import real_dot

PROXIMABLE: list[Law] = []
# A kink may lie between the ends of a difference: one of this many points must be clear of them.
POINTS, SHORT, DIFFERENCES = 5, 1e-6, 1e-6


def check_proximable(h: Proximable, shape: tuple[int, ...] = (6, 4), rng: Any = 0) -> list[Check]:
    """Check `prox` against `value`, and `prox_slope` against differences of `prox`.

    Parameters
    ----------
    h : Proximable
    shape : tuple of int
        The shape of its arrays.
    rng : seed or Generator

    Returns
    -------
    list of Check
        One for each law.

    Examples
    --------
    >>> from rmopt.checks import check_proximable
    >>> from rmopt.costs import L1
    >>> class Halved(L1):
    ...     def prox(self, z, t):
    ...         return super().prox(z, 0.5 * t)
    >>> [check.name for check in check_proximable(Halved(1.0)) if not check]
    ['least', 'slope']
    """
    instance("h", h, Proximable, "a Proximable")
    shape = tuple(integer("a size in shape", n, 1) for n in sequence("shape", shape))
    name = repr(h) if type(h).__repr__ is not object.__repr__ else type(h).__name__
    return hold(PROXIMABLE, name, _Term(h, shape, np.random.default_rng(rng)))


class _Term:
    """A term at pairs of points, near its kinks and far from them."""

    def __init__(self, h: Proximable, shape: tuple[int, ...], rng: np.random.Generator) -> None:
        self.h, self.rng = h, rng
        self.pairs = [
            (rng.standard_normal(shape), rng.standard_normal(shape), t)
            for t in map(float, np.geomspace(0.03, 3.0, POINTS))
        ]

    def slopes(self) -> list[tuple[Array, Array, Array, Array]]:
        """Return directions, two for each point, and their images under the slope."""
        found = []
        for z, w, t in self.pairs:
            along = self.h.prox_slope(z, t)
            found.append((w, z, along(w), along(z)))
        return found


@law(PROXIMABLE, "an operation in place", 0.0)
def _purity(at: _Term) -> float:
    """Points and directions stay unchanged."""
    calls: list[tuple[Any, ...]] = [(at.h.value, at.pairs[0][0])]
    for z, w, t in at.pairs:
        calls += [(at.h.prox, z, t), (at.h.prox_slope, z, t), (at.h.prox_slope(z, t), w)]
    return written(calls)


@law(PROXIMABLE, "`is_finite` is wrong: h is infinite somewhere only for constraints", 0.0)
def _finiteness(at: _Term) -> str | float:
    """`value` is a number, finite everywhere if `is_finite` and always at the ends of `prox`."""
    free = [at.h.value(s * z) for z, *_ in at.pairs for s in (1.0, 1e3)]
    ends = [at.h.value(at.h.prox(z, t)) for z, _, t in at.pairs]
    if not np.isfinite(ends + (free if at.h.is_finite else [])).all():
        return "it is not finite"
    return 0.0


@law(PROXIMABLE, "a weight, a factor of t or of 2, or a sign; or h is not convex", LEAST)
def _least(at: _Term) -> float:
    """h(p) + ‖p − z‖²/2t is least at p = prox(z, t)."""
    return max(excess(at.h, z, t, at.rng) for z, _, t in at.pairs)


@law(PROXIMABLE, "h is not convex, or `prox` is not its proximal map")
def _firmness(at: _Term) -> float:
    """⟨prox z − prox w, z − w⟩ ≥ ‖prox z − prox w‖²."""
    errors = []
    for z, w, t in at.pairs:
        apart = at.h.prox(z, t) - at.h.prox(w, t)
        errors.append(float(real_dot(apart, apart) - real_dot(apart, z - w)) / float(real_dot(z - w, z - w)))
    return max(errors)


@law(PROXIMABLE, "the derivative of `prox` by z, not by t, and at this t", DIFFERENCES)
def _slope(at: _Term) -> float:
    """`prox_slope` agrees with differences of `prox` at one of five points, because of kinks."""
    errors = []
    for z, w, t in at.pairs:
        there, back = (at.h.prox(z + s * w, t) for s in (SHORT, -SHORT))
        errors.append(np.linalg.norm((there - back) / (2.0 * SHORT) - at.h.prox_slope(z, t)(w)))
    # The larger half: a wrong slope is wrong at most points, and few differences contain a kink.
    return float(np.median(errors)) / float(np.linalg.norm(w))


@law(PROXIMABLE, "a factor that is missing on one side")
def _slope_symmetry(at: _Term) -> float:
    """`prox_slope` is symmetric."""
    return (
        max(abs(float(np.vdot(Dw, z) - np.vdot(w, Dz))) for w, z, Dw, Dz in at.slopes()) / at.pairs[0][0].size
    )


@law(PROXIMABLE, "the slope of z − prox instead of that of prox, or a sign")
def _slope_bounds(at: _Term) -> float:
    """The eigenvalues of `prox_slope` are between 0 and 1: ⟨w, Dw⟩ ≥ ‖Dw‖²."""
    return max(float(np.vdot(Dw, Dw) - np.vdot(w, Dw)) / float(np.vdot(w, w)) for w, _, Dw, _ in at.slopes())
