"""Constraints as costs: problems that have them, and the augmented Lagrangian that stands for both."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rmopt.core.ambient import Ambient, Array
from rmopt.core.arguments import instance, sequence
from rmopt.core.cost import Cost, total
from rmopt.core.problem import Problem, ambient_at
from rmopt.core.product import Parts
from rmopt.costs.residuals import ResidualSum, residuals_at
from rmopt.errors import InvalidInputError

__all__ = ["AugmentedCost", "ConstrainedProblem"]

MADE_BY = "a cost: rmopt.autograd_cost(function) of one number, rmopt.autograd_residuals(function) of several"


@dataclass(frozen=True)
class ConstrainedProblem(Problem):
    """Minimise `cost` on `manifold`, subject to h(x) = 0 and g(x) ≤ 0.

    A constraint is a cost whose value is h or g; or a `ResidualSum`, as `autograd_residuals` makes one of a function,
    whose residuals are as many constraints: sign and weight stand in the function.

    Attributes
    ----------
    manifold : Manifold
    cost : Cost
    equalities, inequalities : sequence of Cost
        What must be 0, and what must not be positive.

    Raises
    ------
    InvalidInputError
        As in `Problem`, for the cost and for each constraint; and where there is none.

    Examples
    --------
    >>> import numpy as np
    >>> import rmopt
    >>> from rmopt.costs import ConstrainedProblem
    >>> from rmopt.manifolds import Sphere
    >>> from rmopt.solvers import AugmentedLagrangian
    >>> energy = rmopt.autograd_cost(lambda x: 0.5 * (np.arange(1.0, 4.0) * x**2).sum())
    >>> first = rmopt.autograd_cost(lambda x: x[0])
    >>> problem = ConstrainedProblem(Sphere(3), energy, equalities=[first])
    >>> result = AugmentedLagrangian().run(problem, random_state=0)
    >>> abs(result.point).round(4)
    array([0., 1., 0.])
    """

    equalities: Sequence[Cost] = ()
    inequalities: Sequence[Cost] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("equalities", "inequalities"):
            costs = enumerate(sequence(name, getattr(self, name)))
            object.__setattr__(
                self, name, tuple(instance(f"{name}[{i}]", cost, Cost, MADE_BY) for i, cost in costs)
            )
        if not (self.equalities or self.inequalities):
            raise InvalidInputError("a ConstrainedProblem has one or more constraints; take Problem.")
        for constraint in (*self.equalities, *self.inequalities):
            Problem(self.manifold, constraint)

    @property
    def constraints(self) -> tuple[Any, ...]:
        """The equalities and the inequalities."""
        return self.equalities, self.inequalities

    def violations(self, point: Any) -> tuple[Array, Array]:
        """Return all h and all g at a point."""
        h, g = (
            np.concatenate([np.zeros(0), *(self._values(one, point) for one in constraints)])
            for constraints in (self.equalities, self.inequalities)
        )
        return h, g

    def _values(self, constraint: Cost, point: Any) -> Array:
        if isinstance(constraint, ResidualSum):
            return residuals_at(constraint, point)
        return np.array([Problem(self.manifold, constraint).value(point)])


class AugmentedCost(Cost):
    """The augmented Lagrangian f + ρ/2 ‖h + λ/ρ‖² + ρ/2 ‖max(0, g + μ/ρ)‖².

    For the right λ and μ its minima satisfy the constraints.

    Parameters
    ----------
    problem : ConstrainedProblem
    multipliers : (array, array)
        λ and μ.
    penalty : float
        ρ.

    References
    ----------
    Liu and Boumal, Simple algorithms for optimization on Riemannian manifolds with constraints, Applied
    Mathematics & Optimization 82 (2020), https://doi.org/10.1007/s00245-019-09564-3.
    """

    def __init__(self, problem: ConstrainedProblem, multipliers: tuple[Array, Array], penalty: float) -> None:
        self.problem, self.multipliers, self.penalty = problem, multipliers, penalty

    def refuses(self, point_type: type) -> str | None:
        return self.problem.cost.refuses(point_type)

    def forces(self, point: Any) -> tuple[Array, Array]:
        """Return λ + ρ h and max(0, μ + ρ g): the weights of the constraints' gradients."""
        (h, g), (equal, unequal) = self.problem.violations(point), self.multipliers
        if (len(h), len(g)) != (len(equal), len(unequal)):
            raise InvalidInputError(
                f"there are {len(h)} equalities and {len(g)} inequalities at a point, and {len(equal)} and "
                f"{len(unequal)} at another; return as many residuals everywhere."
            )
        return equal + self.penalty * h, np.maximum(0.0, unequal + self.penalty * g)

    def value(self, point: Any) -> float:
        return self.problem.value(point) + self._paid(*self.forces(point))

    def gradient(self, point: Any) -> Ambient:
        return self._with_forces(self.problem.cost.gradient(point), point, *self.forces(point))

    def value_and_gradient(self, point: Any) -> tuple[float, Ambient]:
        """Return both; the constraints are evaluated once."""
        value, gradient = self.problem.cost.value_and_gradient(point)
        forces = self.forces(point)
        return self.problem.real(value) + self._paid(*forces), self._with_forces(gradient, point, *forces)

    def _paid(self, equal: Array, unequal: Array) -> float:
        return 0.5 * float(equal @ equal + unequal @ unequal) / self.penalty

    def _with_forces(self, gradient: Any, point: Any, equal: Array, unequal: Array) -> Any:
        parts = [(1.0, gradient)]
        for constraints, weights in ((self.problem.equalities, equal), (self.problem.inequalities, unequal)):
            rest = weights
            for constraint in constraints:
                if isinstance(constraint, ResidualSum):
                    own, rest = np.split(rest, [len(residuals_at(constraint, point))])
                    weight, gradient = 1.0, constraint.linearised(point)[1](own)
                else:
                    weight, gradient, rest = float(rest[0]), constraint.gradient(point), rest[1:]
                if not isinstance(point, Parts):
                    # One of another shape would be stretched to that of the cost's.
                    gradient = ambient_at(self.problem.manifold, point, gradient, constraint)
                parts.append((weight, gradient))
        return total(parts)
