"""The choice of an engine: the first compiled version that supports all parts."""

from dataclasses import fields
from typing import Any, cast

from rmopt.core.arguments import one_of
from rmopt.core.cost import as_sum
from rmopt.core.problem import Problem
from rmopt.core.retraction import Retraction
from rmopt.engines.base import Engine, unlike
from rmopt.engines.bilinear import BatchEngine, BilinearEngine, DirectedEngine, SymmetricBilinearEngine
from rmopt.engines.coordinate import CoordinateDescentEngine, CoordinateReference
from rmopt.engines.log_det import LogDetEngine
from rmopt.engines.reference import Plain, ReferenceEngine, StepRule
from rmopt.errors import MissingCapabilityError
from rmopt.kernels.row_column import EXACT, FIXED
from rmopt.retractions import Additive

ENGINES = ("auto", "compiled", "reference")

# The compiled versions of each reference, tried in this order.
TWINS: dict[type[Engine], list[type[Engine]]] = {
    ReferenceEngine: [BatchEngine, BilinearEngine, SymmetricBilinearEngine, DirectedEngine],
    CoordinateReference: [LogDetEngine],
}


def register(engine: type[Engine]) -> type[Engine]:
    """Register a compiled engine for stochastic steps, also as a decorator.

    Parameters
    ----------
    engine : class
        A dataclass with `supports`, whose fields without defaults are among manifold, cost, retraction, batch_size.
    """
    TWINS[ReferenceEngine].append(engine)
    return engine


def choose_engine(
    problem: Problem,
    retraction: Retraction | None = None,
    engine: str = "auto",
    batch_size: int = 1,
    rule: StepRule | None = None,
) -> Engine:
    """Return the engine for a problem.

    Parameters
    ----------
    problem : Problem
        A cost that is not a `FiniteSum` is its own single term.
    retraction : Retraction, optional
        Defaults to the manifold's.
    engine : {"auto", "compiled", "reference"}
        "auto" takes the compiled engine if there is one.
    batch_size : int
        Terms per step.
    rule : StepRule, optional
        The direction of steps. Defaults to the gradient of their terms.

    Raises
    ------
    MissingCapabilityError
        For "compiled" if a part has no compiled version. The message names the part.
    """
    manifold = problem.manifold
    about = as_sum(problem.cost), manifold.fitting(retraction), batch_size, rule or Plain()
    return cast(Engine, _choice(ReferenceEngine(manifold, *about), engine))


def choose_coordinate_engine(
    problem: Problem, retraction: Retraction | None = None, engine: str = "auto", search: int = EXACT
) -> CoordinateDescentEngine:
    """Return the engine of coordinate descent for a problem.

    Parameters
    ----------
    problem : Problem
        Its manifold must have blocks (`block_of`).
    retraction : Retraction, optional
        Defaults to the straight line if the manifold has a `max_step`, and else to the manifold's default retraction.
    engine : {"auto", "compiled", "reference"}
        "auto" takes the compiled engine if there is one.
    search : int
        `FIXED`, `FRACTION` or `EXACT` of `rmopt.kernels.row_column`.

    Raises
    ------
    MissingCapabilityError
        If a part lacks a method for coordinate descent. The message names it.
    """
    manifold = problem.manifold
    if retraction is None:
        retraction = Additive() if hasattr(manifold, "max_step") else manifold.default_retraction
    retraction = manifold.fitting(retraction)
    if search != FIXED and not hasattr(retraction, "velocity"):
        raise MissingCapabilityError(
            f"{retraction} has no `velocity`, which a line search needs; give a fixed step size or add the method."
        )
    reference = CoordinateReference(manifold, problem.cost, retraction, search)
    return cast(CoordinateDescentEngine, _choice(reference, engine))


def _choice(reference: Any, engine: str) -> Any:
    """Return a reference engine, or the first compiled version that can replace it."""
    if one_of("engine", engine, ENGINES) == "reference":
        return reference
    twin = _compiled(reference)
    if not isinstance(twin, str):
        names = {field.name for field in fields(twin) if field.init} & vars(reference).keys()  # type: ignore[arg-type]
        return twin(**{name: getattr(reference, name) for name in names})
    if engine == "compiled":
        raise MissingCapabilityError(f"engine = 'compiled' is not available: {twin}; use engine = 'auto'.")
    return reference


def _compiled(reference: Any) -> type[Engine] | str:
    """Return the first engine that can replace a reference engine, or the reasons why none can."""
    engines, cost, rule = TWINS[type(reference)], reference.cost, getattr(reference, "rule", Plain())
    parts = {
        "cost": cost, "manifold": reference.manifold, "loss": getattr(cost, "loss", None),
        "retraction": reference.retraction,
    }  # fmt: skip
    if type(rule) is not Plain:
        engines, parts = [one for one in engines if "rule" in one.supports], parts | {"rule": rule}
    for role, part in parts.items():
        kinds = dict.fromkeys(kind for engine in engines for kind in engine.supports.get(role, ()))
        reason = unlike(role, part, kinds) if kinds else None
        if reason is not None:
            return reason
        engines = [one for one in engines if type(part) in one.supports.get(role, (type(part),))]
    reasons = [one.refuses(reference) for one in engines]
    return next(
        (one for one, reason in zip(engines, reasons, strict=True) if reason is None), str(reasons[0])
    )
