"""
Reproduce a figure of a paper
=============================

**Advanced, 15 minutes.** You learn to reproduce a figure of a paper on a small problem, and to hold its
claims against numbers. Before this: :doc:`Subspaces by gossip <09_gossip>`.

Figure 2 of the gossip paper (Mishra, Kasai, Jawanpuria and Saroop 2019) shows that agents who complete a
matrix together reach both the noise and each other, and what becomes of that when the weight ρ of their
agreement is far too large; figure 3 that they are ahead of D-LMaFit. A smaller matrix shows the same in
seconds. Claims are then held against numbers, as every experiment of rmopt does.
"""

# %%
# The data
# --------
#
# A matrix of rank 5 whose columns lie with six agents, each of whom knows some of the entries of its own
# columns, with noise of 1e-6. "Oversampling 6" means six known entries for each degree of freedom.

import matplotlib.pyplot as plt
import numpy as np
import scipy.sparse as sp

from problems.subspace import DLMaFit, GossipPlan, MatrixCompletion, gossip
from rmopt import Problem
from rmopt.costs import GossipCost, Graph
from rmopt.manifolds import Grassmann, Product
from rmopt.solvers import Recorder

rng = np.random.default_rng(0)
m, n, r, agents = 100, 1200, 5, 6
truth = rng.standard_normal((m, r)) @ rng.standard_normal((r, n)) / np.sqrt(r)
n_known = 6 * r * (m + n - r)
where = np.sort(rng.permutation(m * n)[:n_known])
rows, columns = np.divmod(where, n)
values = truth[rows, columns] + 1e-6 * rng.standard_normal(n_known)
tasks = MatrixCompletion(
    sp.csc_array((values, (rows, columns)), shape=(m, n)), n_agents=agents, lam=0.0
)
print(
    f"{n_known / m / n:.0%} of the entries are known, {tasks.parts[0].nnz:,} to the first agent"
)

# %%
# The runs
# --------
#
# Agents are a path. `stochastic` takes one edge a step, `parallel` all edges that share no agent. Step sizes
# are in units of one over an agent's curvature, which it finds from its own data. A recorder measures on the
# way: the mean squared error of each agent on its own columns, and the distances between neighbours.

manifold = Grassmann(m, r)


def fit(points):
    return (
        sum(tasks.residual_sum(points[agent], agent)[0] for agent in range(agents))
        / n_known
    )


def apart(points):
    return np.mean(
        [manifold.dist(points[agent], points[agent + 1]) for agent in range(agents - 1)]
    )


settings = {
    "stochastic, ρ = 10": {"rho": 10.0, "variant": "stochastic"},
    "parallel, ρ = 10": {"rho": 10.0, "variant": "parallel"},
    "stochastic, ρ = 10¹⁰": {"rho": 1e10, "variant": "stochastic"},
}
curves = {}
for name, options in settings.items():
    plan = GossipPlan(
        **options, step_size=1.4, decay=0.1, n_epochs=200, init="independent"
    )
    recorder = Recorder({"mse": fit, "distance": apart}, first=4, ratio=1.6)
    found = gossip(tasks, r, plan, 0, recorder=recorder)
    curves[name] = found.result.history
    print(
        f"{name:22} MSE {curves[name][-1]['mse']:.1e}, distance {curves[name][-1]['distance']:.1e}"
    )

# %%
# D-LMaFit has nothing to tune. All agents take a step at once.

power = Product([manifold] * agents)
problem = Problem(power, GossipCost(tasks, Graph.path(agents), 0.0, manifold))
recorder = Recorder({"mse": fit, "distance": apart}, first=4, ratio=1.6)
curves["D-LMaFit"] = (
    DLMaFit(400).run(problem, power.random_point(rng), recorder=recorder).history
)

# %%
# The figure
# ----------
#
# Updates of an agent on the abscissa, so that all can be compared.

figure, (left, right) = plt.subplots(1, 2, figsize=(8.5, 3.6))
for (name, history), line in zip(
    curves.items(), ("o-", "s-", "^--", "d:"), strict=True
):
    updates = [row["updates"] / agents for row in history]
    left.loglog(
        updates[1:], [row["mse"] for row in history][1:], line, markersize=4, label=name
    )
    right.loglog(
        updates[1:],
        [row["distance"] for row in history][1:],
        line,
        markersize=4,
        label=name,
    )
left.axhline(1e-12, color="0.5", linewidth=1)
left.text(2, 1.6e-12, "the noise", color="0.4")
left.set_ylabel("mean squared error")
right.set_ylabel("mean distance of neighbours")
for axes in (left, right):
    axes.set_xlabel("updates of an agent")
left.legend(fontsize=8)
figure.tight_layout()
plt.show()

# %%
# The claims
# ----------
#
# A claim is a sentence of the paper, a verdict and the numbers that decide it. Experiments print them below
# their tables.

from rmopt.experiments import Claim

ends = {name: history[-1] for name, history in curves.items()}
well, large = ends["stochastic, ρ = 10"], ends["stochastic, ρ = 10¹⁰"]
claims = [
    Claim(
        "agents reach the noise and agree, with both variants",
        all(
            ends[name]["mse"] < 1e-11 and ends[name]["distance"] < 1e-4
            for name in list(ends)[:2]
        ),
        f"MSE {well['mse']:.0e}, distance {well['distance']:.0e}",
    ),
    Claim(
        "with ρ = 10¹⁰ they agree and learn nothing",
        large["mse"] > 0.1 and large["distance"] < 1e-3,
        f"MSE {large['mse']:.2f}, distance {large['distance']:.0e}",
    ),
    Claim(
        "gossip is ahead of D-LMaFit, which takes more updates here",
        well["mse"] < 0.1 * ends["D-LMaFit"]["mse"]
        and well["updates"] < ends["D-LMaFit"]["updates"],
        f"MSE {well['mse']:.0e} against {ends['D-LMaFit']['mse']:.0e}",
    ),
]
print(*claims, sep="\n")

# %%
# The paper has 10,000 rows and 100,000 columns; the numbers at that size are on
# :doc:`the page of the paper </measured/subspace>`. What should hold:

assert all(claim.reproduced for claim in claims)
