"""The laws of solvers: where runs end, and that they can be repeated, cut off and gone on with."""

import copy
import tempfile
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from rmopt.checks.laws import Check, Law, hold, law
from rmopt.core.ambient import dense
from rmopt.core.arguments import instance
from rmopt.core.points import arrays_of
from rmopt.core.problem import Problem
from rmopt.core.values import written
from rmopt.solvers.recorder import Recorder
from rmopt.solvers.run import Result, Solver
from rmopt.solvers.save import Checkpoint
from rmopt.solvers.stochastic.scheduled import ScheduledSolver
from rmopt.solvers.stop import MaxSteps

SOLVER: list[Law] = []


def check_solver(solver: Solver, problem: Problem, rng: Any = 0, initial_point: Any = None) -> list[Check]:
    """Check where a solver's runs on a problem end, and that they can be repeated, cut off and gone on with.

    It is run several times to the end of its budget, so take a small one.

    Parameters
    ----------
    solver : Solver
    problem : Problem
    rng : seed or Generator
        For the seed of the runs.
    initial_point : point, optional
        A random point unless given.

    Returns
    -------
    list of Check
        One for each law that applies.

    Raises
    ------
    MissingCapabilityError
        When the solver cannot run on the problem.

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
    # What the solver does not find in the problem is no law that is broken.
    solver.check_problem(problem)
    solver.prepare(problem, seed)
    return hold(SOLVER, subject, _Runs(solver, problem, seed, initial_point))


@dataclass
class _Runs:
    """A solver on a problem; `whole` is one run from start to end, made when first asked for."""

    solver: Solver
    problem: Problem
    seed: int
    start: Any

    def __post_init__(self) -> None:
        self.before, self.fresh = _content(self.solver), copy.deepcopy(self.solver)

    @cached_property
    def whole(self) -> Result:
        return self.run()

    def run(self, seed: int | None = None, start: Any = None, **options: Any) -> Result:
        seed, start = self.seed if seed is None else seed, self.start if start is None else start
        return self.solver.run(self.problem, start, random_state=seed, **options)

    def first(self, start: Any = None) -> Any:
        """Return the point at which a run begins."""
        start = self.start if start is None else start
        state = next(iter(self.solver.iterate(self.problem, start, random_state=self.seed)))
        return self.solver.point(self.solver.prepare(self.problem, self.seed), state)


def _content(thing: Any) -> str:
    """Return a digest of a thing, or where it cannot be pickled what it shows of its attributes."""
    import joblib

    try:
        return str(joblib.hash(thing))
    except Exception:
        # Functions that were made within others, for example.
        return written(sorted(getattr(thing, "__dict__", {"": thing}).items()))


def apart(one: Any, other: Any) -> float:
    """Return the largest difference of the numbers of two points."""
    pairs = zip(arrays_of(one), arrays_of(other), strict=True)
    return max(float(np.abs(left - right).max(initial=0.0)) for left, right in pairs)


def _watching(step: int) -> Recorder:
    """Return a recorder that looks after so many steps: criteria are asked there."""
    return Recorder({"nothing": lambda point: 0.0}, at=[step])


@law(
    SOLVER,
    "a `begin` that makes a start of its own, a step that leaves the manifold, or a cost not finite there",
    1e-10,
)
def _ends(runs: _Runs) -> Any:
    """A run begins at the point that it is given, also at another run's result, and ends at one of the manifold."""
    manifold, end = runs.problem.manifold, runs.whole.point
    if reason := manifold.check_point(end):
        return reason
    given, begun = (dense(manifold.embed_point(point)) for point in (end, runs.first(runs.whole)))
    return float(np.linalg.norm(begun - given) / max(1.0, float(np.linalg.norm(given))))


@law(
    SOLVER,
    "steps in the wrong direction, or too long ones; or `finished` says so too early: `Converged` is a claim",
)
def _descent(runs: _Runs) -> Any:
    """The cost at the end is not above that at the start; where a run converged, it or the gradient has fallen."""
    problem, ends = runs.problem, (runs.first(), runs.whole.point)
    begun, ended = map(problem.value, ends)
    norms = [problem.manifold.norm(point, problem.riemannian_gradient(point)) for point in ends]
    fell = ended < begun or norms[1] < 0.5 * norms[0] or norms[0] < 1e-6 * max(1.0, abs(begun))
    if runs.whole.converged and not fell:
        return f"it is where it began, and the gradient there is {norms[0]:.1e} long"
    return max(0.0, ended - begun) / max(1.0, abs(begun))


@law(SOLVER, "numbers from a generator of its own, or a memory of earlier runs", 0.0)
def _repetition(runs: _Runs) -> float:
    """Equal seeds give equal bits, whatever ran before."""
    seed, start = runs.seed + 1, runs.problem.manifold.random_point(np.random.default_rng(runs.seed))
    again = apart(runs.run().point, runs.whole.point)
    alone = runs.fresh.run(runs.problem, start, random_state=seed).point
    return max(again, apart(runs.run(seed, start).point, alone))


@law(SOLVER, "the state leaves out something that the next step looks at", 0.0)
def _resumption(runs: _Runs) -> Any:
    """A run that is cut off and goes on from its checkpoint gives the bits of one whole run."""
    whole = runs.whole
    if whole.steps < 2:
        return None
    with tempfile.TemporaryDirectory() as folder:
        checkpoint = Checkpoint(Path(folder) / "run.npz", every_seconds=0)
        half = whole.steps // 2
        runs.run(checkpoint=checkpoint, stop=MaxSteps(half), recorder=_watching(half))
        parted = runs.run(checkpoint=checkpoint)
    if parted.steps != whole.steps:
        return f"it ended after {parted.steps} steps and not after {whole.steps}"
    return apart(parted.point, whole.point)


@law(SOLVER, "a run changes the solver, which other runs share; what changes belongs into the state", 0.0)
def _solver_purity(runs: _Runs) -> Any:
    """A run changes neither the solver nor the initial point, nor a step the state before it."""
    start = runs.first()
    kept = [array.copy() for array in arrays_of(start)]
    runs.run(start=start)
    states = runs.solver.iterate(runs.problem, start, random_state=runs.seed)
    state = next(states)
    begun = _content(state)
    next(states, None)
    # An engine may use its state up.
    if _content(state) != begun and not isinstance(runs.solver, ScheduledSolver):
        return "`advance` changed the state that it was given; it returns a new one"
    if _content(runs.solver) != runs.before:
        return "the solver is another one after it"
    return apart(kept, start)


@law(SOLVER, "a `run` of its own that does not ask the criterion", 0.0)
def _criteria(runs: _Runs) -> Any:
    """A criterion ends a run, and the result says so."""
    if runs.whole.steps < 2:
        return None
    found = runs.run(stop=lambda rows: "enough", recorder=_watching(1))
    ends = found.stopped_by == "enough" and found.steps < runs.whole.steps
    return 0.0 if ends else f"it was stopped by {found.stopped_by!r} after {found.steps} steps"


@law(SOLVER, "`observe` tells of another point, or of another cost", 1e-6)
def _observed(runs: _Runs) -> float | None:
    """A cost or gradient_norm that `observe` tells is that of the problem at the point, relative to its size."""
    problem, half = runs.problem, runs.run(stop=MaxSteps(max(1, runs.whole.steps // 2)))
    errors = []
    for row, point in zip(half.history[:1] + half.history[-1:], (runs.first(), half.point), strict=False):
        seen = [("cost", problem.value(point))]
        if not problem.constraints:
            # With some it is the gradient of a Lagrangian.
            seen.append(("gradient_norm", problem.manifold.norm(point, problem.riemannian_gradient(point))))
        errors += [abs(row[name] - size) / max(1.0, abs(size)) for name, size in seen if name in row]
    return float(np.max(errors)) if errors else None
