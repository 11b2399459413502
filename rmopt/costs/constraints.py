"""Problems with kinks or constraints in addition to a cost, and the augmented Lagrangian."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rmopt.core.ambient import Ambient, Array
from rmopt.core.arguments import instance, sequence
from rmopt.core.cost import Cost, total
from rmopt.core.problem import Problem, ambient_at
from rmopt.core.product import Parts
from rmopt.costs.proximable import Box, Envelope, Proximable, inner_at
from rmopt.costs.residuals import ResidualSum

__all__ = ["AugmentedCost", "CompositeProblem", "ConstrainedProblem", "NonsmoothProblem"]

ZERO, NOT_POSITIVE = Box(0.0, 0.0), Box(upper=0.0)

MADE_BY = "a cost: rmopt.autograd_cost(function) of one number, rmopt.autograd_residuals(function) of several"


class CompositeProblem(Problem):
    """Minimise a cost f and terms h(c(x)) with a `Proximable` h, which is 0 or infinity for constraints."""

    beyond = "takes no constraints; use AugmentedLagrangian, with a full-gradient solver as `inner`"
    equalities: Sequence[Cost]
    inequalities: Sequence[Cost]

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("equalities", "inequalities"):
            costs = tuple(sequence(name, getattr(self, name)))
            for i, cost in enumerate(costs):
                Problem(self.manifold, instance(f"{name}[{i}]", cost, Cost, MADE_BY))
            object.__setattr__(self, name, costs)

    @property
    def constraints(self) -> tuple[Any, ...]:
        """The equalities and the inequalities."""
        return self.equalities, self.inequalities

    @property
    def terms(self) -> list[tuple[Proximable, Cost | None]]:
        """All h with their c: equalities, inequalities and others."""
        equal = [(ZERO, one) for one in self.equalities]
        return [*equal, *((NOT_POSITIVE, one) for one in self.inequalities)]


@dataclass(frozen=True)
class ConstrainedProblem(CompositeProblem):
    """Minimise `cost` on `manifold`, subject to h(x) = 0 and g(x) ≤ 0.

    A constraint is a cost with the value h or g, or a `ResidualSum`, as from `autograd_residuals`, with one
    constraint for each residual. The function contains sign and weight.

    Attributes
    ----------
    manifold : Manifold
    cost : Cost
    equalities, inequalities : sequence of Cost
        Costs that must be 0, and costs that must not be positive.

    Raises
    ------
    InvalidInputError
        As in `Problem`, for the cost and for each constraint.

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


@dataclass(frozen=True)
class NonsmoothProblem(CompositeProblem):
    """Minimise f(x) + h(x) or f(x) + h(c(x)) on a manifold, for a smooth f and an h with kinks or bounds.

    `ProximalGradient` takes h(x) with a finite h, and ends with exact zeros. `AugmentedLagrangian` takes all of these
    problems, and every solver takes ``Problem(manifold, cost + h.smoothed(eps, of))``.

    Attributes
    ----------
    manifold : Manifold
    cost : Cost or None
        f, with None for 0.
    h : Proximable
    of : ResidualSum, optional
        c, for example from `autograd_residuals`. Defaults to the point as an array.
    equalities, inequalities : sequence of Cost, optional
        Further constraints, as in `ConstrainedProblem`.

    Raises
    ------
    InvalidInputError
        As in `Problem`, for the cost and for each constraint.

    Examples
    --------
    >>> import numpy as np
    >>> import rmopt
    >>> from rmopt.costs import L1, NonsmoothProblem
    >>> from rmopt.manifolds import Sphere
    >>> from rmopt.solvers import ProximalGradient
    >>> A = np.array([[2.0, 1.0, 0.1], [1.0, 2.0, 0.1], [0.1, 0.1, 1.0]])
    >>> variance = rmopt.autograd_cost(lambda x: -x @ A @ x)
    >>> problem = NonsmoothProblem(Sphere(3), variance, L1(0.5))
    >>> result = ProximalGradient().run(problem, np.ones(3) / 3**0.5)
    >>> result.converged, result.point.round(4)
    (True, array([0.7071, 0.7071, 0.    ]))
    """

    beyond = (
        "ignores kinks; take ProximalGradient, AugmentedLagrangian, or cost + h.smoothed(eps) as the cost"
    )
    cost: Any
    h: Proximable
    of: ResidualSum | None = None
    equalities: Sequence[Cost] = ()
    inequalities: Sequence[Cost] = ()

    def __post_init__(self) -> None:
        if self.cost is None:
            object.__setattr__(self, "cost", Nothing())
        super().__post_init__()
        made = "one of rmopt.costs, such as L1(0.3), or of your own subclass of rmopt.costs.Proximable"
        instance("h", self.h, Proximable, made)
        Problem(self.manifold, self.h.smoothed(1.0, self.of))

    @property
    def constraints(self) -> tuple[Any, ...]:
        """The equalities, the inequalities and the residuals."""
        return self.equalities, self.inequalities, () if self.of is None else (self.of,)

    @property
    def terms(self) -> list[tuple[Proximable, Cost | None]]:
        """All h with their c."""
        return [*super().terms, (self.h, self.of)]

    def value(self, point: Any) -> float:
        """Return f + h(c) at a point, or f alone if h represents a constraint."""
        value = super().value(point)
        return value + self.h.value(inner_at(self.of, point)) if self.h.is_finite else value


class Nothing(Cost):
    """A cost of 0."""

    def value(self, point: Any) -> float:
        return 0.0

    def gradient(self, point: Any) -> Ambient:
        return (point.as_ambient() if hasattr(point, "as_ambient") else point) * 0.0


class AugmentedCost(Cost):
    """The augmented Lagrangian: f, and for each term h(c) the least h(p) + ρ/2 ‖c + λ/ρ − p‖² over all p.

    For equalities that is ρ/2 ‖c + λ/ρ‖², and for inequalities ρ/2 ‖max(0, c + λ/ρ)‖². For the right λ its minima are
    those of the problem.

    Parameters
    ----------
    problem : CompositeProblem
    multipliers : sequence of array
        The λ of each term.
    penalty : float
        ρ.

    References
    ----------
    Liu and Boumal, Simple algorithms for optimization on Riemannian manifolds with constraints, Applied
    Mathematics & Optimization 82 (2020), https://doi.org/10.1007/s00245-019-09564-3.

    Deng and Peng, A manifold inexact augmented Lagrangian method for nonsmooth optimization on Riemannian
    submanifolds in Euclidean space, IMA Journal of Numerical Analysis 43 (2023),
    https://doi.org/10.1093/imanum/drac018.
    """

    def __init__(self, problem: CompositeProblem, multipliers: Sequence[Array], penalty: float) -> None:
        self.problem, self.multipliers, self.penalty = problem, multipliers, penalty
        self.envelopes = [
            Envelope(h, of, penalty, own) for (h, of), own in zip(problem.terms, multipliers, strict=True)
        ]

    def refuses(self, point_type: type) -> str | None:
        return self.problem.cost.refuses(point_type)

    def parts(self, point: Any) -> list[tuple[Array, Array, Array]]:
        """Return c, p and the force on c of each term: the force is the next multiplier."""
        return [one.parts(point) for one in self.envelopes]

    def value(self, point: Any) -> float:
        return self.problem.real(self.problem.cost.value(point)) + self._paid(self.parts(point))

    def value_and_gradient(self, point: Any) -> tuple[float, Ambient]:
        """Return cost and gradient with one evaluation of the terms."""
        value, gradient = self.problem.cost.value_and_gradient(point)
        parts = self.parts(point)
        gradient = self.pulled(point, [force for *_, force in parts], gradient)
        return self.problem.real(value) + self._paid(parts), gradient

    def _paid(self, parts: list[tuple[Array, Array, Array]]) -> float:
        return sum(one.paid(*part) for one, part in zip(self.envelopes, parts, strict=True))

    def pulled(self, point: Any, forces: Sequence[Array], gradient: Any) -> Any:
        """Return an ambient gradient and those of all ⟨force, c⟩."""
        parts = [(1.0, gradient)]
        for one, force in zip(self.envelopes, forces, strict=True):
            weight, pull = one.pull(point, force)
            if not isinstance(point, Parts) and one.of is not None:
                # Another shape would be broadcast to that of the cost's.
                pull = ambient_at(self.problem.manifold, point, pull, one.of)
            parts.append((weight, pull))
        return total(parts)
