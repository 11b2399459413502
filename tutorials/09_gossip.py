"""
Subspaces by gossip
===================

**Advanced, 20 minutes.** You learn to complete a matrix whose columns stay with several agents. Before this:
:doc:`Low rank </learn/low_rank>`.

Several agents hold columns of one matrix, and none may show its columns to another: ratings of different
users, say. Each fits a subspace to its own columns and tells its neighbours that subspace, nothing else; the
geometry of the Grassmann manifold says what it means for subspaces to agree (Mishra, Kasai, Jawanpuria and
Saroop 2019).
"""

# %%
# Completing a matrix together
# ----------------------------
#
# The estimator deals the columns to agents. After `fit`, `predict` gives any entry. It subtracts the mean of
# known entries, so a matrix of rank 3 becomes one of rank 4.

import numpy as np
import scipy.sparse as sp

from problems.subspace import GossipMatrixCompletion

rng = np.random.default_rng(0)
truth = (1.0 + rng.standard_normal((100, 3))) @ (1.0 + rng.standard_normal((3, 300)))
known = rng.random(truth.shape) < 0.3
rows, columns = np.nonzero(known)
ratings = sp.csc_array((truth[known], (rows, columns)), shape=truth.shape)

model = GossipMatrixCompletion(rank=4, n_agents=6, lam=0.0, random_state=0).fit(ratings)
hidden = np.nonzero(~known)
error = np.sqrt(np.mean((model.predict(*hidden) - truth[hidden]) ** 2))
print(
    f"error on hidden entries {error:.1e}; neighbours are {model.disagreement_:.1e} apart"
)

# %%
# Subspaces as points
# -------------------
#
# `Grassmann` knows geodesics, and the angles between subspaces at every scale. All agents together are one
# point of a power of it.

from rmopt.costs import Graph
from rmopt.manifolds import Grassmann, Product, frechet_mean

manifold = Grassmann(100, 3)
one, other = (manifold.random_point(rng) for _ in range(2))
velocity = manifold.log(one, other)
print(
    "the angles between two random subspaces:",
    np.round(manifold.principal_angles(one, other), 3),
)
halfway = manifold.exp(one, 0.5 * velocity)

# %%
# The parts, and how to exchange them
# -----------------------------------
#
# The cost is each agent's fit, plus ρ/2 times the squared distances along the edges of a graph. The solver
# takes random edges, or matchings of edges that share no agent; the same problem also runs under plain SGD.

from problems.subspace import MatrixCompletion
from rmopt import Problem
from rmopt.costs import GossipCost
from rmopt.retractions import QR
from rmopt.solvers import SGD, Gossip, InverseTime, Recorder

# %%
# Six agents in a ring, and a matrix of rank 3 without a level. The estimator chooses ρ and step sizes by the
# agents' curvatures; here they are numbers.

centred = rng.standard_normal((100, 3)) @ rng.standard_normal((3, 300))
entries = sp.csc_array((centred[known], (rows, columns)), shape=known.shape)
tasks = MatrixCompletion(entries, n_agents=6, lam=0.0)
cost = GossipCost(tasks, Graph.ring(6), 100.0, manifold)
problem = Problem(Product([manifold] * 6), cost)

watch = {"cost": cost.value, "distance": lambda point: float(cost.gaps(point).mean())}
recorder = Recorder(watch, at=[10, 30, 100, 200, 300, 500, 700, 1000])
result = Gossip(InverseTime(5e-4, 1e-3), max_iter=1000).run(
    problem, random_state=0, recorder=recorder
)
for row in result.history:
    print(
        f"after {row['step']:4} steps: cost {row['cost']:.1e}, mean distance {row['distance']:.1e}"
    )

# %%

import matplotlib.pyplot as plt

figure, axes = plt.subplots(figsize=(6, 3.6))
for key, line in (("cost", "o-"), ("distance", "s--")):
    axes.semilogy(
        [row["step"] for row in result.history],
        [row[key] for row in result.history],
        line,
        label=key,
    )
axes.set_xlabel("steps, each along an edge")
axes.legend()
figure.tight_layout()
plt.show()

# %%
# Plain SGD on the power of the manifold takes the same steps. In parallel, preconditioned and with another
# retraction fewer rounds do.

again = SGD(InverseTime(5e-4, 1e-3), max_iter=1000).run(problem, random_state=0)
same = max(manifold.dist(a, b) for a, b in zip(result.point, again.point, strict=True))
print(f"SGD on the power manifold ends {same:.0e} away from it")

preconditioned = Gossip(
    3.0, n_epochs=200, order="parallel", preconditioned=True, retraction=QR()
)
faster = preconditioned.run(problem, random_state=0)
mean = frechet_mean(manifold, list(faster.point))

# %%
# Without the geometry
# --------------------
#
# The paper's alternative compares matrices instead of subspaces: swap the manifold for the flat one. Two bases of
# one subspace then count as different, and agents must also agree on the basis.

from rmopt.manifolds import Euclidean

flat = Euclidean(100, 3)
start = Product([manifold] * 6).random_point(np.random.default_rng(1))
errors = {}
for name, base in (("Grassmann", manifold), ("Euclidean", flat)):
    apart = Problem(Product([base] * 6), GossipCost(tasks, Graph.path(6), 100.0, base))
    end = (
        Gossip(InverseTime(5e-4, 1e-3), n_epochs=60)
        .run(apart, start, random_state=0)
        .point
    )
    errors[name] = (
        sum(tasks.residual_sum(part, agent)[0] for agent, part in enumerate(end))
        / known.sum()
    )
    print(f"{name}: mean squared error {errors[name]:.1e}")

# %%
# Related regressions
# -------------------
#
# The same gossip finds features that regressions share.

from problems.subspace import MultitaskSubspace

X, which = rng.standard_normal((900, 12)), np.repeat(np.arange(30), 30)
coefficients = rng.standard_normal((30, 2)) @ rng.standard_normal((2, 12))
y = np.einsum("ij,ij->i", X, coefficients[which]) + 0.1 * rng.standard_normal(900)
shared = MultitaskSubspace(rank=2, n_agents=5, random_state=0).fit(
    X[::2], y[::2], tasks=which[::2]
)
alone = MultitaskSubspace(rank=11, n_agents=5, random_state=0).fit(
    X[::2], y[::2], tasks=which[::2]
)
scores = [each.score(X[1::2], y[1::2], tasks=which[1::2]) for each in (shared, alone)]
print(f"R² with 2 shared features {scores[0]:.3f}, with 11 {scores[1]:.3f}")

# %%
# Across processes
# ----------------
#
# With `MPIWorld` each process holds the data of its own agents, and an exchange is one 100 × 3 matrix in each
# direction. The points are those of one process, to the bit. MPI comes with `pip install "rmopt[mpi]"`.

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

SCRIPT = """
import sys
import numpy as np, scipy.sparse as sp
from problems.subspace import GossipPlan, MatrixCompletion, gossip
from rmopt.solvers import MPIWorld, World
world = MPIWorld() if sys.argv[1] == "mpi" else World()
U, columns = np.random.default_rng(0).standard_normal((100, 3)), {}
for agent in world.mine(6):
    rng = np.random.default_rng(agent + 1)
    table = U @ rng.standard_normal((3, 50))
    columns[agent] = sp.csc_array(table * (rng.random(table.shape) < 0.3))
tasks = MatrixCompletion(columns, n_agents=6)
found = gossip(tasks, 3, GossipPlan(100.0, "parallel", n_epochs=30), 0, world=world)
if world.rank == 0:
    np.save(sys.argv[2], np.array([part for part in found.points]))
    print(f"{found.messages} messages, {found.bytes:,} bytes between processes")
"""
folder = Path(tempfile.mkdtemp())
launcher = shutil.which("mpiexec", path=Path(sys.executable).parent) or shutil.which(
    "mpiexec"
)
identical = True
if launcher:
    for world, launch in (("one", []), ("mpi", [launcher, "-n", "2"])):
        command = [*launch, sys.executable, "-c", SCRIPT, world, str(folder / world)]
        print(
            f"{world}: {subprocess.run(command, capture_output=True, text=True, check=True).stdout}",
            end="",
        )
    identical = np.array_equal(np.load(folder / "one.npy"), np.load(folder / "mpi.npy"))
else:
    print("MPI is not installed here.")

# %%
# What should hold
# ----------------

assert error < 1e-2
assert identical
assert np.isclose(manifold.dist(one, halfway), manifold.dist(halfway, other))
assert result.cost < 1e-6 * result.history[0]["cost"]
assert same < 1e-10
assert sum(tasks.residual_sum(mean, agent)[0] for agent in range(6)) < 1e-6
assert errors["Grassmann"] < 0.01 * errors["Euclidean"]
assert scores[0] > scores[1]
