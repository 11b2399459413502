"""Costs that are known by their values alone."""

from collections.abc import Callable
from typing import Any

from rmopt.core.arguments import callable_of, flag
from rmopt.core.cost import Cost


class ValueCost(Cost):
    """A cost of a function of which nothing but values is known: of a simulation, or with jumps.

    `NelderMead` and `ParticleSwarm` minimise it; other solvers refuse it.

    Parameters
    ----------
    function : callable
        Of a point; it returns a real number.
    many : bool
        Whether it takes many points too, as one array with an axis more in front, and returns as many numbers.

    See Also
    --------
    rmopt.costs.autograd_cost : for functions that can be differentiated.

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
