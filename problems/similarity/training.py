"""How LORETA is put together from a manifold, a retraction, a solver and a cost."""

from __future__ import annotations

from typing import Any

import numpy as np

from rmopt.core import LowRankPoint, PSDPoint, Retraction
from rmopt.core.arguments import integer, named, one_of
from rmopt.manifolds import FixedRankEmbedded, PSDFixedRank
from rmopt.retractions import FIXED_RANK_RETRACTIONS, PSD_RETRACTIONS
from rmopt.solvers import SGD, Sampler

INITS = ("identity", "gaussian")


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
    known = PSD_RETRACTIONS if psd else FIXED_RANK_RETRACTIONS
    return SGD(
        step_size,
        n_steps=integer("n_triplets", n_steps, 1),
        sampler=sampler,
        retraction=named("retraction", retraction, known, Retraction),
        engine=engine,
    )


def initial_point(
    manifold: FixedRankEmbedded | PSDFixedRank, init: str, seed: int | None
) -> LowRankPoint | PSDPoint:
    """Return the start: "identity" (zero-padded) or "gaussian" (a random point)."""
    if one_of("init", init, INITS) == "identity":
        return manifold.identity()
    return manifold.random_point(np.random.default_rng(seed))
