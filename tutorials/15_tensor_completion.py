"""
Fill the gaps of a tensor
=========================

**Beginner, 10 minutes.** You learn to fill the gaps of a tensor by a tensor of low rank. Before this:
:doc:`Low rank </learn/low_rank>`.

Temperatures by day, hour and place: three axes, and most of the numbers are missing. A few patterns along each axis
explain nearly all of it, so that the tensor has a low rank along each: it is a small core, each axis of which is
multiplied by a matrix (Tucker). Such tensors are a manifold, on which few steps fill the gaps (Kressner, Steinlechner
and Vandereycken 2014).
"""

# %%
# The data
# --------
#
# Sixty days, twenty-four hours, forty places. Two patterns along each axis, a little noise, and one number in ten is
# known.

import numpy as np

rng = np.random.default_rng(0)
days, hours, places = np.arange(60), np.arange(24), rng.uniform(-1.0, 1.0, (40, 2))
season = np.stack([np.ones(60), np.cos(2 * np.pi * days / 60)], axis=1)
daylight = np.stack([np.ones(24), np.cos(2 * np.pi * (hours - 14) / 24)], axis=1)
height = np.stack([np.ones(40), places[:, 0]], axis=1)
mixed = np.array([[[12.0, -4.0], [5.0, 1.0]], [[8.0, 0.5], [2.0, -1.0]]])
truth = np.einsum("abc,ia,jb,kc->ijk", mixed, season, daylight, height)
known = rng.random(truth.shape) < 0.1
indices = np.argwhere(known)
values = truth[known] + 0.3 * rng.standard_normal(len(indices))
print(f"{len(indices):,} of {truth.size:,} temperatures are known")

# %%
# The manifold and the cost
# -------------------------
#
# The cost sums over the known entries alone, by a compiled loop: nothing of the size of the tensor is made. Where to
# begin: the gaps as zeros, cut to the rank.

from rmopt import Problem
from rmopt.costs import EntrySum
from rmopt.manifolds import FixedMultilinearRank
from rmopt.solvers import ConjugateGradient

manifold = FixedMultilinearRank(truth.shape, (2, 2, 2))
cost = EntrySum(truth.shape, indices, values)
result = ConjugateGradient().run(
    Problem(manifold, cost), manifold.from_entries(indices, values)
)
filled = result.point.as_ambient().toarray()
error = np.sqrt(np.mean((filled - truth) ** 2))
print(
    f"{result.steps} steps, root mean squared error {error:.3f} degrees beside noise of 0.3"
)

# %%
# Which rank?
# -----------
#
# Entries that are held back tell. Below two, patterns are missing; above, noise is fitted.

fold = rng.random(len(indices)) < 0.2
apart = {}
for rank in (1, 2, 3, 4):
    manifold = FixedMultilinearRank(truth.shape, (rank,) * 3)
    cost = EntrySum(truth.shape, indices[~fold], values[~fold])
    start = manifold.from_entries(indices[~fold], values[~fold])
    found = ConjugateGradient().run(Problem(manifold, cost), start).point
    apart[rank] = float(
        np.sqrt(np.mean((found.entries(indices[fold]) - values[fold]) ** 2))
    )
print({rank: round(value, 3) for rank, value in apart.items()})

# %%
# What it says
# ------------
#
# A day at one place, with what is known of it.

import matplotlib.pyplot as plt

place, day = 7, int(np.argmax(known[:, :, 7].sum(axis=1)))
seen = known[day, :, place]
figure, axes = plt.subplots(figsize=(7, 3.5))
axes.plot(hours, truth[day, :, place], color="grey", label="the truth")
axes.plot(hours, filled[day, :, place], "--", label="filled")
axes.plot(hours[seen], truth[day, seen, place], "o", label="known")
axes.set_xlabel("hour")
axes.set_ylabel("degrees")
axes.legend(frameon=False)
figure.tight_layout()
plt.show()

assert result.converged
assert error < 0.1
assert min(apart, key=apart.get) == 2
