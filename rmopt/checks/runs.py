"""Laws of solvers, engines, samplers and rules of step sizes."""

import copy
import tempfile
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from rmopt.checks.laws import Check, Law, hold, law
from rmopt.core.ambient import Array, dense
from rmopt.core.arguments import instance, integer
from rmopt.core.cost import BlockCost
from rmopt.core.points import arrays_of, packed, unpacked
from rmopt.core.problem import Problem
from rmopt.core.retraction import Retraction
from rmopt.core.values import written
from rmopt.engines.base import Engine
from rmopt.engines.choose import choose_coordinate_engine, choose_engine
from rmopt.kernels.row_column import EXACT, FIXED
from rmopt.solvers.recorder import Recorder
from rmopt.solvers.result import Result
from rmopt.solvers.run import Solver
from rmopt.solvers.save import Checkpoint
from rmopt.solvers.stochastic.samplers import Sampler, as_sampler
from rmopt.solvers.stochastic.scheduled import ScheduledSolver
from rmopt.solvers.stochastic.step_sizes import StepSize
from rmopt.solvers.stop import MaxSteps

SOLVER: list[Law] = []
ENGINE: list[Law] = []
SAMPLER: list[Law] = []
STEP_SIZE: list[Law] = []


def check_solver(solver: Solver, problem: Problem, rng: Any = 0) -> list[Check]:
    """Check that a solver's runs on a problem end well, and can be repeated, interrupted and resumed.

    The solver runs several times to the end of its budget, so take a small one.

    Parameters
    ----------
    solver : Solver
    problem : Problem
    rng : seed or Generator
        The source of the runs' seed.

    Returns
    -------
    list of Check
        One for each law that applies.

    Raises
    ------
    MissingCapabilityError
        If the solver cannot run on the problem.

    Examples
    --------
    >>> from rmopt import Problem, autograd_cost
    >>> from rmopt.checks import check_solver
    >>> from rmopt.manifolds import Euclidean
    >>> from rmopt.solvers import GradientDescent
    >>> problem = Problem(Euclidean(3, 2), autograd_cost(lambda X: ((X - 1.0) ** 2).sum()))
    >>> all(check_solver(GradientDescent(), problem))
    True
    """
    instance("solver", solver, Solver, "a Solver")
    instance("problem", problem, Problem, "a Problem")
    seed = int(np.random.default_rng(rng).integers(2**31))
    subject = f"{type(solver).__name__} with {type(problem.cost).__name__} on {problem.manifold}"
    # A capability that the problem lacks is not a broken law.
    solver.check_problem(problem)
    solver.prepare(problem, seed)
    return hold(SOLVER, subject, _Runs(solver, problem, seed))


def check_engine(
    problem: Problem,
    retraction: Retraction | None = None,
    rng: Any = 0,
    *,
    steps: int = 200,
    step_size: float = 0.05,
    batch_size: int = 1,
    engine: str | Engine = "compiled",
) -> list[Check]:
    """Check that an engine follows the reference to 1e-10, splits exactly, and is saved without loss.

    If the cost and the manifold have blocks, it is the engine of coordinate descent: half of the steps have a fixed
    size, half use exact line search. The latter are compared in legs of 20 steps from the reference's points, because
    the zigzag of steepest descent is sensitive to rounding.

    Parameters
    ----------
    problem : Problem
    retraction : Retraction, optional
        Defaults to the manifold's.
    rng : seed or Generator
    steps : int
    step_size : float
    batch_size : int
        Terms per step.
    engine : {"compiled", "reference"} or Engine
        An engine of the library, or your own for this problem.
    """
    instance("problem", problem, Problem, "a Problem")
    rng = np.random.default_rng(rng)
    manifold: Any = problem.manifold
    cost = problem.cost
    start, retraction = manifold.random_point(rng), retraction or manifold.default_retraction
    if isinstance(cost, BlockCost) and hasattr(manifold, "block_of"):
        schedule = rng.integers(manifold.n_blocks, size=(steps // 2, 1))
        engines: Any = partial(choose_coordinate_engine, problem, retraction)
        ways = [("fixed steps", FIXED, 0.4 * step_size, steps // 2), ("line search", EXACT, 0.99, 20)]
    else:
        schedule = as_sampler(None, cost, batch_size).draw(rng, 0, steps)
        engines = partial(choose_engine, problem, retraction)
        ways = [("steps", batch_size, step_size, steps)]
    checks, named = [], f"{type(cost).__name__}({getattr(cost, 'loss', '')})"
    for name, how, eta, leg in ways:
        tried = engine if isinstance(engine, Engine) else engines(engine, how)
        run = _Legs(
            problem, engines("reference", how), tried, start, schedule, np.full(len(schedule), eta), leg
        )
        subject = f"{type(tried).__name__}: {name} along {retraction} with {named} on {manifold}"
        checks += hold(ENGINE, subject, run)
    return checks


def check_sampler(sampler: Sampler, n_terms: int | None = None, rng: Any = 0) -> list[Check]:
    """Check that a sampler draws existing terms, and the same ones for equal generators, whatever it drew before.

    Parameters
    ----------
    sampler : Sampler
    n_terms : int, optional
        The number of terms, blocks or edges. Defaults to the sampler's own `n_terms`.
    rng : seed or Generator
    """
    instance("sampler", sampler, Sampler, "a Sampler")
    count = getattr(sampler, "n_terms", None) if n_terms is None else n_terms
    seed = int(np.random.default_rng(rng).integers(2**32))
    return hold(SAMPLER, type(sampler).__name__, (sampler, copy.deepcopy(sampler), count, seed))


def check_step_size(rule: StepSize, steps: int = 1_000_000) -> list[Check]:
    """Check that a rule's step sizes are finite, not negative, and depend on the number of the step alone.

    Parameters
    ----------
    rule : StepSize
    steps : int
        The number of steps of the longest run.
    """
    instance("rule", rule, StepSize, "a StepSize, for example Constant(0.1)")
    return hold(STEP_SIZE, str(rule), (rule, integer("steps", steps, 1)))


# Solvers


@dataclass
class _Runs:
    """A solver on a problem. `whole` is one run from start to end, made on first use."""

    solver: Solver
    problem: Problem
    seed: int

    @cached_property
    def whole(self) -> Result:
        return self.run()

    def run(self, start: Any = None, **options: Any) -> Result:
        return self.solver.run(self.problem, start, **{"random_state": self.seed} | options)

    def first(self, start: Any = None) -> Any:
        """Return the initial point of a run."""
        state = next(iter(self.solver.iterate(self.problem, start, random_state=self.seed)))
        return self.solver.point(self.solver.prepare(self.problem, self.seed), state)


def apart(a: Any, b: Any) -> float:
    """Return the largest difference of the numbers of two points."""
    pairs = zip(arrays_of(a), arrays_of(b), strict=True)
    return max(float(np.abs(left - right).max(initial=0.0)) for left, right in pairs)


@law(SOLVER, "a `begin` with another start, or a step that leaves the manifold", 1e-10)
def _ends(runs: _Runs) -> Any:
    """A run begins at the given point, also at another run's result, and ends on the manifold."""
    manifold, end = runs.problem.manifold, runs.whole.point
    if reason := manifold.check_point(end):
        return reason
    given, begun = (dense(manifold.embed_point(point)) for point in (end, runs.first(runs.whole)))
    return float(np.linalg.norm(begun - given) / max(1.0, float(np.linalg.norm(given))))


@law(SOLVER, "steps in the wrong direction, or too long ones; or `finished` returns `Converged` too early")
def _descent(runs: _Runs) -> Any:
    """The cost at the end is not above that at the start, and it or the gradient has fallen if a run converged."""
    problem, ends = runs.problem, (runs.first(), runs.whole.point)
    begun, ended = map(problem.value, ends)
    if runs.whole.converged and not ended < begun and problem.cost.has_gradient:
        norms = [problem.manifold.norm(point, problem.riemannian_gradient(point)) for point in ends]
        if not (norms[1] < 0.5 * norms[0] or norms[0] < 1e-6 * max(1.0, abs(begun))):
            return f"it has not moved, and the gradient there is {norms[0]:.1e} long"
    return max(0.0, ended - begun) / max(1.0, abs(begun))


@law(SOLVER, "numbers from another generator, or a memory of earlier runs", 0.0)
def _repetition(runs: _Runs) -> float:
    """Equal seeds give bit-identical results, also after another run, and in a copy of the solver."""
    alone = copy.deepcopy(runs.solver).run(runs.problem, random_state=runs.seed).point
    runs.run(random_state=runs.seed + 1)
    return max(apart(again, runs.whole.point) for again in (runs.run().point, alone))


@law(SOLVER, "the state lacks something that the next step needs; or `run` ignores criteria", 0.0)
def _resumption(runs: _Runs) -> Any:
    """A run ends at its stop, and one resumed there from its checkpoint is bit-identical to one run."""
    whole, half = runs.whole, runs.whole.steps // 2
    if half == 0:
        return None
    # Criteria are evaluated when a recorder measures.
    recorder = Recorder({"nothing": lambda point: 0.0}, at=[half])
    with tempfile.TemporaryDirectory() as folder:
        checkpoint = Checkpoint(Path(folder) / "run.npz", every_seconds=0)
        stopped = runs.run(checkpoint=checkpoint, stop=MaxSteps(half), recorder=recorder)
        parted = runs.run(checkpoint=checkpoint)
    if stopped.steps >= whole.steps or parted.steps != whole.steps:
        return (
            f"it ended after {stopped.steps} and {parted.steps} steps, and not after {half} and {whole.steps}"
        )
    return apart(parted.point, whole.point)


@law(SOLVER, "a run changes the solver, which other runs share; values that change belong in the state", 0.0)
def _solver_purity(runs: _Runs) -> Any:
    """A run changes neither the solver nor the initial point, and a step does not change the state before it."""
    start, before = runs.first(), written(sorted(vars(runs.solver).items()))
    kept = [array.copy() for array in arrays_of(start)]
    runs.run(start)
    states = runs.solver.iterate(runs.problem, start, random_state=runs.seed)
    state = next(states)
    begun = written(state)
    next(states, None)
    # An engine may overwrite its state.
    if written(state) != begun and not isinstance(runs.solver, ScheduledSolver):
        return "`advance` changed the given state; return a new one"
    if written(sorted(vars(runs.solver).items())) != before:
        return "the solver differs afterwards"
    return apart(kept, start)


@law(SOLVER, "`observe` reports another point, or another cost", 1e-6)
def _observed(runs: _Runs) -> float | None:
    """A cost or gradient_norm from `observe` is that of the problem at the point, relative to its size."""
    problem, half = runs.problem, runs.run(stop=MaxSteps(max(1, runs.whole.steps // 2)))
    errors = []
    for row, point in zip(half.history[:1] + half.history[-1:], (runs.first(), half.point), strict=False):
        seen = [("cost", problem.value(point))]
        if not problem.constraints and "gradient_norm" in row:
            # With some solvers it is the gradient of a Lagrangian.
            seen.append(("gradient_norm", problem.manifold.norm(point, problem.riemannian_gradient(point))))
        errors += [abs(row[name] - size) / max(1.0, abs(size)) for name, size in seen if name in row]
    return float(np.max(errors)) if errors else None


# Engines, samplers and step sizes


class _Legs(NamedTuple):
    """A schedule in legs of some steps, a reference, and another engine."""

    problem: Problem
    reference: Engine
    tried: Engine
    start: Any
    schedule: Array
    etas: Array
    leg: int

    def advanced(self, engine: Engine, state: Any, first: int, end: int) -> Any:
        return engine.advance(state, self.schedule[first:end], self.etas[first:end])

    def seen(self, point: Any) -> Array:
        """Return a point as an array."""
        return dense(self.problem.manifold.embed_point(point))


# Rounding, amplified by the steps.
@law(ENGINE, "a step that differs from gradient, projection and retraction, or does nothing", 1e-10)
def _compiled_engine(run: _Legs) -> Any:
    """It follows the reference, relative to the size of the point, and moves by more than 1e-3."""
    error, point = 0.0, run.start
    for first in range(0, len(run.etas), run.leg):
        found, point = (
            engine.dump(run.advanced(engine, engine.load(point), first, first + run.leg))
            for engine in (run.tried, run.reference)
        )
        expected = run.seen(point)
        error = max(error, float(np.linalg.norm(run.seen(found) - expected) / np.linalg.norm(expected)))
    moved = float(np.linalg.norm(run.seen(found) - run.seen(run.start)))
    return error if moved > 1e-3 else f"it moves by {moved:.1e}: by too small steps, or none"


@law(ENGINE, "the state lacks something that the next step needs, or rounds it", 0.0)
def _exact_split(run: _Legs) -> float:
    """Two runs, with a state packed and unpacked between them, are bit-identical to one run."""
    engine, steps = run.tried, len(run.etas)
    whole = run.advanced(engine, engine.load(run.start), 0, steps)
    state = run.advanced(engine, engine.load(run.start), 0, 2 * steps // 5)
    arrays = {name: np.array(array) for name, array in packed(state).items()}
    end = run.advanced(engine, unpacked(arrays, engine.load(run.start)), 2 * steps // 5, steps)
    counted = [abs(float(getattr(end, name) - getattr(whole, name))) for name in ("steps", "updates")]
    return max(float(np.abs(run.seen(engine.dump(end)) - run.seen(engine.dump(whole))).max()), *counted)


@law(SAMPLER, "`draw` or `block_size`, or numbers that count from 1, or of other data", 0.0)
def _draws(about: Any) -> Any:
    """One row of integers for each step, all of them existing terms."""
    sampler, _, count, seed = about
    found = sampler.draw(np.random.default_rng(seed), 0, sampler.block_size)
    if found.ndim != 2 or len(found) != sampler.block_size or not np.issubdtype(found.dtype, np.integer):
        return f"it drew {found.dtype} of shape {found.shape} for {sampler.block_size} steps"
    known = count is not None and getattr(sampler, "_table", None) is None
    if known and not 0 <= found.min() <= found.max() < count:
        return f"it drew {found.min()} to {found.max()}, and there are {count}"
    return 0.0


@law(SAMPLER, "another generator, or a memory of earlier draws: resumed runs differ", 0.0)
def _repeatability(about: Any) -> float:
    """A block depends on its generator and number alone."""
    sampler, other, _, seed = about
    size = sampler.block_size
    # A copy that uses another generator first.
    other.draw(np.random.default_rng(seed + 1), 0, size)
    found = [each.draw(np.random.default_rng(seed), size, size) for each in (sampler, sampler, other)]
    return float(not all(np.array_equal(found[0], again) for again in found[1:]))


@law(
    STEP_SIZE,
    "division by the number of the step, which counts from 0; negative values; or counted calls",
    0.0,
)
def _step_sizes(about: Any) -> Any:
    """One finite number of at least 0 for each step, which depends on the number of the step alone."""
    rule, steps = about
    t = np.union1d(np.arange(min(50, steps)), np.geomspace(1, steps, 50).astype(int) - 1)
    etas = np.asarray(rule(t))
    if etas.shape != t.shape:
        return f"it gave shape {etas.shape} for {len(t)} steps"
    bad = np.flatnonzero(~(np.isfinite(etas) & (etas >= 0.0)))
    if len(bad):
        return f"it gave {etas[bad[0]]} at step {t[bad[0]]}"
    return float(np.abs(np.concatenate([rule(t[:20]), rule(t[20:])]) - etas).max())
