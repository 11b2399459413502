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
    left: list[Array] = []
    right: list[Array] = []
    wanted = 2 * manifold.rank
    for row in rng.permutation(cost.n_terms):
        x = cost.X[[row]].toarray()[0]
        scores = np.array(left).T @ (np.array(right) @ x) if left else np.zeros(manifold.shape[0])
        g = cost.label_gradient(row, scores)
        if not (g.any() and x.any()):
            continue
        left.append(-step_size * g)
        right.append(x)
        if len(left) == wanted:
            wanted *= 2
            try:
                return _truncated(manifold, left, right)
            except InvalidInputError:
                continue
    if len(left) >= manifold.rank:
        return _truncated(manifold, left, right)
    raise InvalidInputError(
        f"init = 'zero' found {len(left)} subgradients for rank {manifold.rank}; a row has one where a true and a "
        "wrong label are within a margin of 1 and a feature is not 0. Give more rows, a smaller rank, or init = "
        "'identity'."
    )


def _truncated(manifold: FixedRankEmbedded, left: list[Array], right: list[Array]) -> LowRankPoint:
    return manifold.from_gradients([Factored(-np.array(left).T, np.array(right).T)])
