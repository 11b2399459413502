"""What section 7.2.5 of the LORETA paper says about figures 4 and 5, held against numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from problems.comparison import Difference, above
from problems.methods import Cell
from rmopt.experiments import Claim

# For each (method, init, rank) one result per seed.
Results = Mapping[tuple[str, str, int], Sequence[Cell]]
# For each method and rank the best start and its results.
Best = dict[str, dict[int, tuple[str, Sequence[Cell]]]]

# The paper does not compare LORETA with them.
ELSEWHERE = ("loreta", "loreta-warp", "low-rank-logistic", "ridge", "one-vs-rest", "omikuji", "napkinxc")


def ranking_claims(results: Results, labels: Mapping[str, str]) -> list[Claim]:
    """Return the paper's claims with the verdict of the numbers; LORETA is held against a user's methods too."""
    best: Best = {}
    for (name, init, rank), found in sorted(results.items(), key=lambda item: _mean(item[1])):
        best.setdefault(name, {})[rank] = init, found
    ours = best.get("loreta", {})
    made = [
        above(f"LORETA is above {labels[name]}, each with its best start", _gaps(ours, theirs), name)
        for name, theirs in ((name, best[name]) for name in labels if name in best and name not in ELSEWHERE)
        if ours
    ]
    if len(ours) > 1 and len({init for name, init, _ in results if name == "loreta"}) > 1:
        said = ("identity", min(ours)), ("zero", max(ours))
        made += [_best_start(results, ours, *one) for one in said if ("loreta", *one) in results]
    return made


def _mean(found: Sequence[Cell]) -> float:
    """Return the mean; a model that diverged with a seed is no candidate for the best."""
    return float(np.mean([-1.0 if cell["map"] is None else cell["map"] for cell in found]))


def _gaps(
    ours: dict[int, tuple[str, Sequence[Cell]]], theirs: dict[int, tuple[str, Sequence[Cell]]]
) -> dict[str, Difference]:
    """Return the differences by rank; a method without a rank is compared with all."""
    return {
        f"rank {rank}": Difference.of(ours[rank][1], theirs.get(rank, theirs.get(0, ("", ())))[1], "map")
        for rank in sorted(ours)
        if rank in theirs or 0 in theirs
    }


def _best_start(results: Results, ours: dict[int, tuple[str, Sequence[Cell]]], init: str, rank: int) -> Claim:
    others = {
        f"over {other}": Difference.of(results["loreta", init, rank], found, "map")
        for (name, other, at), found in results.items()
        if name == "loreta" and at == rank and other != init
    }
    which = "lowest" if rank == min(ours) else "highest"
    return above(f"the {init} start is the best at the {which} rank, {rank}", others, "two starts")
