"""What section 5 of the COMET draft says, held against numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np

from problems.comparison import Difference, above, band
from problems.methods import Cell
from rmopt.experiments import Claim

Results = Mapping[str, Sequence[Cell]]

OF_DISTANCES = "comet-distance"
OURS = ("comet", "comet-hinge", "comet-sparse", OF_DISTANCES)
# Not watched after each pass, or ours and not the paper's.
UNWATCHED = ("comet-sparse", OF_DISTANCES)
# Figure 2 has every k up to 50.
DEPTHS = (1, 5, 10, 20, 50)

EARLIEST, LATEST = 6, 8
# A precision has settled that is within this share of the last one.
LEVEL = 0.005


def metric_claims(results: Results, labels: Mapping[str, str]) -> list[Claim]:
    """Return the paper's claims with the verdict of the numbers; COMET is held against a user's methods too."""
    ours = [name for name in OURS if name in results and results[name][0]["precision"] is not None]
    made = [
        above(f"COMET is above {labels[name]}", _gaps(results[ours[0]], results[name]), name)
        for name in results
        if ours and name not in OURS
    ]
    made += [
        above(
            f"{labels[OF_DISTANCES]} is above {labels[name]} in votes of neighbours",
            {"": Difference.of(results[OF_DISTANCES], results[name], "votes")},
            name,
        )
        for name in results
        if OF_DISTANCES in ours and name != OF_DISTANCES
    ]
    return made + [_settles(results[name], labels[name]) for name in ours if name not in UNWATCHED]


def _gaps(ours: Sequence[Cell], theirs: Sequence[Cell]) -> dict[str, Difference]:
    """Return the differences of precision at some depths of those that were measured."""
    deepest = len(ours[0]["precision"])
    return {
        f"P@{depth}": Difference.of(ours, theirs, partial(_precision, depth))
        for depth in DEPTHS
        if depth <= deepest
    }


def _precision(depth: int, cell: Cell) -> float | None:
    return None if cell["precision"] is None else float(cell["precision"][depth - 1])


def _settles(found: Sequence[Cell], label: str) -> Claim:
    claim = f"the precision of {label} settles within {EARLIEST} to {LATEST} passes"
    curves = np.array([cell["curve"] for cell in found])
    passes = curves[0, :, 0]
    if passes[-1] < 2 * LATEST:
        return Claim(claim, None, f"needs --passes {2 * LATEST}")
    mean, spread = band(curves[:, :, 2])
    near = np.abs(mean - mean[-1]) <= np.maximum(spread[-1], LEVEL * mean[-1])
    first = passes[len(near) - int(np.argmin(near[::-1]))] if not near.all() else passes[0]
    at = {number: float(mean[np.searchsorted(passes, number)]) for number in (EARLIEST, LATEST)}
    return Claim(
        claim,
        bool(first <= LATEST),
        f"P@10 {at[EARLIEST]:.3f} after {EARLIEST}, {at[LATEST]:.3f} after {LATEST}, {mean[-1]:.3f} after "
        f"{passes[-1]:g}; from pass {first:g} on within {LEVEL:.1%} or one s.e.m. of the end",
    )
