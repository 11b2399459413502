"""What section 6 of the gossip paper says, held against numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rmopt.experiments import Claim

Traces = Mapping[str, Any]

# Synthetic entries have noise of standard deviation 1e-6.
NOISE_LEVEL = 1e-12
NEAR_NOISE = 100.0
FIRST_COMPARED = 25.0
# Errors are level that differ by this share.
LEVEL = 0.03


def case_claims(case: int, traces: Traces) -> list[Claim]:
    """Return the claims about a synthetic case."""
    settled = [label for label in traces if case == 1 or ("Gossip" in label and "Euclid" not in label)]
    made = [_settled(label, traces[label][-1], learns="1e+10" not in label) for label in settled]
    if case == 3 and len(traces) > 1:
        made.append(_ahead(traces, "Precon Stochastic Gossip", "Stochastic Gossip"))
    if case == 4 and "Stochastic Gossip" in traces:
        made += [
            _ahead(traces, "Stochastic Gossip", rival) for rival in traces if rival != "Stochastic Gossip"
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


def _ahead(traces: Traces, ours: str, theirs: str) -> Claim:
    """Compare errors at the updates that both traces reached."""
    claim = f"{ours} is ahead of {theirs} per update, from {FIRST_COMPARED:.0f} updates on"
    if ours not in traces or theirs not in traces:
        return Claim(claim, None, "one of them did not run")
    (x, mine, _), (z, other, _) = (np.array(traces[label]).T for label in (ours, theirs))
    at = np.geomspace(FIRST_COMPARED, min(x[-1], z[-1]), 4)
    a, b = (
        np.exp(np.interp(at, updates, np.log(np.maximum(errors, 1e-34))))
        for updates, errors in ((x, mine), (z, other))
    )
    numbers = (f"{u:.0f} updates: {p:.1e} against {q:.1e}" for u, p, q in zip(at, a, b, strict=True))
    return Claim(claim, bool((a <= b).all()), "; ".join(numbers))


def table_claims(found: Mapping[tuple[str, int, int], list[dict[str, Any]]]) -> list[Claim]:
    """Return the claims of Tables 2 and 3: gossip is comparable to the batch method, and falls off with agents."""
    errors = {key: float(np.mean([cell["test_rmse"] for cell in cells])) for key, cells in found.items()}
    made = []
    for rank in sorted({rank for _, _, rank in errors}):
        batch = [error for (name, _, r), error in errors.items() if name == "rtrmc" and r == rank]
        for name in dict.fromkeys(name for name, _, r in errors if r == rank and "stochastic" in name):
            by_agents = dict(
                sorted((n, error) for (other, n, r), error in errors.items() if (other, r) == (name, rank))
            )
            listed = ", ".join(f"N = {n}: {error:.3f}" for n, error in by_agents.items())
            values = list(by_agents.values())
            if batch:
                claim = f"rank {rank}: {name} gossip is within {LEVEL:.0%} of RTRMC"
                near = max(values) <= (1.0 + LEVEL) * batch[0]
                made.append(Claim(claim, near, f"RTRMC {batch[0]:.3f}; {listed}"))
            if len(values) > 1:
                harder = bool(np.all(np.diff(values) > 0.0))
                made.append(Claim(f"rank {rank}: the more agents, the harder ({name})", harder, listed))
    return made


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


def multitask_claims(found: Mapping[tuple[str, int], list[dict[str, Any]]], data: str) -> list[Claim]:
    """Return the claims of Table 4: gossip is as good as Alt-Min at every rank, and at the printed level."""
    errors = {key: float(np.mean([cell["nmse"] for cell in cells])) for key, cells in found.items()}
    ours = {rank: error for (name, rank), error in errors.items() if name == "stochastic"}
    rival, printed = errors.get(("alt-min", 0)), PRINTED.get(data, {})
    made = []
    if ours and rival is not None:
        claim = f"Stochastic Gossip is within {LEVEL:.0%} of Alt-Min at every rank"
        listed = ", ".join(f"r = {rank}: {error:.3f}" for rank, error in ours.items())
        near = max(ours.values()) <= (1.0 + LEVEL) * rival
        made.append(Claim(claim, near, f"Alt-Min {rival:.3f}; {listed}"))
    both = {rank: (ours[rank], error) for rank, error in printed.items() if rank in ours}
    if both:
        level = all(abs(error / value - 1.0) <= LEVEL for error, value in both.values())
        listed = ", ".join(
            f"r = {rank}: {error:.3f}, printed {value:.3f}" for rank, (error, value) in both.items()
        )
        made.append(Claim(f"the errors of Table 4, to {LEVEL:.0%}", level, listed))
    return made
