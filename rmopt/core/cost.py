"""Costs, the functions to minimise: values and ambient gradients, independent of the manifold's metric."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from numbers import Real
from typing import Any, ClassVar, TypeGuard

import numpy as np

from rmopt.core.ambient import Ambient, Linear, Sum
from rmopt.core.arguments import number, shown
from rmopt.core.product import Parts
from rmopt.errors import InvalidInputError, MissingCapabilityError
from rmopt.namespaces import is_array, to_numpy


class Cost(Linear, ABC):
    """A real function of a point, with its gradient as an ambient operator. Costs add and scale: ``f + 0.1 * g``.

    A cost without a `gradient` or `value_and_gradient` is for `NelderMead` and `ParticleSwarm`.

    A cost may have more methods, which solvers look up by name. ``values(points)`` returns the costs at many points,
    stacked along a first axis. ``hessian(point, direction)`` returns the derivative of the gradient along an ambient
    direction, as an operator. ``precondition(point, tangent)`` is a symmetric positive definite map of tangent
    vectors near to the inverse of the Riemannian Hessian. ``row_gradient(point, terms)``, of a sum at a matrix,
    returns the numbers of some rows, each once, and the gradient of these terms there. ``proximal_step(point, block,
    step)`` returns the point after the proximal map, in a block, of the part that is not smooth; then `value` is of
    both parts and `gradient` of the smooth one.

    Attributes
    ----------
    point_type : type or tuple of types
        The class of its points. `Problem` refuses manifolds of others.
    remedy : str
        What to do about points of other classes.

    Examples
    --------
    >>> import numpy as np
    >>> from rmopt.core import Cost
    >>> class Distance(Cost):
    ...     def value(self, x):
    ...         return 0.5 * float(np.sum((x - 1.0) ** 2))
    ...
    ...     def gradient(self, x):
    ...         return x - 1.0
    >>> Distance().value(np.zeros(4))
    2.0
    >>> (2.0 * Distance() + Distance()).value(np.zeros(4))
    6.0
    """

    point_type: ClassVar[type | tuple[type, ...]] = object
    remedy: ClassVar[str] = "take a manifold of such points"

    @abstractmethod
    def value(self, point: Any) -> float:
        """Return the cost at a point."""

    def gradient(self, point: Any) -> Ambient:
        """Return the Euclidean gradient at a point, as an operator on the ambient space.

        On products it may also be a list, a tuple or `Parts`, with one gradient for each part of the point.
        """
        if not self.has_gradient:
            raise self._without_gradient()
        return self.value_and_gradient(point)[1]

    def _without_gradient(self) -> MissingCapabilityError:
        return MissingCapabilityError(
            f"{self._name} has no `gradient(point)`; add it, make the cost by rmopt.autograd_cost(function), or take "
            "NelderMead or ParticleSwarm."
        )

    @property
    def has_gradient(self) -> bool:
        """Whether there is a `gradient` or a `value_and_gradient`."""
        kind = type(self)
        return (kind.gradient, kind.value_and_gradient) != (Cost.gradient, Cost.value_and_gradient)

    def value_and_gradient(self, point: Any) -> tuple[float, Ambient]:
        """Return cost and Euclidean gradient. Override this, also instead of `gradient`, to share work."""
        return self.value(point), self.gradient(point)

    def hessian_along(self, point: Any) -> Callable[[Ambient], Ambient]:
        """Return `hessian` at a point. Override this to prepare work once for all directions."""
        return partial(self.hessian, point)  # type: ignore[attr-defined]

    def preconditioner_at(self, point: Any) -> Callable[[Any], Any] | None:
        """Return `precondition` at a point, or None if the cost has none."""
        precondition = getattr(self, "precondition", None)
        return None if precondition is None else partial(precondition, point)

    def __add__(self, other: Any) -> Any:
        return combined([(1.0, self), (1.0, other)]) if isinstance(other, Cost) else NotImplemented

    def __radd__(self, other: Any) -> Any:
        # Python's `sum` begins with 0.
        return self if isinstance(other, int) and other == 0 else NotImplemented

    def __mul__(self, weight: float) -> Any:
        if not isinstance(weight, Real):
            return NotImplemented
        return combined([(number("the weight of a cost", weight), self)])

    def refuses(self, point_type: type) -> str | None:
        """Return one sentence on why the cost does not take points of a class, or None."""
        if issubclass(point_type, self.point_type):
            return None
        kinds = self.point_type if isinstance(self.point_type, tuple) else (self.point_type,)
        wanted = " or ".join(kind.__name__ for kind in kinds)
        return f"{self._name} is a cost of {wanted}, and a point is of type {point_type.__name__}; {self.remedy}."

    @property
    def _name(self) -> str:
        return type(self).__name__

    def _real(self, found: Any) -> float:
        """Return a value of the cost as a float, and refuse anything but a real number."""
        if isinstance(found, float | np.floating):
            return float(found)
        number = to_numpy(found) if is_array(found) else np.asarray(found)
        if number.ndim != 0 or number.dtype.kind not in "fiub":
            raise InvalidInputError(
                f"the value of {self._name} is {shown(found)}, not a real number; return a float, such as the real "
                "part (complex points need field='complex'). Several numbers are for rmopt.autograd_residuals."
            )
        return float(number)


class FiniteSum(Cost):
    """A cost that is a sum of terms, for solvers that use a few terms per step.

    A step's terms are one row of integers: `term_width` integers for each term. An enumerated
    cost has width 1 (the number of the term). A triplet cost has width 3.

    Examples
    --------
    >>> import numpy as np
    >>> from rmopt.core import FiniteSum
    >>> class Distances(FiniteSum):
    ...     def __init__(self, points):
    ...         self.points = points
    ...
    ...     @property
    ...     def n_terms(self):
    ...         return len(self.points)
    ...
    ...     def value(self, x):
    ...         return 0.5 * np.sum((x - self.points) ** 2)
    ...
    ...     def term_gradient(self, x, terms):
    ...         return np.sum(x - self.points[terms], axis=0)
    >>> Distances(np.eye(3)).gradient(np.ones(3)).tolist()
    [2.0, 2.0, 2.0]
    """

    term_width: int = 1

    @property
    @abstractmethod
    def n_terms(self) -> int | None:
        """Number of terms, or None when the terms are not enumerated (a stream)."""

    @property
    def term_ranges(self) -> list[tuple[int, int | None]]:
        """The least value of each integer of a term, and their number counted from 0 (None if unknown)."""
        return [(0, self.n_terms)] if self.term_width == 1 else [(0, None)] * self.term_width

    def all_terms(self) -> np.ndarray:
        """Return every term, as `term_gradient` takes them. Costs of wider terms and streams override this."""
        if self.n_terms is None or self.term_width > 1:
            raise MissingCapabilityError(f"{self._name} does not list its terms; write `all_terms`.")
        return np.arange(self.n_terms)

    def gradient(self, point: Any) -> Ambient:
        """Return the Euclidean gradient of the sum over all terms."""
        return self.term_gradient(point, self.all_terms())

    @abstractmethod
    def term_gradient(self, point: Any, terms: np.ndarray) -> Ambient:
        """Return the Euclidean gradient of the sum over some terms.

        Parameters
        ----------
        point : object
        terms : int array, shape (batch · term_width,)
        """


class WholeCost(FiniteSum):
    """A cost as a sum of one term, so that stochastic solvers use its full gradient in each step."""

    n_terms = 1

    def __init__(self, cost: Cost) -> None:
        self.cost = cost

    def value(self, point: Any) -> float:
        return self.cost.value(point)

    def gradient(self, point: Any) -> Ambient:
        return self.cost.gradient(point)

    def refuses(self, point_type: type) -> str | None:
        return self.cost.refuses(point_type)

    @property
    def _name(self) -> str:
        return self.cost._name

    def term_gradient(self, point: Any, terms: np.ndarray) -> Ambient:
        return self.cost.gradient(point)


def as_sum(cost: Cost) -> FiniteSum:
    """Return a cost as a sum of terms: a cost that is not a sum becomes its single term."""
    return cost if isinstance(cost, FiniteSum) else WholeCost(cost)


class AgentSum(FiniteSum):
    """A sum over agents, each of which holds its own data: a term is an agent.

    Agents may be in other processes: only those in `here` can be evaluated. The attribute `n_rows`, the number of
    rows of a point, is needed by `problems.subspace.gossip` and `problems.subspace.agree`.

    Examples
    --------
    >>> import numpy as np
    >>> from rmopt.core import AgentSum
    >>> class Variances(AgentSum):
    ...     def __init__(self, tables):
    ...         self.tables, self.n_rows = tables, len(tables[0])
    ...
    ...     @property
    ...     def n_terms(self):
    ...         return len(self.tables)
    ...
    ...     def agent_value(self, U, agent):
    ...         return -0.5 * np.sum((U.T @ self.tables[agent]) ** 2)
    ...
    ...     def agent_gradient(self, U, agent):
    ...         X = self.tables[agent]
    ...         return -X @ (X.T @ U), np.eye(U.shape[1])
    >>> Variances([np.eye(4)[:, :2], np.eye(4)[:, 2:]]).value(np.eye(4)[:, :3])
    -1.5
    """

    @property
    @abstractmethod
    def n_terms(self) -> int:
        """Number of agents."""

    @property
    def here(self) -> Sequence[int]:
        """The agents whose data are in this process."""
        return range(self.n_terms)

    @abstractmethod
    def agent_value(self, point: Any, agent: int) -> float:
        """Return an agent's part of the cost."""

    @abstractmethod
    def agent_gradient(self, point: Any, agent: int) -> tuple[Ambient, np.ndarray]:
        """Return the Euclidean gradient of an agent's part, and an r × r curvature for preconditioning.

        The curvature is WᵀW for the inner solution W, so that ξ ↦ ξ WᵀW is near to the Hessian.
        """

    def value(self, point: Any) -> float:
        return float(sum(self.agent_value(point, agent) for agent in self.here))

    def term_gradient(self, point: Any, terms: np.ndarray) -> Ambient:
        return Sum(*(self.agent_gradient(point, int(agent))[0] for agent in terms))


class BlockCost(Cost):
    """A cost whose gradient comes in blocks, for solvers that move one block per step.

    Such solvers also take other costs, and compute their full gradients.
    """

    @property
    @abstractmethod
    def n_blocks(self) -> int:
        """Number of blocks."""

    @abstractmethod
    def block_gradient(self, point: Any, block: int) -> Any:
        """Return the part of the Euclidean gradient in a block, as `block_of` of the manifold would."""

    @abstractmethod
    def block_scale(self, point: Any, block: int) -> float:
        """Return the length that the gradient in a block would have if its parts did not cancel."""


class Combined(Cost):
    """A weighted sum of costs of the same points, made by ``+`` and ``*``.

    It has second derivatives if all parts have them, the preconditioner of the first part that has one, and the
    proximal steps of all parts, one after the other.

    Parameters
    ----------
    parts : sequence of (float, Cost)
        Weights and costs.
    """

    def __init__(self, parts: Sequence[tuple[float, Cost]]) -> None:
        self.parts = tuple(parts)
        costs = [cost for _, cost in self.parts]
        shapes = [tuple(cost.shape) for cost in costs if hasattr(cost, "shape")]
        if len(set(shapes)) > 1:
            raise InvalidInputError(
                f"costs of matrices of shapes {shapes} do not add; give all of one shape."
            )
        if shapes:
            self.shape = shapes[0]
        if all(hasattr(cost, "hessian") for cost in costs):
            self.hessian = lambda point, direction: self.hessian_along(point)(direction)
        known = [(weight, cost) for weight, cost in self.parts if hasattr(cost, "precondition")]
        if known and known[0][0] > 0.0:
            weight, first = known[0]
            self.precondition = lambda point, tangent: first.precondition(point, tangent) * (1.0 / weight)
        if any(hasattr(cost, "proximal_step") for cost in costs):
            self.proximal_step = self._proximal_steps

    def __reduce__(self) -> Any:
        # Built again, because the constructor makes some of its methods.
        return type(self), (self.parts,)

    def refuses(self, point_type: type) -> str | None:
        reasons = (cost.refuses(point_type) for _, cost in self.parts)
        return next((reason for reason in reasons if reason is not None), None)

    @property
    def has_gradient(self) -> bool:
        return all(cost.has_gradient for _, cost in self.parts)

    def _without_gradient(self) -> MissingCapabilityError:
        return next(cost for _, cost in self.parts if not cost.has_gradient)._without_gradient()

    def _proximal_steps(self, point: Any, block: int, step: float) -> Any:
        for weight, cost in self.parts:
            if hasattr(cost, "proximal_step"):
                point = cost.proximal_step(point, block, weight * step)
        return point

    def value(self, point: Any) -> float:
        return float(sum(weight * cost.value(point) for weight, cost in self.parts))

    def gradient(self, point: Any) -> Ambient:
        return total([(weight, cost.gradient(point)) for weight, cost in self.parts])

    def value_and_gradient(self, point: Any) -> tuple[float, Ambient]:
        found = [(weight, *cost.value_and_gradient(point)) for weight, cost in self.parts]
        value = float(sum(weight * value for weight, value, _ in found))
        return value, total([(weight, gradient) for weight, _, gradient in found])

    def hessian_along(self, point: Any) -> Callable[[Ambient], Ambient]:
        parts = [(weight, cost.hessian_along(point)) for weight, cost in self.parts]
        return lambda direction: total([(weight, along(direction)) for weight, along in parts])


class CombinedSum(Combined, FiniteSum):
    """A weighted sum: the first finite sum gives the terms, and the other costs are spread evenly over them."""

    def __init__(self, parts: Sequence[tuple[float, Cost]]) -> None:
        super().__init__(parts)
        self.terms, self._sum = next(
            (i, cost) for i, (_, cost) in enumerate(self.parts) if _is_enumerated(cost)
        )
        self.term_width = self._sum.term_width

    @property
    def n_terms(self) -> int | None:
        return self._sum.n_terms

    @property
    def term_ranges(self) -> list[tuple[int, int | None]]:
        return self._sum.term_ranges

    def term_gradient(self, point: Any, terms: np.ndarray) -> Ambient:
        share = len(terms) // self.term_width / self.n_terms  # type: ignore[operator]
        return total(
            [
                (weight, self._sum.term_gradient(point, terms))
                if i == self.terms
                else (weight * share, cost.gradient(point))
                for i, (weight, cost) in enumerate(self.parts)
            ]
        )


def combined(parts: Sequence[tuple[float, Cost]]) -> Combined:
    """Return a weighted sum of costs, as a finite sum if one of them is one."""
    flat: list[tuple[float, Cost]] = []
    for weight, cost in parts:
        flat += [(weight * w, c) for w, c in cost.parts] if isinstance(cost, Combined) else [(weight, cost)]
    return (CombinedSum if any(_is_enumerated(cost) for _, cost in flat) else Combined)(flat)


def _is_enumerated(cost: Cost) -> TypeGuard[FiniteSum]:
    return isinstance(cost, FiniteSum) and cost.n_terms is not None


def total(parts: Sequence[tuple[float, Any]]) -> Any:
    """Return a weighted sum of gradients: arrays, operators, or one for each part of a product."""
    several = [isinstance(gradient, Parts | list | tuple) for _, gradient in parts]
    if any(several):
        if not all(several):
            raise InvalidInputError(
                "one cost gives derivatives by the parts of a point, and another a gradient around it, which do not "
                "add; let both give the same, or make one of them by rmopt.autograd_cost."
            )
        columns = zip(*(gradient for _, gradient in parts), strict=True)
        weights = [weight for weight, _ in parts]
        return Parts([total([*zip(weights, column, strict=True)]) for column in columns])
    scaled = [gradient if weight == 1.0 else gradient * weight for weight, gradient in parts]
    if all(map(is_array, scaled)):
        return sum(scaled[1:], start=scaled[0])
    return Sum(*scaled)
