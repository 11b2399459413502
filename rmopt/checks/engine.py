"""The laws of compiled engines."""

from __future__ import annotations

from typing import Any

import numpy as np

from rmopt.checks.report import Check, bounded
from rmopt.core.problem import Problem
from rmopt.core.retraction import Retraction
from rmopt.engines import choose_engine
from rmopt.solvers.samplers import as_sampler


def check_engine(
    problem: Problem,
    retraction: Retraction | None = None,
    rng: Any = 0,
    *,
    steps: int = 200,
    step_size: float = 0.05,
    batch_size: int = 1,
) -> list[Check]:
    """Check that the compiled engine follows the reference to 1e-10, and splits exactly.

    Parameters
    ----------
    problem : Problem
        With a compiled twin.
    retraction : Retraction, optional
        The manifold's default retraction unless given.
    rng : seed or Generator
    steps : int
    step_size : float
    batch_size : int
        Terms per step.
    """
    rng = np.random.default_rng(rng)
    manifold, cost = problem.manifold, problem.cost
    start = manifold.random_point(rng)
    schedule = as_sampler(None, cost, batch_size).draw(rng, 0, steps)
    etas = np.full(steps, step_size)
    points, split = {}, None
    for name in ("reference", "compiled"):
        engine = choose_engine(problem, retraction, name, batch_size)
        points[name] = manifold.embed_point(engine.dump(engine.advance(engine.load(start), schedule, etas)))
    cut = 2 * steps // 5
    state = engine.advance(engine.load(start), schedule[:cut], etas[:cut])
    split = manifold.embed_point(engine.dump(engine.advance(state, schedule[cut:], etas[cut:])))
    identity = np.eye(split.shape[1])
    expected, found, pieces = points["reference"] @ identity, points["compiled"] @ identity, split @ identity
    used = manifold.default_retraction if retraction is None else retraction
    subject = f"{type(engine).__name__}: {used} with {type(cost).__name__}({getattr(cost, 'loss', '')}) on {manifold}"
    error = float(np.linalg.norm(found - expected) / np.linalg.norm(expected))
    moved = float(np.linalg.norm(expected - manifold.embed_point(start) @ identity))
    return [
        bounded(
            "compiled engine", subject, error, 1e-10, f"relative difference to the reference, {steps} steps"
        ),
        bounded(
            "exact split", subject, float(np.abs(found - pieces).max()), 0.0, f"{cut} + {steps - cut} steps"
        ),
        Check("movement", subject, moved > 1e-3, moved, 1e-3, "the run leaves its start"),
    ]
