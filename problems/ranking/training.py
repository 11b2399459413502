"""How LORETA for label ranking is put together: the cost, the order of the rows, and the start."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from problems.batches import SeededEpochs
from problems.ranking.cost import LabelRanking, WarpRanking
from rmopt.core import Factored, InvalidInputError, LowRankPoint
from rmopt.core.ambient import Array
from rmopt.core.arguments import one_of
from rmopt.manifolds import FixedRankEmbedded
from rmopt.solvers import Sampler, ShuffledEpochs

SAMPLINGS: dict[str, type[LabelRanking]] = {"exact": LabelRanking, "warp": WarpRanking}
INITS = ("zero", "identity", "gaussian")


def ranking_cost(X: Any, Y: Any, sampling: str) -> LabelRanking:
    """Return the cost for a way of sampling, "exact" or "warp"."""
    return SAMPLINGS[one_of("sampling", sampling, SAMPLINGS)](X, Y)


def epochs(cost: LabelRanking) -> Sampler:
    """Return the sampler that shows every row once per epoch."""
    return (SeededEpochs if isinstance(cost, WarpRanking) else ShuffledEpochs)(cost.n_terms)


def starting_point(
    manifold: FixedRankEmbedded,
    cost: LabelRanking,
    init: str,
    seed: int | None,
    step_size: float = 1.0,
    unit: float = 1.0,
) -> LowRankPoint:
    """Return the start of a run (Shalit et al. 2012, §7.2.1).

    "zero": the first 2k subgradients from the zero matrix, summed in steps of `step_size` and truncated to rank k;
    refused where they do not reach it. "identity": `unit` at the first k places of the diagonal. "gaussian": `unit`
    times a product of two matrices of standard normal numbers.
    """
    rng = np.random.default_rng(seed)
    if one_of("init", init, INITS) == "zero":
        return _from_zero(manifold, cost, rng, step_size)
    point = manifold.identity()
    if init == "gaussian":
        (n_labels, n), k = manifold.shape, manifold.rank
        point = manifold.from_factors(rng.standard_normal((n_labels, k)), rng.standard_normal((n, k)))
    return replace(point, S=unit * point.S)


def _from_zero(
    manifold: FixedRankEmbedded, cost: LabelRanking, rng: np.random.Generator, step_size: float
) -> LowRankPoint:
    """Take subgradient steps from zero in the space of all matrices until the sum has rank k; truncate it."""
    taken: list[int] = []
    left: list[Array] = []
    wanted = 2 * manifold.rank
    for row in rng.permutation(cost.n_terms).tolist():
        # Rows stay sparse: as arrays they would be copied at every step.
        x = cost.X[[row]]
        along = (cost.X[np.array(taken, dtype=int)] @ x.T).toarray()
        g = cost.label_gradient(row, sum(map(np.multiply, along, left), np.zeros(manifold.shape[0])))
        if not (g.any() and x.count_nonzero()):
            continue
        taken.append(row)
        left.append(-step_size * g)
        if len(left) == wanted:
            wanted *= 2
            try:
                return _truncated(manifold, left, cost.X[taken])
            except InvalidInputError:
                continue
    if len(left) >= manifold.rank:
        return _truncated(manifold, left, cost.X[taken])
    raise InvalidInputError(
        f"init = 'zero' found {len(left)} subgradients for rank {manifold.rank}; a row has one where a true and a "
        "wrong label are within a margin of 1 and a feature is not 0. Give more rows, a smaller rank, or init = "
        "'identity'."
    )


def _truncated(manifold: FixedRankEmbedded, left: list[Array], rows: Any) -> LowRankPoint:
    return manifold.from_gradients([Factored(-np.array(left).T, rows.T)])
