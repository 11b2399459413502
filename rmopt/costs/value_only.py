"""Costs known by their values alone."""

from collections.abc import Callable
from typing import Any

from rmopt.core.arguments import callable_of, flag
from rmopt.core.cost import Cost


class ValueCost(Cost):
    """A cost of a function known by its values alone, such as a simulation or a function with jumps.

    `NelderMead` and `ParticleSwarm` minimise it. Other solvers refuse it.

    Parameters
    ----------
    function : callable
        A function of a point that returns a real number.
    many : bool
        Whether it also takes many points, stacked along a first axis, and returns as many numbers.

    See Also
    --------
    rmopt.costs.autograd_cost : for differentiable functions.

    Examples
    --------
    >>> import numpy as np
    >>> from rmopt import Problem
    >>> from rmopt.costs import ValueCost
    >>> from rmopt.manifolds import Sphere
    >>> from rmopt.solvers import NelderMead
    >>> cost = ValueCost(lambda x: np.abs(x - 0.5).max(axis=-1), many=True)
    >>> result = NelderMead().run(Problem(Sphere(4), cost), random_state=0)
    >>> result.converged, result.point.round(4).tolist()
    (True, [0.5, 0.5, 0.5, 0.5])
    """

    def __init__(self, function: Callable[..., Any], *, many: bool = False) -> None:
        self.function = callable_of("function", function)
        if flag("many", many):
            self.values = function

    def value(self, point: Any) -> float:
        return self.function(point)

    @property
    def _name(self) -> str:
        return f"the cost {getattr(self.function, '__name__', 'function')}"
