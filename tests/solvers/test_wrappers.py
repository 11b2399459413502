"""Costs made of costs: what they can do is what their parts can."""

import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
from descent_parts import KINDS, Counted, Fit, S
from tabled import each_row
from test_certificates_of_strangers import Bounded

from rmopt import MissingCapabilityError, Problem
from rmopt.checks import check_gradient, check_hessian
from rmopt.costs import ConstrainedProblem, EmbeddedCost, OnFactors, Trace
from rmopt.costs.constraints import AugmentedCost
from rmopt.interop import PymanoptSolver
from rmopt.manifolds import PSDFactors, PSDFixedRank


class Straight(Bounded):
    """A convex cost without curvature."""

    curvature = EmbeddedCost.curvature


class Late(Counted):
    """A cost whose second derivatives turn out to be missing when they are asked for."""

    def hessian(self, point: Any, direction: Any) -> Any:
        raise MissingCapabilityError("the cost has none.")


def augmented(cost: Any) -> AugmentedCost:
    problem = ConstrainedProblem(PSDFixedRank(6, 2), cost, equalities=[Fit(S)])
    return AugmentedCost(problem, [np.zeros(1)], 1e-3)


# A cost made of a part, and whether it bends where the part does.
WRAPPERS: dict[str, tuple[Callable[[Any], Any], bool]] = {
    "factors": (OnFactors, True),
    "a multiple": (lambda part: 2.0 * part, True),
    "a sum with another": (lambda part: Fit(S) + part, True),
    "factors of a sum": (lambda part: OnFactors(part + Fit(S)), True),
    "constrained": (augmented, False),
}
PARTS: dict[str, Callable[[], Any]] = {
    "whole": lambda: Fit(S), "without": lambda: Counted(Fit(S)), "late": lambda: Late(Fit(S)),
    "convex": lambda: Bounded() + Trace(1e-3), "straight": lambda: Straight() + Trace(1e-3),
}  # fmt: skip


@each_row("wrapper, part", [(wrapper, part) for wrapper in WRAPPERS for part in PARTS])
def test_capabilities_are_those_of_the_part(wrapper: str, part: str) -> None:
    wrap, bends = WRAPPERS[wrapper]
    convex = part in ("convex", "straight")
    if convex and wrapper != "factors":
        return
    cost = wrap(PARTS[part]())
    kind = PSDFactors if "factors" in wrapper else PSDFixedRank
    problem = Problem(kind(8, 3) if convex else kind(6, 2), cost)
    has = hasattr(cost, "hessian")
    assert has == (bends and part != "without")
    assert hasattr(pickle.loads(pickle.dumps(cost)), "hessian") == has
    assert check_gradient(problem)
    try:
        assert all(check_hessian(problem))
        found = True
    except MissingCapabilityError:
        found = False
    assert found == (bends and part in ("whole", "convex"))
    for solver in ("trust regions", "cubics", "hybrid"):
        assert KINDS[solver]().run(problem, random_state=0).converged
    try:
        assert PymanoptSolver("TrustRegions", max_iterations=50).run(problem, random_state=0)
        assert found
    except MissingCapabilityError:
        assert not found
