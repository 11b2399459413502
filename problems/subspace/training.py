"""Gossip between agents of this family: start, step sizes, and the final subspace."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Self

import numpy as np

from rmopt.core import AgentSum, InvalidInputError, Parts, Problem
from rmopt.core.ambient import Array, dense
from rmopt.core.arguments import CheckedValue, bounded, instance, integer, number, numbers, one_of
from rmopt.core.streams import Stream, generator
from rmopt.core.values import written
from rmopt.costs import GossipCost, Graph, as_graph
from rmopt.manifolds import Euclidean, Grassmann, Product, frechet_mean
from rmopt.solvers import LBFGS, Gossip, InverseTime, Recorder, Result, TreeSum, World
from rmopt.solvers.threads import one_blas_thread

VARIANTS = "stochastic", "parallel", "precon-stochastic", "precon-parallel"
# What may be a graph of agents; the number of agents is known later.
GRAPH = (str, Graph, list, tuple, np.ndarray)
# The default weight of the agreement relative to the agents' curvatures.
AGREEMENT = 0.1
POWER_STEPS = 12
# The relative length of the gradient at which a column is added.
GROWN = 0.01
# The number of power iterations that turn a new column to the strongest remaining direction.
TURNS = 3


def _rho(name: str, value: Any) -> Any:
    return value if isinstance(value, str) and value == "auto" else number(name, value, least=0)


@dataclass(frozen=True)
class GossipPlan(CheckedValue):
    """How agents gossip.

    Attributes
    ----------
    rho : float or "auto"
        Weight ρ of the agreement. "auto" means a tenth of the mean curvature of the agents' shares α_i f_i.
    variant : {"stochastic", "parallel", "precon-stochastic", "precon-parallel"}
    graph : {"path", "ring", "grid", "star", "complete", "erdos-renyi"}, Graph or list of edges
        The links between agents.
    step_size : float
        a, in units of one over an agent's largest curvature at the start, which it finds from its own data.
    decay : float
        The step sizes of the last step are a / (1 + decay), and in between a / (1 + b k).
    n_epochs : float
        The expected number of draws of each edge. With a `decay`, a checkpoint of another number is refused.
    init : {"common", "independent"}
        Whether all agents start with the same random subspace, drawn from the common seed, or each with its own.

    Examples
    --------
    >>> import numpy as np, scipy.sparse as sp
    >>> from problems.subspace import GossipPlan, MatrixCompletion, gossip
    >>> rng = np.random.default_rng(0)
    >>> table = sp.csc_array(rng.random((20, 1)) @ rng.random((1, 60)))
    >>> tasks = MatrixCompletion(table, n_agents=4)
    >>> plan = GossipPlan(variant="parallel", graph="ring", n_epochs=20)
    >>> tasks.value(gossip(tasks, 1, plan, seed=0).mean) < 1e-3
    True
    """

    rho: Annotated[float | str, _rho] = "auto"
    variant: Annotated[str, bounded(one_of, VARIANTS)] = "stochastic"
    graph: Annotated[Any, bounded(instance, GRAPH, "a name, a Graph or a list of pairs of agents")] = "path"
    step_size: Annotated[float, bounded(number, above=0)] = 1.0
    decay: Annotated[float, bounded(number, least=0)] = 1.0
    n_epochs: Annotated[float, bounded(number, least=0, most=1e9)] = 200.0
    init: Annotated[str, bounded(one_of, ("common", "independent"))] = "common"

    @classmethod
    def of(cls, estimator: Any) -> Self:
        """Return the plan with the parameters of an estimator."""
        return cls(**{name: getattr(estimator, name) for name in cls.__dataclass_fields__})


@dataclass(frozen=True)
class Gossiped:
    """The final state of agents.

    Attributes
    ----------
    points : Parts
        Each agent's basis.
    mean : array, shape (m, r)
        The Fréchet mean of their subspaces, used for predictions.
    rho : float
    disagreement : float
        The largest distance between the subspaces of neighbours.
    messages, bytes : int
        Messages and bytes sent between processes.
    result : Result

    Examples
    --------
    >>> import numpy as np, scipy.sparse as sp
    >>> from problems.subspace import GossipPlan, MatrixCompletion, gossip
    >>> rng = np.random.default_rng(0)
    >>> table = sp.csc_array(rng.random((20, 1)) @ rng.random((1, 60)))
    >>> found = gossip(
    ...     MatrixCompletion(table, n_agents=3), 1, GossipPlan(n_epochs=50), seed=0
    ... )
    >>> len(found.points), found.mean.shape, found.disagreement < 1e-2
    (3, (20, 1), True)
    """

    points: Parts
    mean: Array
    rho: float
    disagreement: float
    messages: int
    bytes: int
    result: Result


def gossip(
    tasks: AgentSum,
    rank: int,
    plan: GossipPlan,
    seed: int,
    *,
    recorder: Recorder | None = None,
    checkpoint: Path | str | None = None,
    world: World | None = None,
    flat: bool = False,
) -> Gossiped:
    """Let agents find a common subspace.

    Parameters
    ----------
    tasks : AgentSum
        The agents' costs, with `n_rows`. Of several processes each holds the data of its own agents.
    rank : int
    plan : GossipPlan
    seed : int
        The same in all processes.
    recorder : Recorder, optional
    checkpoint : path, optional
        Save there, and resume from it.
    world : World, optional
    flat : bool
        Whether neighbours compare their matrices U instead of the spans: the paper's Euclidean formulation (equation
        22).

    Examples
    --------
    >>> import numpy as np, scipy.sparse as sp
    >>> from problems.subspace import GossipPlan, MatrixCompletion, gossip
    >>> rng = np.random.default_rng(0)
    >>> table = sp.csc_array(rng.random((20, 1)) @ rng.random((1, 60)))
    >>> tasks = MatrixCompletion(table, n_agents=3)
    >>> found = gossip(tasks, 1, GossipPlan(graph="path", n_epochs=50), seed=0)
    >>> tasks.value(found.mean) < 1e-3
    True
    """
    world = World() if world is None else world
    instance("plan", plan, GossipPlan, "a GossipPlan")
    manifold, rng = _grassmann(tasks, rank), generator(integer("seed", seed, most=np.inf), Stream.START)
    _hold_alike(world, tasks, rank=rank, seed=seed, flat=flat, saved=checkpoint is not None, **vars(plan))
    n = tasks.n_terms
    graph = as_graph(plan.graph, n)
    if plan.init == "independent":
        begin = Product([manifold] * n).random_point(rng)
    else:
        begin = Parts([manifold.random_point(rng)] * n)
    _try_out(tasks, begin, world)
    order, preconditioned = plan.variant.removeprefix("precon-"), plan.variant.startswith("precon-")
    rho = plan.rho
    if isinstance(rho, str):
        alone = GossipCost(tasks, graph, 0.0, manifold)
        found = [largest_curvature(alone, agent, begin[agent], False, seed) for agent in world.mine(n)]
        rho = AGREEMENT * float(world.total(np.sum(found))) / n
    cost = GossipCost(tasks, graph, rho, manifold)
    scales = np.ones(n)
    for agent in world.mine(n):
        # A flat cost does not move, whatever its scale.
        scales[agent] = 1.0 / (largest_curvature(cost, agent, begin[agent], preconditioned, seed) or 1.0)
    base = Euclidean(*manifold.shape) if flat else manifold
    problem = Problem(Product([base] * n), GossipCost(tasks, graph, cost.rho, base))
    steady = Gossip(
        plan.step_size, n_epochs=plan.n_epochs, order=order, preconditioned=preconditioned, scales=scales,
        world=world,
    )  # fmt: skip
    rate = plan.decay / max(1.0, steady.budget(problem))
    solver = replace(steady, step_size=InverseTime(plan.step_size, rate)) if rate else steady
    result = solver.run(problem, begin, random_state=seed, recorder=recorder, checkpoint=checkpoint)
    points = Parts([np.linalg.qr(part)[0] for part in result.point]) if flat else result.point
    mean = frechet_mean(manifold, list(points), tol=1e-9)
    return Gossiped(points, mean, cost.rho, float(cost.gaps(points).max()), *world.traffic, result)


@one_blas_thread()
def agree(
    tasks: AgentSum,
    rank: int,
    seed: int,
    *,
    graph: str | Graph | Sequence[Sequence[int]] = "path",
    max_iter: int = 500,
    tol: float = 1e-8,
    recorder: Recorder | None = None,
    checkpoint: Path | str | None = None,
    world: World | None = None,
) -> Gossiped:
    """Let agents find the subspace of all their data together, by L-BFGS with sums along a tree.

    Only sums of gradients are sent, between neighbours (see `rmopt.solvers.TreeSum`), and all agents have the same
    basis at every step. It begins with one column, and adds one along the strongest remaining direction whenever the
    gradient is a hundredth as long as it was, so that weak directions are found as soon as strong ones.

    Parameters
    ----------
    tasks : AgentSum
        The agents' costs, with `n_rows`. Of several processes each holds the data of its own agents.
    rank : int
    seed : int
        The seed of the start, the same in all processes.
    graph : str, Graph or list of edges
        The links between agents, of which a spanning tree is used.
    max_iter : int
        The largest number of iterations for each number of columns.
    tol : float
        Stop when the gradient is this short, relative to its length at the start.
    recorder : Recorder, optional
        The recorder of the run with all columns.
    checkpoint : path, optional
        Save there and in files next to it, and resume with the same `max_iter`.
    world : World, optional

    Returns
    -------
    Gossiped
        With a disagreement of 0. The result's steps and updates are totals over all numbers of columns. Its history
        and counts are those of the last one.

    Examples
    --------
    >>> import numpy as np
    >>> import scipy.sparse as sp
    >>> from problems.subspace import MatrixCompletion, agree
    >>> rng = np.random.default_rng(0)
    >>> truth = rng.standard_normal((20, 1)) @ rng.standard_normal((1, 40))
    >>> known = sp.csc_array(truth * (rng.random(truth.shape) < 0.5))
    >>> tasks = MatrixCompletion(known, n_agents=4)
    >>> found = agree(tasks, 1, seed=0, graph="ring")
    >>> bool(tasks.value(found.mean) < 1e-12)
    True
    """
    world = World() if world is None else world
    tol = number("tol", tol, least=0)
    manifold = _grassmann(tasks, rank)
    about = {"graph": graph, "max_iter": max_iter, "tol": tol, "saved": checkpoint is not None}
    _hold_alike(world, tasks, rank=rank, seed=seed, **about)
    columns = manifold.random_point(generator(integer("seed", seed, most=np.inf), Stream.START))
    _try_out(tasks, [columns] * tasks.n_terms, world)
    cost, before = TreeSum(tasks, as_graph(graph, tasks.n_terms), world), world.traffic
    point, enough, steps, updates = columns[:, :0], 0.0, 0, 0
    for k in range(1, rank + 1):
        problem = Problem(Grassmann(manifold.shape[0], k), cost)
        point = np.linalg.qr(np.hstack([point, columns[:, k - 1 : k]]))[0]
        enough = enough or tol * problem.manifold.norm(point, problem.riemannian_gradient(point))
        for _ in range(TURNS):
            # A step of power iteration with the residual data: the gradient by the new column.
            left = problem.riemannian_gradient(point)[:, -1:]
            point = np.linalg.qr(np.hstack([point[:, :-1], left]))[0]
        # A step of conjugate gradients evaluates more often, and here evaluations are expensive.
        solver = LBFGS(memory=30, max_iter=max_iter, tol=GROWN)
        if k == rank:
            solver = solver.with_gradient_norm(enough)
        measured, saved = recorder if k == rank else None, _beside(checkpoint, k, rank)
        result = solver.run(problem, point, random_state=seed, recorder=measured, checkpoint=saved)
        point, steps, updates = result.point, steps + result.steps, updates + result.updates
    result = replace(result, steps=steps, updates=updates)
    messages_sent, bytes_sent = np.subtract(world.traffic, before).tolist()
    points = Parts([point] * tasks.n_terms)
    return Gossiped(points, point, 0.0, 0.0, messages_sent, bytes_sent, result)


def _hold_alike(world: World, tasks: AgentSum, **about: Any) -> None:
    """Refuse processes with different arguments, which would wait for each other."""
    if world.size > 1:
        sizes = {"n_rows": tasks.n_rows, "n_agents": tasks.n_terms}  # type: ignore[attr-defined]
        world.check_alike({name: written(value) for name, value in (sizes | about).items()})


def _grassmann(tasks: Any, rank: int) -> Grassmann:
    """Return the manifold of the agents' subspaces."""
    instance("tasks", tasks, AgentSum, "an object of a subclass of AgentSum")
    return Grassmann(tasks.n_rows, rank)


def _try_out(tasks: AgentSum, begin: Parts | list[Array], world: World) -> None:
    """Refuse agents that return invalid results, each at its start."""
    for agent in world.mine(tasks.n_terms):
        given, (m, r) = tasks.agent_gradient(begin[agent], agent), begin[agent].shape
        who = f"agent_gradient of agent {agent}"
        if not isinstance(given, tuple) or len(given) != 2:
            raise InvalidInputError(f"{who} must return the gradient and a curvature of shape {(r, r)}.")
        numbers(f"the first of {who}, the gradient,", dense(given[0]), (m, r))
        numbers(f"the second of {who}, the curvature,", given[1], (r, r))


def _beside(path: Path | str | None, k: int, rank: int) -> Path | str | None:
    """Return the file of a run with k columns, before the run with all."""
    if path is None or k == rank:
        return path
    return Path(path).with_name(f"{Path(path).stem}-{k}{Path(path).suffix}")


def largest_curvature(cost: GossipCost, agent: int, point: Array, preconditioned: bool, seed: int) -> float:
    """Return the largest eigenvalue of the Hessian of an agent's share α f plus ρ d², by power iteration.

    An edge moves both its ends, so the curvature of ρ/2 d² along their difference is 2ρ.
    Hessian actions are differences of gradients, followed by (WᵀW + ρI)⁻¹ if preconditioned. An agent needs its own
    data alone. The result is 0 if the cost does not depend on the subspace, as for labels that are all 0.
    """
    manifold, tasks = cost.manifold, cost.tasks
    rng = generator(seed, Stream.CURVATURE, agent)

    def slope(at: Array) -> tuple[Array, Array]:
        gradient, curvature = tasks.agent_gradient(at, agent)
        return dense(gradient), curvature

    gradient, curvature = slope(point)
    inverse = np.eye(point.shape[1])
    if preconditioned:
        weight = max(cost.rho, 1e-12 * np.trace(curvature), np.finfo(float).tiny)
        inverse = np.linalg.inv(curvature + weight * inverse)
    turn = point.T @ gradient
    vector, found = manifold.random_tangent_vector(point, rng), 0.0
    for _ in range(POWER_STEPS):
        moved, _ = slope(point + 1e-6 * vector)
        change = manifold.projection(point, (moved - gradient) / 1e-6 - vector @ turn)
        with np.errstate(all="ignore"):
            image = (cost.shares[agent] * change + 2.0 * cost.rho * vector) @ inverse
            found = float(np.linalg.norm(image))
        if not np.isfinite(found):
            raise InvalidInputError(
                f"the cost of agent {agent} has a curvature that is not finite; choose a smaller rho than "
                f"{cost.rho:.3g}, or scale the data."
            )
        if found == 0.0:
            break
        vector = image / found
    return found
