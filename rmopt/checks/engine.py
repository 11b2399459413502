"""The laws of engines, samplers and rules of step sizes."""

from copy import deepcopy
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from rmopt.checks.laws import Check, Law, hold, law
from rmopt.core.ambient import Array, dense
from rmopt.core.arguments import instance, integer
from rmopt.core.cost import BlockCost
from rmopt.core.manifold import HasBlocks
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
    checks, named = [], f"{type(cost).__name__}({getattr(cost, 'loss', '')})"
    for name, how, eta, leg in ways:
        tried = engine if isinstance(engine, Engine) else engines(engine, how)
        run = _Run(
            problem, engines("reference", how), tried, start, schedule, np.full(len(schedule), eta), leg
        )
        subject = f"{type(tried).__name__}: {name} along {retraction} with {named} on {manifold}"
        checks += hold(ENGINE, subject, run)
    return checks


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
    return hold(STEP_SIZE, str(rule), (rule, integer("steps", steps, 1)))


class _Run(NamedTuple):
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
@law(
    ENGINE,
    "a step that differs from gradient, projection and retraction of its terms, or does nothing",
    1e-10,
)
def _compiled_engine(run: _Run) -> Any:
    """It follows the reference, relative to the size of the point, by more than 1e-3 from its start."""
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


@law(ENGINE, "the state or its `pack` leaves out something that the next step looks at, or rounds it", 0.0)
def _exact_split(run: _Run) -> float:
    """Two runs, with a state that is packed and unpacked between them, give the bits of one run."""
    engine, steps = run.tried, len(run.etas)
    whole = run.advanced(engine, engine.load(run.start), 0, steps)
    state = run.advanced(engine, engine.load(run.start), 0, 2 * steps // 5)
    arrays = {name: np.array(array) for name, array in engine.pack(state).items()}
    end = run.advanced(engine, engine.unpack(arrays, engine.load(run.start)), 2 * steps // 5, steps)
    counted = [abs(float(getattr(end, name) - getattr(whole, name))) for name in ("steps", "updates")]
    return max(float(np.abs(run.seen(engine.dump(end)) - run.seen(engine.dump(whole))).max()), *counted)


@law(SAMPLER, "`draw` or `block_size`, or numbers that count from 1, or of other data", 0.0)
def _draws(about: Any) -> Any:
    """One row of integers for each step, which are among the terms that there are."""
    sampler, _, count, seed = about
    found = sampler.draw(np.random.default_rng(seed), 0, sampler.block_size)
    if found.ndim != 2 or len(found) != sampler.block_size or not np.issubdtype(found.dtype, np.integer):
        return f"it drew {found.dtype} of shape {found.shape} for {sampler.block_size} steps"
    known = count is not None and getattr(sampler, "_table", None) is None
    if known and not 0 <= found.min() <= found.max() < count:
        return f"it drew {found.min()} to {found.max()}, and there are {count}"
    return 0.0


@law(SAMPLER, "a generator of its own, or a memory of earlier draws: resumed runs differ", 0.0)
def _repeatability(about: Any) -> float:
    """A block depends on its generator and number alone."""
    sampler, other, _, seed = about
    size = sampler.block_size
    # A copy that meets another generator first.
    other.draw(np.random.default_rng(seed + 1), 0, size)
    found = [each.draw(np.random.default_rng(seed), size, size) for each in (sampler, sampler, other)]
    return float(not all(np.array_equal(found[0], again) for again in found[1:]))


@law(
    STEP_SIZE,
    "the rule divides by the number of the step, which counts from 0, falls below 0, or counts calls",
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
