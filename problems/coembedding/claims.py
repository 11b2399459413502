"""What Mirzazadeh et al. (2015) say, held against numbers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from problems.coembedding.methods import MEASURES, NAMES, OURS, PRINTED
from problems.comparison import Difference, above, mean_and_sem, near
from rmopt.experiments import Claim

Results = Mapping[str, list[dict[str, Any]]]

# Local optima within this share of the global minimum are the global one.
SAME = 1e-5
# What of the Hamming score may be given up, in per cent.
GIVEN_UP = 0.5
# Measures are comparable that differ by this share.
COMPARABLE = 0.015


def table_claims(results: Results, labels: Mapping[str, str], data: str) -> list[Claim]:
    """Return the claims of Tables 2 to 4 with the verdict of the numbers."""
    if "ila" not in results:
        return []
    made = []
    ours = {name: mean_and_sem(cell[name] for cell in results["ila"]) for name in MEASURES}
    others = [name for name in results if name not in OURS]
    for name in MEASURES if others else ():
        theirs = {other: mean_and_sem(cell[name] for cell in results[other])[0] for other in others}
        best = max(theirs, key=lambda other: np.nan_to_num(theirs[other], nan=-np.inf))
        mean, sem = ours[name]
        made.append(
            near(
                f"ILA is comparable to the best of the others in {NAMES[name]} (within {COMPARABLE:.1%})",
                {"by split": (Difference.of(results["ila"], results[best], name), COMPARABLE * theirs[best])},
                f"{mean:.1f}{f' ± {sem:.1f}' if sem is not None else ''}; best {labels[best]} {theirs[best]:.1f}",
                "other methods",
            )
        )
    if data in PRINTED:
        levels = dict(zip(MEASURES, PRINTED[data]["ila"], strict=True))
        numbers = ", ".join(f"{NAMES[name]} {ours[name][0]:.1f} ({level})" for name, level in levels.items())
        reached = all(ours[name][0] >= level for name, level in levels.items())
        made.append(Claim("ILA reaches the paper's row (printed numbers in brackets)", reached, numbers))
    return made


def threshold_claims(results: Results, labels: Mapping[str, str]) -> list[Claim]:
    """Return what co-embedding reaches beside the best of the others, thresholds for the same measure on all."""
    found = {name: cells for name, cells in results.items() if all(cell.get("aims") for cell in cells)}
    ours, others = [name for name in found if name in OURS], [name for name in found if name not in OURS]
    made = []
    for measure, aim in {"hamming": "hamming", "micro_f1": "f1", "macro_f1": "f1"}.items() if others else ():
        aimed = {
            name: [{measure: cell["aims"][aim][measure]} for cell in cells] for name, cells in found.items()
        }
        best = max(others, key=lambda name: np.mean([cell[measure] for cell in aimed[name]]))
        against = f"{labels[best]}, thresholds for {'F1' if aim == 'f1' else 'Hamming'} on both"
        for name in ours:
            gap = Difference.of(aimed[name], aimed[best], measure)
            its = f"ours: the {NAMES[measure]} of {labels[name]}"
            if measure == "hamming":
                claim = f"{its} is within {GIVEN_UP} of {against}"
                made.append(near(claim, {"": (gap, GIVEN_UP)}, "by split", "others"))
            else:
                made.append(above(f"{its} is above {against}", {"": gap}, "others"))
    return made


def optima_claims(optima: Mapping[int, Any], minimum: float, rank: int) -> list[Claim]:
    """Return the claims about local optima (Figure 3) with the verdict of the numbers."""
    excess = {d: np.asarray(values) / minimum - 1.0 for d, values in optima.items()}
    spread = {d: float(np.ptp(values)) for d, values in excess.items()}
    above = {d: float(values.max()) for d, values in excess.items()}
    enough = [d for d in optima if d >= rank]
    single = next((d for d in sorted(spread) if all(spread[e] <= SAME for e in spread if e >= d)), None)
    text = ", ".join(f"d = {d}: {above[d]:.1e}" for d in enough)
    return [
        Claim(
            f"every local optimum is global once there are d* = {rank} columns or more",
            all(above[d] <= SAME for d in enough) if enough else None,
            f"largest excess over the minimum, {text}" if enough else f"needs ranks up to {rank}",
        ),
        Claim(
            "the spread of local optima shrinks to one value at or before d*",
            single is not None and single <= rank,
            f"spread {max(spread.values()):.1e} at most; below {SAME:g} of the minimum "
            + (f"from d = {single} on" if single is not None else "at no d"),
        ),
    ]
