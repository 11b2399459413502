"""What section 7.1.5 of the LORETA paper says about figure 3, held against numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

from rmopt.experiments import Claim

# For each (method, rank) one result per split.
Results = dict[tuple[str, int], list[dict[str, Any]]]

EARLY = 50_000


def rank_claims(results: Results) -> list[Claim]:
    """Return the paper's claims with the verdict of the numbers."""
    means = {key: float(np.mean([cell["map"] for cell in found])) for key, found in results.items()}
    return [
        _above("loreta", "pa", means, "LORETA is above passive-aggressive at every rank"),
        _above("loreta", "psd-gd", means, "LORETA is above naive PSD gradient descent at every rank"),
        _above("loreta", "naive-gd", means, "naive gradient descent is too unstable to present"),
        _above("loreta-psd", "loreta", means, "LORETA-PSD is slightly above LORETA at every rank"),
        _middle_rank(means),
        _full_rank(means),
        _learns_faster(results),
    ]


def _ranks(name: str, means: dict[tuple[str, int], float]) -> list[int]:
    return [rank for method, rank in means if method == name]


def _above(first: str, second: str, means: dict[tuple[str, int], float], claim: str) -> Claim:
    common = [rank for rank in _ranks(first, means) if (second, rank) in means]
    if not common:
        return Claim(claim, None, f"needs {first} and {second}")
    gaps = {rank: means[first, rank] - means[second, rank] for rank in common}
    wins = sum(gap > 0 for gap in gaps.values())
    numbers = f"above at {wins} of {len(gaps)} ranks, mAP differences {min(gaps.values()):+.3f} to "
    numbers += f"{max(gaps.values()):+.3f}"
    if second == "naive-gd":
        finite = all(np.isfinite(means[second, rank]) for rank in common)
        return Claim(
            claim, not finite, f"it is stable here; LORETA is {numbers}" if finite else "it diverged"
        )
    return Claim(claim, wins == len(gaps), numbers)


def _middle_rank(means: dict[tuple[str, int], float]) -> Claim:
    claim = "a middle rank beats the highest rank with few features and the lowest rank with all"
    ranks = _ranks("loreta", means)
    if len(ranks) < 3:
        return Claim(claim, None, "needs three ranks of loreta")
    best = max(ranks, key=lambda rank: means["loreta", rank])
    shown = ", ".join(f"{rank}: {means['loreta', rank]:.3f}" for rank in (ranks[0], best, ranks[-1]))
    return Claim(claim, best not in (ranks[0], ranks[-1]), f"lowest, best and highest rank {shown}")


def _full_rank(means: dict[tuple[str, int], float]) -> Claim:
    claim = "LORETA is above OASIS and LEGO at the same memory and at four times as much"
    rivals = {key: value for key, value in means.items() if key[0] in ("oasis", "lego")}
    ranks = _ranks("loreta", means)
    if not rivals or not ranks:
        return Claim(claim, None, "needs loreta and oasis or lego")
    best = max(means["loreta", rank] for rank in ranks)
    shown = ", ".join(f"{name} at {width} features {value:.3f}" for (name, width), value in rivals.items())
    return Claim(claim, best > max(rivals.values()), f"LORETA at its best rank {best:.3f}; {shown}")


def _learns_faster(results: Results) -> Claim:
    claim = f"LORETA-PSD learns faster than LORETA in the first {EARLY:,} triplets"
    ranks = [rank for name, rank in results if name == "loreta" and ("loreta-psd", rank) in results]
    if not ranks:
        return Claim(claim, None, "needs loreta and loreta-psd")
    early = {
        (name, rank): float(
            np.mean(
                [value for cell in results[name, rank] for step, value in cell["curve"] if 0 < step <= EARLY]
            )
        )
        for rank in ranks
        for name in ("loreta", "loreta-psd")
    }
    gaps = [early["loreta-psd", rank] - early["loreta", rank] for rank in ranks]
    numbers = (
        f"mean mAP until then higher at {sum(gap > 0 for gap in gaps)} of {len(gaps)} ranks, differences "
    )
    return Claim(claim, min(gaps) > 0, numbers + f"{min(gaps):+.3f} to {max(gaps):+.3f}")
