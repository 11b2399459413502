"""The laws of compiled engines."""

from __future__ import annotations

from typing import Any

import numpy as np

from rmopt.checks.report import Check, bounded
from rmopt.core.problem import Problem
from rmopt.core.retraction import Retraction
from rmopt.engines import choose_block_engine, choose_engine
from rmopt.kernels.row_column import EXACT, FIXED
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


def check_block_engine(
    problem: Problem, retraction: Retraction, rng: Any = 0, *, steps: int = 100, step_size: float = 0.02
) -> list[Check]:
    """Check that the compiled engine of coordinate descent follows the reference to 1e-10, and splits exactly.

    Steps are of a fixed size, and by exact line search. The latter are compared in legs of 20 steps from the
    reference's points: the zigzag of steepest descent is sensitive to rounding.

    Parameters
    ----------
    problem : Problem
        With blocks, and a compiled twin.
    retraction : Retraction
    rng : seed or Generator
    steps : int
    step_size : float
    """
    rng = np.random.default_rng(rng)
    manifold = problem.manifold
    start = manifold.random_point(rng)
    schedule = rng.integers(manifold.n_blocks, size=(steps, 1))  # type: ignore[attr-defined]
    checks = []
    for name, search, wanted, leg in (
        ("fixed steps", FIXED, step_size, steps),
        ("line search", EXACT, 0.99, 20),
    ):
        reference, compiled = (
            choose_block_engine(problem, retraction, kind, search) for kind in ("reference", "compiled")
        )
        etas, error, point = np.full(steps, wanted), 0.0, start
        for first in range(0, steps, leg):
            part = slice(first, first + leg)
            found = compiled.dump(compiled.advance(compiled.load(point), schedule[part], etas[part]))
            point = reference.dump(reference.advance(reference.load(point), schedule[part], etas[part]))
            error = max(error, float(np.linalg.norm(found - point) / np.linalg.norm(point)))
        cut = 2 * steps // 5
        whole = compiled.dump(compiled.advance(compiled.load(start), schedule, etas))
        state = compiled.advance(compiled.load(start), schedule[:cut], etas[:cut])
        pieces = compiled.dump(compiled.advance(state, schedule[cut:], etas[cut:]))
        moved = float(np.linalg.norm(point - start))
        subject = f"{type(compiled).__name__}: {name} along {retraction} with {problem.cost!r} on {manifold}"
        checks += [
            bounded(
                "compiled engine",
                subject,
                error,
                1e-10,
                f"relative difference to the reference, {steps} steps",
            ),
            bounded(
                "exact split",
                subject,
                float(np.abs(whole - pieces).max()),
                0.0,
                f"{cut} + {steps - cut} steps",
            ),
            Check("movement", subject, moved > 1e-3, moved, 1e-3, "the run leaves its start"),
        ]
    return checks
