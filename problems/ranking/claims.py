"""What section 7.2.5 of the LORETA paper says about figures 4 and 5, held against numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

from problems.comparison import wins
from rmopt.experiments import Claim

# For each (method, init, rank) one result per split.
Results = dict[tuple[str, str, int], list[dict[str, Any]]]


def ranking_claims(results: Results, frequency: float) -> list[Claim]:
    """Return the paper's claims with the verdict of the numbers, and how they stand to label frequency."""
    # A model that diverged on a split is no candidate for the best.
    means = {
        key: float(np.mean([cell["map"] for cell in found]))
        for key, found in results.items()
        if all(cell["map"] is not None for cell in found)
    }
    best: dict[tuple[str, int], tuple[float, str]] = {}
    for (name, init, rank), value in means.items():
        best[name, rank] = max(best.get((name, rank), (-np.inf, "")), (value, init))
    ranks = sorted(rank for name, rank in best if name == "loreta")
    return [
        _above_pa(best, ranks),
        *(_above_full(best, ranks, name) for name in ("matrix-perceptron", "group-perceptron")),
        _best_start(best, ranks, "identity", "lowest"),
        _best_start(best, ranks, "zero", "highest"),
        _above_frequency(best, ranks, frequency),
    ]


Best = dict[tuple[str, int], tuple[float, str]]


def _above_pa(best: Best, ranks: list[int]) -> Claim:
    claim = "LORETA is above passive-aggressive at every rank, each with its best start"
    gaps = [best["loreta", rank][0] - best["pa", rank][0] for rank in ranks if ("pa", rank) in best]
    return wins(claim, gaps, "loreta and pa")


def _above_full(best: Best, ranks: list[int], rival: str) -> Claim:
    claim = f"LORETA is above the {rival.replace('-', ' ')} at every rank"
    if not ranks or (rival, 0) not in best:
        return Claim(claim, None, f"needs loreta and {rival}")
    values = [best["loreta", rank][0] for rank in ranks]
    return Claim(
        claim, min(values) > best[rival, 0][0],
        f"LORETA {min(values):.3f} to {max(values):.3f}, the {rival.replace('-', ' ')} {best[rival, 0][0]:.3f}",
    )  # fmt: skip


def _best_start(best: Best, ranks: list[int], init: str, which: str) -> Claim:
    claim = f"the {init} start is the best at the {which} rank"
    if len(ranks) < 2:
        return Claim(claim, None, "needs two ranks of loreta")
    rank = ranks[0] if which == "lowest" else ranks[-1]
    value, found = best["loreta", rank]
    return Claim(claim, found == init, f"at rank {rank} the best is {found} with {value:.3f}")


def _above_frequency(best: Best, ranks: list[int], frequency: float) -> Claim:
    claim = "(not in the paper) LORETA is above ranking all labels by their frequency"
    if not ranks:
        return Claim(claim, None, "needs loreta")
    values = [best["loreta", rank][0] for rank in ranks]
    warp = [value for (name, _), (value, _) in best.items() if name == "loreta-warp"]
    numbers = f"frequency {frequency:.3f}, LORETA {min(values):.3f} to {max(values):.3f}"
    if warp:
        numbers += f", with WARP {min(warp):.3f} to {max(warp):.3f}"
    return Claim(claim, min(values) > frequency, numbers)
