"""The choice between the engines."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

from rmopt.core.cost import FiniteSum
from rmopt.core.errors import InvalidInputError, MissingCapabilityError
from rmopt.core.manifold import HasBlocks, Manifold
from rmopt.core.problem import Problem
from rmopt.core.retraction import HasVelocity, Retraction
from rmopt.costs import LOSSES, LogDetTriplet
from rmopt.costs.bilinear import Bilinear
from rmopt.engines.base import Engine
from rmopt.engines.batch import BatchEngine
from rmopt.engines.bilinear import BilinearEngine, SymmetricBilinearEngine
from rmopt.engines.blocked import BlockedEngine, suits
from rmopt.engines.coordinate import BlockEngine, CoordinateEngine
from rmopt.engines.log_det import LogDetEngine
from rmopt.engines.reference import ReferenceEngine
from rmopt.kernels.row_column import EXACT, FIXED
from rmopt.manifolds import FixedRankEmbedded, PositiveDefinite, PSDFixedRank
from rmopt.retractions import SecondOrder

ENGINES = ("auto", "compiled", "reference")


@runtime_checkable
class HasCompiledEngine(Protocol):
    """A cost that brings its own compiled engine."""

    def compiled_engine(self, manifold: Manifold, retraction: Retraction, batch_size: int) -> Engine | str:
        """Return the engine, or what keeps the problem from it."""


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
    manifold = problem.manifold
    retraction = manifold.default_retraction if retraction is None else manifold.fitting(retraction)
    if engine != "reference":
        compiled = _compiled_engine(manifold, cost, retraction, batch_size)
        if isinstance(compiled, Engine):
            return compiled
        if engine == "compiled":
            raise MissingCapabilityError(
                f"engine = 'compiled' is not available: {compiled}; use engine = 'auto'."
            )
    return ReferenceEngine(manifold, cost, retraction)


def choose_block_engine(
    problem: Problem, retraction: Retraction, engine: str = "auto", search: int = EXACT
) -> BlockEngine:
    """Return the engine of coordinate descent for a problem.

    Parameters
    ----------
    problem : Problem
        Its manifold must have blocks (`HasBlocks`).
    retraction : Retraction
    engine : {"auto", "compiled", "reference"}
        "auto" takes the compiled engine where there is one.
    search : int
        `FIXED`, `FRACTION` or `EXACT` of `rmopt.kernels.row_column`.

    Raises
    ------
    MissingCapabilityError
        When a part lacks what coordinate descent needs; the message names it.
    """
    if engine not in ENGINES:
        raise InvalidInputError(f"engine = {engine!r} is unknown; choose one of {', '.join(ENGINES)}.")
    manifold, cost = problem.manifold, problem.cost
    if not isinstance(manifold, HasBlocks):
        raise MissingCapabilityError(
            f"CoordinateDescent cannot run on {manifold}: it needs blocks (HasBlocks). "
            "Manifolds with blocks: PositiveDefinite."
        )
    retraction = manifold.fitting(retraction)
    if search != FIXED and not isinstance(retraction, HasVelocity):
        raise MissingCapabilityError(
            f"{retraction} has no `velocity`, which a line search needs; give a fixed step size or add the method."
        )
    if engine != "reference":
        compiled = _compiled_block_engine(manifold, cost, retraction, search)
        if isinstance(compiled, BlockEngine):
            return compiled
        if engine == "compiled":
            raise MissingCapabilityError(
                f"engine = 'compiled' is not available: {compiled}; use engine = 'auto'."
            )
    return CoordinateEngine(manifold, cost, retraction, search)


def _compiled_block_engine(
    manifold: Manifold, cost: Any, retraction: Retraction, search: int
) -> BlockEngine | str:
    """Return the compiled engine of coordinate descent, or what keeps the problem from it."""
    if not isinstance(manifold, PositiveDefinite) or type(cost) is not LogDetTriplet:
        return f"{type(cost).__name__} on {manifold} has no compiled kernel (LogDetTriplet on PositiveDefinite has)"
    if cost.loss.code is None:
        return f"the loss {cost.loss} is not one of the built-in ones ({', '.join(LOSSES)})"
    if retraction.kernel is None:
        return f"the retraction {retraction} has no compiled twin (`kernel` is None)"
    return LogDetEngine(manifold, cost, retraction, search)


def _compiled_engine(manifold: Any, cost: FiniteSum, retraction: Retraction, batch_size: int) -> Engine | str:
    """Return the compiled engine, or what keeps the problem from it."""
    if isinstance(cost, HasCompiledEngine):
        return cost.compiled_engine(manifold, retraction, batch_size)
    if not isinstance(manifold, (FixedRankEmbedded, PSDFixedRank)):
        return f"the manifold {manifold} has no compiled kernel (FixedRankEmbedded and PSDFixedRank have)"
    if not isinstance(cost, Bilinear):
        return f"the cost {type(cost).__name__} has no compiled kernel (BilinearSum and TripletSum have)"
    if retraction.kernel is None:
        return f"the retraction {retraction} has no compiled twin (`kernel` is None)"
    if batch_size > 1:
        return _batch_engine(manifold, cost, retraction, batch_size)
    if isinstance(manifold, PSDFixedRank):
        return SymmetricBilinearEngine(manifold, cost, retraction)
    return (BlockedEngine if suits(cost) else BilinearEngine)(manifold, cost, retraction)


def _batch_engine(
    manifold: FixedRankEmbedded | PSDFixedRank, cost: Bilinear, retraction: Retraction, batch_size: int
) -> Engine | str:
    if not isinstance(manifold, FixedRankEmbedded) or retraction != SecondOrder():
        return f"steps of {batch_size} terms are compiled for SecondOrder on FixedRankEmbedded alone"
    if batch_size > manifold.rank:
        return (
            f"a step looks at {batch_size} terms, and the compiled kernel at no more than k = {manifold.rank}"
        )
    return BatchEngine(manifold, cost, retraction, batch_size)
