"""What section 7.1.5 of the LORETA paper says about figure 3, held against numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

from problems.comparison import positive, wins
from rmopt.experiments import Claim

# For each (method, rank) one result per split.
Results = dict[tuple[str, int], list[dict[str, Any]]]

EARLY = 50_000


def rank_claims(results: Results) -> list[Claim]:
    """Return the paper's claims with the verdict of the numbers."""
    # A model that diverged on a split has no mean.
    means = {
        key: float(np.mean([np.nan if cell["map"] is None else cell["map"] for cell in found]))
        for key, found in results.items()
    }
    return [
        _above("loreta", "pa", means, "LORETA is above passive-aggressive at every rank"),
        _above("loreta", "psd-gd", means, "LORETA is above naive PSD gradient descent at every rank"),
        _above("loreta", "naive-gd", means, "LORETA is above naive gradient descent at every rank"),
        _unstable(means),
        _above("loreta-psd", "loreta", means, "LORETA-PSD is slightly above LORETA at every rank"),
        _middle_rank(means),
        _full_rank(means),
        _learns_faster(results),
    ]


def _ranks(name: str, means: dict[tuple[str, int], float]) -> list[int]:
    return [rank for method, rank in means if method == name]


def _above(first: str, second: str, means: dict[tuple[str, int], float], claim: str) -> Claim:
    common = [rank for rank in _ranks(first, means) if (second, rank) in means]
    gaps = [means[first, rank] - means[second, rank] for rank in common]
    return wins(claim, gaps, f"{first} and {second}")


def _unstable(means: dict[tuple[str, int], float]) -> Claim:
    claim = "naive gradient descent is too unstable to present"
    values = [means["naive-gd", rank] for rank in _ranks("naive-gd", means)]
    if not values:
        return Claim(claim, None, "needs naive-gd")
    lost = sum(not np.isfinite(value) for value in values)
    return Claim(claim, lost > 0, f"it diverged at {lost} of {len(values)} ranks")


def _middle_rank(means: dict[tuple[str, int], float]) -> Claim:
    claim = "a middle rank, 30 where it is there, beats the highest with few features and the lowest with all"
    ranks = _ranks("loreta", means)
    if len(ranks) < 3:
        return Claim(claim, None, "needs three ranks of loreta")
    middle = 30 if 30 in ranks[1:-1] else ranks[len(ranks) // 2]
    low, value, high = (means["loreta", rank] for rank in (ranks[0], middle, ranks[-1]))
    numbers = f"rank {ranks[0]}: {low:.3f}, {middle}: {value:.3f}, {ranks[-1]}: {high:.3f}"
    return positive(claim, [value - low, value - high], numbers)


def _full_rank(means: dict[tuple[str, int], float]) -> Claim:
    claim = "LORETA is above OASIS and LEGO at the same memory and at four times as much"
    rivals = {key: value for key, value in means.items() if key[0] in ("oasis", "lego")}
    ranks = _ranks("loreta", means)
    if not rivals or not ranks:
        return Claim(claim, None, "needs loreta and oasis or lego")
    best = np.max([means["loreta", rank] for rank in ranks])
    shown = ", ".join(f"{name} at {width} features {value:.3f}" for (name, width), value in rivals.items())
    gaps = [best - value for value in rivals.values()]
    return positive(claim, gaps, f"LORETA at its best rank {best:.3f}; {shown}")


def _learns_faster(results: Results) -> Claim:
    claim = f"LORETA-PSD learns faster than LORETA in the first {EARLY:,} triplets"
    ranks = [rank for name, rank in results if name == "loreta" and ("loreta-psd", rank) in results]
    if not ranks:
        return Claim(claim, None, "needs loreta and loreta-psd")
    gaps = [_early(results["loreta-psd", rank]) - _early(results["loreta", rank]) for rank in ranks]
    numbers = (
        f"higher at {sum(gap > 0 for gap in gaps)} of {len(gaps)} ranks, differences {min(gaps):+.3f} to"
    )
    return positive(claim, gaps, f"mean mAP until then {numbers} {max(gaps):+.3f}")


def _early(found: list[dict[str, Any]]) -> float:
    """Return the mean of the first part of all curves; NaN where a model diverged, which has none."""
    values = [[value for step, value in cell["curve"] if 0 < step <= EARLY] for cell in found]
    return float(np.mean(np.concatenate(values))) if all(values) else np.nan
