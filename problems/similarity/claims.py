"""What section 7.1.5 of the LORETA paper says about figure 3, held against numbers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from problems.cells import Cell
from problems.comparison import Difference, above
from rmopt.experiments import Claim

# For each (method, variant, rank, features) one result per seed.
Results = dict[tuple[str, str, int | None, int], list[Cell]]

EARLY = 50_000
# Methods that LORETA is not held against at the same rank.
APART = ("loreta", "loreta-psd", "oasis", "lego", "contrastive")


def similarity_claims(results: Results, labels: Mapping[Any, str]) -> list[Claim]:
    """Return the claims that these methods and ranks can carry, with the verdict of the numbers.

    LORETA is held against a user's methods too.
    """
    # By method and rank, of the first variant.
    found: dict[str, dict[int | None, list[Cell]]] = {}
    for (name, _, rank, _), cells in results.items():
        found.setdefault(name, {}).setdefault(rank, cells)
    ours = found.get("loreta", {})
    if not ours:
        return []
    labels = {key[0]: label for key, label in reversed(list(labels.items()))}
    made = [
        above(f"LORETA is above {labels[name]}", _gaps(ours, found[name], "map"), name)
        for name in found
        if name not in APART
    ]
    others = {name: ranks for name, ranks in found.items() if name not in ("contrastive", "oasis", "lego")}
    if "contrastive" in found:
        name = max(others, key=lambda name: max(map(_mean, others[name].values())))
        claim = f"(not in the paper) {labels['contrastive']} is above the best of the others, {labels[name]}"
        made.append(above(claim, _gaps(found["contrastive"], others[name], "map"), name))
    if "naive-gd" in found:
        made.append(_unstable(found["naive-gd"]))
    if "loreta-psd" in found:
        psd = found["loreta-psd"]
        made.append(above("LORETA-PSD is slightly above LORETA", _gaps(psd, ours, "map"), "loreta-psd"))
        claim = f"LORETA-PSD learns faster than LORETA in the first {EARLY:,} triplets"
        made.append(above(claim, _gaps(psd, ours, _early), "loreta-psd"))
    if len(ours) > 2:
        made.append(_middle_rank(ours))
    best = max(ours.values(), key=_mean)
    full = {
        name + f", {features} features" * (features > 0): Difference.of(best, cells, "map")
        for (name, _, _, features), cells in results.items()
        if name in ("oasis", "lego")
    }
    if full:
        made.append(above("LORETA at its best rank is above OASIS and LEGO", full, "oasis or lego"))
    return made


def _mean(found: list[Cell]) -> float:
    return float(np.mean([cell["map"] or 0.0 for cell in found]))


def _gaps(ours: Any, theirs: Any, measure: Any) -> dict[str, Difference]:
    """Return the differences by rank; a method without a rank is compared at all."""
    ranks = [rank for rank in ours if rank in theirs or None in theirs]
    return {
        f"rank {rank}" if len(ranks) > 1 else "": Difference.of(
            ours[rank], theirs.get(rank, theirs.get(None)), measure
        )
        for rank in ranks
    }


def _early(cell: Cell) -> float | None:
    """Return the mean of the first part of a curve."""
    values = [value for step, _, value in cell["curve"] if step <= EARLY]
    return float(np.mean(values)) if values else None


def _unstable(found: dict[int | None, list[Cell]]) -> Claim:
    lost = sum(any(cell["map"] is None for cell in cells) for cells in found.values())
    return Claim(
        "naive gradient descent is too unstable to present",
        lost > 0,
        f"it diverged at {lost} of {len(found)} rank{'s' * (len(found) > 1)}",
    )


def _middle_rank(ours: dict[int | None, list[Cell]]) -> Claim:
    ranks = list(ours)
    middle = 30 if 30 in ranks[1:-1] else ranks[len(ranks) // 2]
    gaps = {
        f"over rank {other}": Difference.of(ours[middle], ours[other], "map")
        for other in (ranks[0], ranks[-1])
    }
    claim = f"a middle rank, here {middle}, beats the highest with few features and the lowest with all"
    return above(claim, gaps, "three ranks")
