"""Step sizes by cross-validation on the training entries."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse as sp

from problems.subspace.completion import MatrixCompletion, columns_of
from problems.subspace.shares import Shares
from problems.subspace.training import GossipPlan
from rmopt.core import RmoptError
from rmopt.core.streams import Stream, generator

# First step sizes with their decay: the larger, the faster they must fall.
STEPS = (
    (0.5, 0.2), (1.0, 0.2), (1.5, 0.2), (1.0, 2.0), (2.0, 2.0), (4.0, 5.0), (10.0, 30.0), (30.0, 100.0),
    (100.0, 300.0),
)  # fmt: skip


def selected_plan(
    shares: Shares,
    plan: GossipPlan,
    folds: int,
    seed: int,
    score: Callable[[Shares, GossipPlan], float],
) -> dict[str, Any]:
    """Return the step size and decay with the least error on held-out training entries, to 1 %.

    Parameters
    ----------
    shares : Shares
    plan : GossipPlan
    folds : int
    seed : int
    score : callable
        The error of a plan on what `Shares.test` holds.
    """
    parts = [fold_of(shares, fold, folds, seed) for fold in range(folds)]
    errors = {}
    for step_size, decay in STEPS:
        wanted = replace(plan, step_size=step_size, decay=decay)
        try:
            errors[step_size, decay] = float(np.mean([score(part, wanted) for part in parts]))
        except RmoptError:
            # A step size that diverges on some fold is out.
            errors[step_size, decay] = float("inf")
    best = min(errors.values())
    # Of plans that end alike, the one that begins fastest.
    step_size, decay = max(steps for steps, error in errors.items() if error <= 1.01 * best)
    return {"step_size": step_size, "decay": decay}


def fold_of(shares: Shares, fold: int, folds: int, seed: int) -> Shares:
    """Return the shares of which every agent holds out one of some folds of its training entries."""
    train, test = {}, {}
    for agent in shares.tasks.here:
        part = shares.tasks.parts[agent]
        out = generator(seed, Stream.FOLDS, agent).integers(folds, size=part.nnz) == fold
        train[agent], test[agent] = _part(part, ~out, 0.0), _part(part, out, shares.mean)
    return replace(shares, tasks=MatrixCompletion(train, shares.tasks.n_terms, shares.tasks.lam), test=test)


def _part(table: sp.csc_array, chosen: Any, offset: float) -> sp.csc_array:
    where = (table.indices[chosen], columns_of(table)[chosen])
    return sp.csc_array(sp.coo_array((table.data[chosen] + offset, where), shape=table.shape))
