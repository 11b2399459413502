"""The choice between the engines."""

from __future__ import annotations

from rmopt.core.cost import FiniteSum
from rmopt.core.errors import InvalidInputError, MissingCapabilityError
from rmopt.core.problem import Problem
from rmopt.core.retraction import Retraction
from rmopt.engines.base import Engine
from rmopt.engines.compiled import CompiledEngine, why_not_compiled
from rmopt.engines.reference import ReferenceEngine

ENGINES = ("auto", "compiled", "reference")


def choose_engine(
    problem: Problem, retraction: Retraction | None = None, engine: str = "auto", batch_size: int = 1
) -> Engine:
    """Return the engine for a problem.

    Parameters
    ----------
    problem : Problem
        Its cost must be a `FiniteSum`.
    retraction : Retraction, optional
        The manifold's default retraction unless given.
    engine : {"auto", "compiled", "reference"}
        "auto" takes the compiled engine where there is one.
    batch_size : int
        Terms per step.

    Raises
    ------
    MissingCapabilityError
        When "compiled" is asked for and a part has no compiled twin; the message names the part.
    """
    if engine not in ENGINES:
        raise InvalidInputError(f"engine = {engine!r} is unknown; choose one of {', '.join(ENGINES)}.")
    cost = problem.cost
    if not isinstance(cost, FiniteSum):
        raise MissingCapabilityError(
            f"a stochastic solver needs a cost that is a sum of terms (FiniteSum), and "
            f"{type(cost).__name__} is not; use rmopt.interop.PymanoptSolver for batch costs."
        )
    retraction = problem.manifold.default_retraction if retraction is None else retraction
    reason = why_not_compiled(problem.manifold, cost, retraction, batch_size)
    if engine == "compiled" and reason is not None:
        raise MissingCapabilityError(f"engine = 'compiled' is not available: {reason}; use engine = 'auto'.")
    if engine != "reference" and reason is None:
        return CompiledEngine(problem.manifold, cost, retraction)  # type: ignore[arg-type]
    return ReferenceEngine(problem.manifold, cost, retraction)
