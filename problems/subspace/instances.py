"""Matrix completion, multitask features and gossip in the catalogue of laws."""

import numpy as np
import scipy.sparse as sp

from problems.subspace.cost import MatrixCompletion, MultitaskFeatures
from rmopt.checks.catalogue import Instance
from rmopt.core import AgentSum, Manifold, Problem
from rmopt.costs import GossipCost, Graph
from rmopt.manifolds import Euclidean, Grassmann, Product
from rmopt.retractions import GRASSMANN_RETRACTIONS


def instances() -> list[Instance]:
    """Return both costs with and without λ, alone and between agents on a graph with a branch and a circle."""
    made = []
    graph = Graph(5, [(0, 1), (1, 2), (2, 3), (3, 1), (3, 4)])
    for name, tasks in agent_sums(5).items():
        manifold = Grassmann(tasks.n_rows, 3)  # type: ignore[attr-defined]
        batch = {"batch": Problem(manifold, tasks)}
        made.append(Instance(name, manifold, list(GRASSMANN_RETRACTIONS.values()), batch))
        bases: tuple[Manifold, ...] = (manifold, Euclidean(*manifold.shape))
        for base in bases:
            power = Product([base] * graph.n)
            problems = {"gossip": Problem(power, GossipCost(tasks, graph, 2.0, base))}
            kind = f"gossip-{type(base).__name__.lower()}-{name}"
            made.append(Instance(kind, power, [power.default_retraction], problems))
    return made


def agent_sums(n_agents: int) -> dict[str, AgentSum]:
    """Return small costs of both kinds, with an empty column and row, and tasks of different sizes."""
    rng = np.random.default_rng(9)
    known = rng.random((14, 23)) < 0.6
    known[:, 4] = known[6] = False
    ratings = sp.csc_array(np.where(known, rng.standard_normal(known.shape), 0.0))
    tasks = [
        (rng.standard_normal((count, 8)), rng.standard_normal(count)) for count in rng.integers(4, 12, size=7)
    ]
    return {
        "completion": MatrixCompletion(ratings, n_agents),
        "completion-ridge": MatrixCompletion(ratings, n_agents, lam=0.1),
        "completion-all": MatrixCompletion(ratings, n_agents, lam=0.1, penalty="all"),
        "multitask": MultitaskFeatures(tasks, n_agents),
        "multitask-ridge": MultitaskFeatures(tasks, n_agents, lam=0.3),
    }
