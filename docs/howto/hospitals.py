"""Each process is a hospital: it reads its own patients, and sends a basis to its neighbours."""

import numpy as np
import scipy.sparse as sp

from problems.subspace import GossipPlan, MatrixCompletion, gossip
from rmopt.solvers import MPIWorld

world = MPIWorld()


def own_patients(hospital: int) -> sp.csc_array:
    """Return the measurements of one hospital; yours come from a file that only it has."""
    quantities = np.random.default_rng(0).standard_normal((30, 2))
    rng = np.random.default_rng([1, hospital])
    patients = quantities @ rng.standard_normal((2, 40))
    return sp.csc_array(np.where(rng.random(patients.shape) < 0.5, patients, 0.0))


# By default six hospitals, dealt to as many processes as mpiexec started.
here = {hospital: own_patients(hospital) for hospital in world.mine(6)}
tasks = MatrixCompletion(here, n_agents=6, lam=1e-4)
plan = GossipPlan(variant="parallel", graph="ring", n_epochs=100)
found = gossip(tasks, 2, plan, seed=0, world=world)

for hospital in here:
    weights = tasks.weights(found.mean, hospital)
    print(f"hospital {hospital}: {len(weights)} patients, weights stay here")
if world.rank == 0:
    print(f"largest distance between neighbours: {found.disagreement:.1e}")
