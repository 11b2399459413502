"""What section 6 of the gossip paper says, held against numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from problems.comparison import Difference, above, mean_and_sem, near
from problems.methods import Cell, Method
from problems.subspace.training import VARIANTS
from rmopt.experiments import Claim

Trace = Sequence[Sequence[float]]
Traces = Mapping[str, Any]

# Which method of a case is said to be ahead of the others.
AHEAD = {3: "precon-stochastic", 4: "stochastic"}
# From this weight on agents have no time to learn.
ONLY_AGREEMENT = 1e9

# Synthetic entries have noise of standard deviation 1e-6.
NOISE_LEVEL = 1e-12
NEAR_NOISE = 100.0
FIRST_COMPARED = 25.0
# Errors are level that differ by this share.
LEVEL = 0.03


def case_claims(case: int, traces: Mapping[Any, Trace], labels: Mapping[Any, str]) -> list[Claim]:
    """Return the claims about a synthetic case, by method, number of agents, rank and weight."""
    made = [
        _settled(labels[key], trace[-1], learns=key[-1] < ONLY_AGREEMENT)
        for key, trace in traces.items()
        if key[0] in VARIANTS
    ]
    ours = next((key for key in traces if key[0] == AHEAD.get(case)), None)
    if ours is not None:
        made += [
            _ahead(traces[ours], theirs, labels[ours], labels[key])
            for key, theirs in traces.items()
            if key != ours
        ]
    return made


def _settled(label: str, end: Sequence[float], learns: bool) -> Claim:
    _, error, gap = end
    if not learns:
        agree = gap < 1e-2 and error > 1e-4
        return Claim(f"{label}: agents only agree", agree, f"distance {gap:.1e}, MSE {error:.1e}")
    return Claim(
        f"{label}: agents agree, and the error falls to the level of the noise",
        gap < 1e-2 and error < NEAR_NOISE * NOISE_LEVEL,
        f"distance {gap:.1e}, MSE {error:.1e}, noise {NOISE_LEVEL:.0e}",
    )


def _ahead(ours: Trace, theirs: Trace, label: str, other_label: str) -> Claim:
    """Compare errors at the updates that both traces reached."""
    (x, mine, _), (z, other, _) = (np.array(trace).T for trace in (ours, theirs))
    at = np.geomspace(FIRST_COMPARED, min(x[-1], z[-1]), 4)
    a, b = (
        np.exp(np.interp(at, updates, np.log(np.maximum(errors, 1e-34))))
        for updates, errors in ((x, mine), (z, other))
    )
    numbers = (f"{u:.0f} updates: {p:.1e} against {q:.1e}" for u, p, q in zip(at, a, b, strict=True))
    claim = f"{label} is ahead of {other_label} per update, from {FIRST_COMPARED:.0f} updates on"
    return Claim(claim, bool((a <= b).all()), "; ".join(numbers))


def table_claims(
    found: Mapping[tuple[str, int, int, Any], Sequence[Cell]], methods: Mapping[str, Method]
) -> list[Claim]:
    """Return the claims of Tables 2 and 3: gossip is comparable to the batch method, and falls off with agents."""
    made = []
    ours = [key for key in found if key[0] in VARIANTS]
    for name, rank in dict.fromkeys((name, rank) for name, _, rank, _ in ours):
        label = f"rank {rank}: {methods[name].label}"
        by_agents = {n: cells for (other, n, r, _), cells in found.items() if (other, r) == (name, rank)}
        for other, batch in ((key[0], cells) for key, cells in found.items() if key[2] in (rank, 0)):
            if methods[other].estimator.decentral or not methods[other].estimator.claimed:
                continue
            gaps = {f"N = {n}": Difference.of(batch, cells, "test_rmse") for n, cells in by_agents.items()}
            theirs = f"{methods[other].label} {_mean(batch):.3f}"
            if methods[other].estimator.batch:
                most = {n: (gap, LEVEL * _mean(batch)) for n, gap in gaps.items()}
                made.append(
                    near(f"{label} is within {LEVEL:.0%} of {methods[other].label}", most, theirs, other)
                )
            else:
                made.append(above(f"{label} has a smaller error than {methods[other].label}", gaps, other))
        counts = sorted(by_agents)
        if len(counts) > 1:
            harder = {
                f"{more} over {n}": Difference.of(by_agents[more], by_agents[n], "test_rmse")
                for n, more in pairwise(counts)
            }
            made.append(
                above(f"{label}: the more agents, the larger the error", harder, "two numbers of agents")
            )
    return made


def _mean(cells: Sequence[Cell]) -> float:
    return mean_and_sem(cell["test_rmse"] for cell in cells)[0]


def shared_features_claims(traces: Traces) -> list[Claim]:
    """Return the claim of Figure 5(a): all agents find the true subspace."""
    return [
        Claim(
            f"{label}: all agents converge to the optimal subspace",
            bool(rows[-1][1] < 1e-3),
            f"largest distance {rows[-1][1]:.1e}, between neighbours {rows[-1][2]:.1e}",
        )
        for label, rows in traces.items()
    ]


# Table 4: Stochastic Gossip by rank.
PRINTED = {"parkinsons": {3: 0.345, 5: 0.339, 7: 0.342, 9: 0.341}}


def multitask_claims(
    found: Mapping[tuple[str, int], Sequence[Cell]], labels: Mapping[str, str], data: str
) -> list[Claim]:
    """Return the claims of Table 4: gossip is as good as Alt-Min at every rank, and at the printed level."""
    ours = {rank: cells for (name, rank), cells in found.items() if name == "stochastic"}
    made = []
    for name in dict.fromkeys(name for name, _ in found if name not in (*VARIANTS, "batch")):
        theirs = {rank: found.get((name, rank), found.get((name, 0), ())) for rank in ours}
        gaps = {rank: Difference.of(theirs[rank], cells, "nmse") for rank, cells in ours.items()}
        claim = f"{labels['stochastic']} is within {LEVEL:.0%} of {labels[name]}" if ours else ""
        most = {f"rank {rank}": (gap, LEVEL * _level(theirs[rank])) for rank, gap in gaps.items()}
        if most:
            made.append(near(claim, most, f"{labels[name]} {_level(next(iter(theirs.values()))):.3f}", name))
    printed = {rank: value for rank, value in PRINTED.get(data, {}).items() if rank in ours}
    if printed:
        level = all(abs(_level(ours[rank]) / value - 1.0) <= LEVEL for rank, value in printed.items())
        listed = ", ".join(
            f"r = {rank}: {_level(ours[rank]):.3f}, printed {value:.3f}" for rank, value in printed.items()
        )
        made.append(Claim(f"the errors of Table 4, to {LEVEL:.0%}", level, listed))
    return made


def _level(cells: Sequence[Cell]) -> float:
    return mean_and_sem(cell["nmse"] for cell in cells)[0]
