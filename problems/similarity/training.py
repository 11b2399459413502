"""How LORETA is put together from a manifold, a retraction, a solver and a cost."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from rmopt.core import InvalidInputError, LowRankPoint, PSDPoint, Retraction
from rmopt.manifolds import FixedRankEmbedded, PSDFixedRank
from rmopt.retractions import FIXED_RANK_RETRACTIONS, PSD_RETRACTIONS
from rmopt.solvers import SGD, Sampler


def retraction_named(retraction: str | Retraction, psd: bool = False) -> Retraction:
    """Return a retraction of the general or the PSD matrices by its name; a retraction is returned as it is."""
    if isinstance(retraction, Retraction):
        return retraction
    known = PSD_RETRACTIONS if psd else FIXED_RANK_RETRACTIONS
    if retraction not in known:
        raise InvalidInputError(f"retraction = {retraction!r} is unknown; choose one of {', '.join(known)}.")
    return known[retraction]


def loreta_solver(
    step_size: Any,
    n_steps: int,
    sampler: Sampler,
    *,
    retraction: str | Retraction = "second-order",
    engine: str = "auto",
    psd: bool = False,
) -> SGD:
    """Return the solver of LORETA-1 or LORETA-1-PSD: one triplet a step."""
    if not isinstance(n_steps, (int, np.integer)) or n_steps < 1:
        raise InvalidInputError(f"n_triplets = {n_steps!r} must be a positive integer.")
    return SGD(
        step_size,
        n_steps=int(n_steps),
        sampler=sampler,
        retraction=retraction_named(retraction, psd),
        engine=engine,
    )


def initial_point(
    manifold: FixedRankEmbedded | PSDFixedRank, init: str, seed: int | None
) -> LowRankPoint | PSDPoint:
    """Return the start: "identity" (zero-padded) or "gaussian" (a random point)."""
    if init == "identity":
        return manifold.identity()
    if init == "gaussian":
        return manifold.random_point(np.random.default_rng(seed))
    raise InvalidInputError(f"init = {init!r} is unknown; choose identity or gaussian.")


def natural_step_size(rows: sp.csr_array) -> float:
    """Return one over the squared mean of ‖x‖²: the step size 1 for unit rows, in the units of the data.

    If the rows grow by a factor c, a W that gives the same scores shrinks by c² and its gradient grows
    by c², so the step size must shrink by c⁴.
    """
    mean_square = float(np.vdot(rows.data, rows.data)) / rows.shape[0]
    return 1.0 if mean_square == 0.0 else 1.0 / mean_square**2
