"""The laws of engines, samplers and rules of step sizes."""

from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from rmopt.checks.report import Check, Law, hold, law
from rmopt.core.ambient import Array, dense
from rmopt.core.arguments import instance, integer
from rmopt.core.cost import BlockCost, Cost
from rmopt.core.manifold import HasBlocks, Manifold
from rmopt.core.problem import Problem
from rmopt.core.retraction import Retraction
from rmopt.engines.base import Engine
from rmopt.engines.choose import choose_coordinate_engine, choose_engine
from rmopt.kernels.row_column import EXACT, FIXED
from rmopt.solvers.stochastic.samplers import Sampler, as_sampler
from rmopt.solvers.stochastic.step_sizes import StepSize

ENGINE: list[Law] = []
SAMPLER: list[Law] = []
STEP_SIZE: list[Law] = []


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
    """Check that an engine follows the reference to 1e-10, splits exactly, and is packed and unpacked without loss.

    Where the cost and the manifold have blocks it is the engine of coordinate descent: half of the steps are of a
    fixed size, half by exact line search. The latter are compared in legs of 20 steps from the reference's points:
    the zigzag of steepest descent is sensitive to rounding.

    Parameters
    ----------
    problem : Problem
    retraction : Retraction, optional
        The manifold's default retraction unless given.
    rng : seed or Generator
    steps : int
    step_size : float
    batch_size : int
        Terms per step.
    engine : {"compiled", "reference"} or Engine
        One of the library's, or one of your own for this problem.
    """
    instance("problem", problem, Problem, "a Problem")
    rng = np.random.default_rng(rng)
    manifold, cost = problem.manifold, problem.cost
    start, retraction = manifold.random_point(rng), retraction or manifold.default_retraction
    if isinstance(cost, BlockCost) and isinstance(manifold, HasBlocks):
        schedule = rng.integers(manifold.n_blocks, size=(steps // 2, 1))
        engines: Any = partial(choose_coordinate_engine, problem, retraction)
        ways = [("fixed steps", FIXED, 0.4 * step_size, steps // 2), ("line search", EXACT, 0.99, 20)]
    else:
        schedule = as_sampler(None, cost, batch_size).draw(rng, 0, steps)
        engines = partial(choose_engine, problem, retraction)
        ways = [("steps", batch_size, step_size, steps)]
    checks = []
    for name, how, eta, leg in ways:
        tried = engine if isinstance(engine, Engine) else engines(engine, how)
        run = _Run(
            manifold, engines("reference", how), tried, start, schedule, np.full(len(schedule), eta), leg
        )
        subject = f"{type(tried).__name__}: {name} along {retraction} with {_named(cost)} on {manifold}"
        checks += hold(ENGINE, subject, run)
    return checks


def _named(cost: Cost) -> str:
    return f"{type(cost).__name__}({getattr(cost, 'loss', '')})"


def check_sampler(sampler: Sampler, n_terms: int | None = None, rng: Any = 0) -> list[Check]:
    """Check that a sampler draws terms that exist, the same ones for the same generator, whatever it drew before.

    Parameters
    ----------
    sampler : Sampler
    n_terms : int, optional
        How many terms, blocks or edges there are; the sampler's own `n_terms` unless given.
    rng : seed or Generator
    """
    instance("sampler", sampler, Sampler, "a Sampler")
    count = getattr(sampler, "n_terms", None) if n_terms is None else n_terms
    seed = int(np.random.default_rng(rng).integers(2**32))
    return hold(SAMPLER, type(sampler).__name__, (sampler, deepcopy(sampler), count, seed))


def check_step_size(rule: StepSize, steps: int = 1_000_000) -> list[Check]:
    """Check that a rule gives finite step sizes that are not negative and depend on the number of the step alone.

    Parameters
    ----------
    rule : StepSize
    steps : int
        Those of the longest run.
    """
    instance("rule", rule, StepSize, "a StepSize, for example Constant(0.1)")
    return hold(STEP_SIZE, rule, (rule, integer("steps", steps, 1)))


@dataclass
class _Run:
    """A schedule in legs of some steps, and what the reference and another engine make of it."""

    manifold: Manifold
    reference: Engine
    tried: Engine
    start: Any
    schedule: Array
    etas: Array
    leg: int

    def __post_init__(self) -> None:
        self.whole = self.advanced(self.tried, self.tried.load(self.start), slice(None))

    def advanced(self, engine: Engine, state: Any, part: slice) -> Any:
        return engine.advance(state, self.schedule[part], self.etas[part])

    def seen(self, point: Any) -> Array:
        """Return a point as an array."""
        return dense(self.manifold.embed_point(point))


# Rounding, amplified by the steps.
@law(ENGINE, "a step that differs from gradient, projection and retraction of its terms", 1e-10)
def _compiled_engine(run: _Run) -> float:
    """It follows the reference, relative to the size of the point."""
    error, point = 0.0, run.start
    for first in range(0, len(run.etas), run.leg):
        part = slice(first, first + run.leg)
        found, point = (
            engine.dump(run.advanced(engine, engine.load(point), part))
            for engine in (run.tried, run.reference)
        )
        expected = run.seen(point)
        error = max(error, float(np.linalg.norm(run.seen(found) - expected) / np.linalg.norm(expected)))
    return error


@law(ENGINE, "the state leaves out something that the next step looks at", 0.0)
def _exact_split(run: _Run) -> float:
    """Two runs of 2/5 and 3/5 of the steps give the bits of one run."""
    return _difference(run, lambda state: state)


@law(ENGINE, "`pack` leaves out a part of the state, or rounds it", 0.0)
def _exact_packing(run: _Run) -> float:
    """A state that was packed and unpacked between them gives these bits too."""
    engine = run.tried

    def kept(state: Any) -> Any:
        arrays = {name: np.array(array) for name, array in engine.pack(state).items()}
        return engine.unpack(arrays, engine.load(run.start))

    return _difference(run, kept)


@law(ENGINE, "steps that do nothing, or a step size that is too small to tell", 0.0)
def _movement(run: _Run) -> float:
    """The run leaves its start by more than 1e-3."""
    moved = np.linalg.norm(run.seen(run.tried.dump(run.whole)) - run.seen(run.start))
    return max(0.0, 1e-3 - float(moved))


def _difference(run: _Run, between: Any) -> float:
    """Return how far a run in two parts ends from the whole one: in its point and in what it counts."""
    engine, cut = run.tried, 2 * len(run.etas) // 5
    state = between(run.advanced(engine, engine.load(run.start), slice(cut)))
    end = run.advanced(engine, state, slice(cut, None))
    apart = float(np.abs(run.seen(engine.dump(end)) - run.seen(engine.dump(run.whole))).max())
    counted = [(getattr(end, name), getattr(run.whole, name)) for name in ("steps", "updates")]
    return max(apart, *(abs(float(ours - theirs)) for ours, theirs in counted))


@law(SAMPLER, "`draw` or `block_size`", 0.0)
def _shape(about: Any) -> Any:
    """One row of integers for each step."""
    sampler, _, _, seed = about
    found = sampler.draw(np.random.default_rng(seed), 0, sampler.block_size)
    fits = found.ndim == 2 and len(found) == sampler.block_size and np.issubdtype(found.dtype, np.integer)
    return 0.0 if fits else f"it drew {found.dtype} of shape {found.shape} for {sampler.block_size} steps"


@law(SAMPLER, "numbers that count from 1, or of other data", 0.0)
def _range(about: Any) -> Any:
    """The terms are among those that there are."""
    sampler, _, count, seed = about
    if count is None or getattr(sampler, "_table", None) is not None:
        return None
    found = sampler.draw(np.random.default_rng(seed), 0, sampler.block_size)
    inside = found.min() >= 0 and found.max() < count
    return 0.0 if inside else f"it drew {found.min()} to {found.max()}, and there are {count}"


@law(SAMPLER, "a generator of its own, or a memory of earlier draws: resumed runs differ", 0.0)
def _repeatability(about: Any) -> float:
    """A block depends on its generator and number alone."""
    sampler, other, _, seed = about
    size = sampler.block_size
    # A copy that meets another generator first.
    other.draw(np.random.default_rng(seed + 1), 0, size)
    found = [one.draw(np.random.default_rng(seed), size, size) for one in (sampler, sampler, other)]
    return float(not all(np.array_equal(found[0], again) for again in found[1:]))


@law(STEP_SIZE, "the rule divides by the number of the step, which counts from 0, or falls below 0", 0.0)
def _step_sizes(about: Any) -> Any:
    """One finite number of at least 0 for each step."""
    rule, steps = about
    t = np.union1d(np.arange(min(50, steps)), np.geomspace(1, steps, 50).astype(int) - 1)
    etas = np.asarray(rule(t))
    if etas.shape != t.shape:
        return f"it gave shape {etas.shape} for {len(t)} steps"
    bad = np.flatnonzero(~(np.isfinite(etas) & (etas >= 0.0)))
    return f"it gave {etas[bad[0]]} at step {t[bad[0]]}" if len(bad) else 0.0


@law(STEP_SIZE, "a rule that counts its calls, or looks at the length of what it is asked for", 0.0)
def _step_sizes_of_parts(about: Any) -> float:
    """They depend on the number of the step alone."""
    rule, steps = about
    t = np.arange(min(50, steps))
    return float(np.abs(np.concatenate([rule(t[:20]), rule(t[20:])]) - rule(t)).max())
