"""What section 5 of the COMET draft says, held against numbers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from rmopt.experiments import Claim

Results = Mapping[str, list[dict[str, Any]]]

EARLIEST, LATEST = 6, 8
# A precision has settled that is within this share of the last one.
LEVEL = 0.005


def metric_claims(results: Results, labels: Mapping[str, str]) -> list[Claim]:
    """Return the paper's claims with the verdict of the numbers."""
    whole = {
        name: np.array([cell["precision"] for cell in found])
        for name, found in results.items()
        if all(cell["precision"] is not None for cell in found)
    }
    ours = [name for name in ("comet", "comet-hinge") if name in whole]
    rivals = [name for name in whole if not name.startswith("comet")]
    made = [_above(whole[ours[0]], whole[rival], labels[ours[0]], labels[rival]) for rival in rivals if ours]
    settled = [_settles(results[name], labels[name]) for name in ours]
    return [*made, *settled]


def band(curves: Any) -> tuple[Any, Any]:
    """Return the mean of curves, one in a row, and its standard error, which is zero for one curve."""
    mean, count = curves.mean(axis=0), len(curves)
    return mean, curves.std(axis=0, ddof=1) / count**0.5 if count > 1 else np.zeros_like(mean)


def _above(ours: Any, theirs: Any, our_label: str, label: str) -> Claim:
    claim = f"{our_label} is at or above {label} for every k"
    gaps, spread = band(ours - theirs)
    worst = int(np.argmin(gaps))
    depth = min(10, len(gaps))
    return Claim(
        claim,
        bool((gaps >= 0).all()),
        f"above at {int((gaps >= 0).sum())} of {len(gaps)} depths; P@{depth} {gaps[depth - 1]:+.3f} ± "
        f"{spread[depth - 1]:.3f}, least {gaps[worst]:+.3f} ± {spread[worst]:.3f} at k = {worst + 1}",
    )


def _settles(found: list[dict[str, Any]], label: str) -> Claim:
    claim = f"the precision of {label} settles within {EARLIEST} to {LATEST} passes"
    curves = np.array([cell["curve"] for cell in found])
    passes = curves[0, :, 0]
    if passes[-1] < 2 * LATEST:
        return Claim(claim, None, f"needs --passes {2 * LATEST}, to see what comes after")
    mean, spread = band(curves[:, :, 2])
    near = np.abs(mean - mean[-1]) <= np.maximum(spread[-1], LEVEL * mean[-1])
    first = passes[len(near) - int(np.argmin(near[::-1]))] if not near.all() else passes[0]
    at = {number: float(mean[np.searchsorted(passes, number)]) for number in (EARLIEST, LATEST)}
    return Claim(
        claim,
        bool(first <= LATEST),
        f"P@10 {at[EARLIEST]:.3f} after {EARLIEST}, {at[LATEST]:.3f} after {LATEST}, {mean[-1]:.3f} after "
        f"{passes[-1]:g}; from pass {first:g} on within one s.e.m. of the end",
    )
