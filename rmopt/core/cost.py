"""Costs: what is minimised. A cost knows values and ambient gradients, nothing of the manifold's metric."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from numbers import Real
from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np

from rmopt.core.ambient import Ambient, Sum
from rmopt.core.arguments import number


class Cost(ABC):
    """A real function of a point, with its gradient as an ambient operator. Costs add and scale: ``f + 0.1 * g``.

    Attributes
    ----------
    point_type : type or tuple of types
        The points that it is a function of; `Problem` refuses manifolds of others.
    remedy : str
        What to do with others.

    See Also
    --------
    FiniteSum : a sum of terms, for stochastic solvers.
    rmopt.costs.automatic.autograd_cost : finds the gradient by itself.

    References
    ----------
    Boumal, An Introduction to Optimization on Smooth Manifolds, Cambridge University Press (2023),
    https://doi.org/10.1017/9781009166164, chapter 3.

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

    @abstractmethod
    def gradient(self, point: Any) -> Ambient:
        """Return the Euclidean gradient at a point, as an operator on the ambient space.

        On products it may also be a list, a tuple or `Parts`: one for each part of the point.
        """

    def value_and_gradient(self, point: Any) -> tuple[float, Ambient]:
        """Return cost and Euclidean gradient; a cost that shares work between them overrides this."""
        return self.value(point), self.gradient(point)

    def hessian_along(self, point: Any) -> Callable[[Ambient], Ambient]:
        """Return `hessian` at a point; a cost that prepares something once for all directions overrides this."""
        return partial(self.hessian, point)  # type: ignore[attr-defined]

    def preconditioner_at(self, point: Any) -> Callable[[Any], Any] | None:
        """Return `precondition` at a point, or None where the cost has none."""
        precondition = getattr(self, "precondition", None)
        return None if precondition is None else partial(precondition, point)

    def __add__(self, other: Any) -> Any:
        from rmopt.core.combined import combined

        return combined([(1.0, self), (1.0, other)]) if isinstance(other, Cost) else NotImplemented

    def __radd__(self, other: Any) -> Any:
        # Python's `sum` begins with 0.
        return self if isinstance(other, int) and other == 0 else NotImplemented

    def __mul__(self, weight: float) -> Any:
        from rmopt.core.combined import combined

        if not isinstance(weight, Real):
            return NotImplemented
        return combined([(number("the weight of a cost", weight), self)])

    __rmul__ = __mul__

    def __neg__(self) -> Any:
        return self * -1.0

    def __sub__(self, other: Any) -> Any:
        return self + -other if isinstance(other, Cost) else NotImplemented

    def __truediv__(self, weight: float) -> Any:
        return self * (1.0 / weight) if isinstance(weight, Real) else NotImplemented

    def refuses(self, point_type: type) -> str | None:
        """Return in a sentence why the cost is no function of points of a class, or None."""
        if issubclass(point_type, self.point_type):
            return None
        kinds = self.point_type if isinstance(self.point_type, tuple) else (self.point_type,)
        wanted = " or ".join(kind.__name__ for kind in kinds)
        return f"{self._name} is a cost of {wanted}, and a point is of type {point_type.__name__}; {self.remedy}."

    @property
    def _name(self) -> str:
        return type(self).__name__


class FiniteSum(Cost):
    """A cost that is a sum of terms, for solvers that look at a few terms a step.

    A step's terms are one row of integers: `term_width` integers for each term. An enumerated
    cost has width 1 (the number of the term); a triplet cost has width 3.

    See Also
    --------
    Cost : without terms.
    rmopt.costs.BilinearSum : one of these, with compiled loops.

    References
    ----------
    Bottou, Curtis and Nocedal, Optimization methods for large-scale machine learning, SIAM Review 60 (2018),
    https://doi.org/10.1137/16M1080173.

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
    ...     def gradient(self, x):
    ...         return self.term_gradient(x, np.arange(self.n_terms))
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
        """The least value of each integer of a term, and how many there are from 0 on (None: not known)."""
        return [(0, self.n_terms)] if self.term_width == 1 else [(0, None)] * self.term_width

    @abstractmethod
    def term_gradient(self, point: Any, terms: np.ndarray) -> Ambient:
        """Return the Euclidean gradient of the sum over some terms.

        Parameters
        ----------
        point : object
        terms : int array, shape (batch · term_width,)
        """


class WholeCost(FiniteSum):
    """A cost as a sum of one term, so that solvers of sums take its whole gradient each step.

    Parameters
    ----------
    cost : Cost

    See Also
    --------
    FiniteSum : sums with terms of their own.

    References
    ----------
    Bottou, Curtis and Nocedal, Optimization methods for large-scale machine learning, SIAM Review 60 (2018),
    https://doi.org/10.1137/16M1080173.

    Examples
    --------
    >>> import numpy as np
    >>> import rmopt
    >>> from rmopt.core.cost import WholeCost
    >>> cost = WholeCost(rmopt.autograd_cost(lambda x: (x**2).sum()))
    >>> cost.n_terms, cost.term_gradient(np.ones(2), np.array([0])).tolist()
    (1, [2.0, 2.0])
    """

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
    """Return a cost as a sum of terms: one that is no sum is its one term."""
    return cost if isinstance(cost, FiniteSum) else WholeCost(cost)


class AgentSum(FiniteSum):
    """A sum over agents, each of which holds data of its own: a term is an agent.

    Agents may be in other processes: only those in `here` can be asked. An attribute `n_rows`, how many rows a point
    has, lets `problems.subspace.gossip` and `problems.subspace.agree` begin.

    See Also
    --------
    rmopt.costs.GossipCost : couples the agents.
    problems.subspace.MatrixCompletion : one of these.

    References
    ----------
    Mishra, Kasai, Jawanpuria and Saroop, A Riemannian gossip approach to subspace learning on Grassmann
    manifold, Machine Learning 108 (2019), https://doi.org/10.1007/s10994-018-05775-x.

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

    def agent_value_and_gradient(self, point: Any, agent: int) -> tuple[float, Ambient, np.ndarray]:
        """Return an agent's part, its Euclidean gradient and its curvature; override where they share work."""
        return self.agent_value(point, agent), *self.agent_gradient(point, agent)

    def value(self, point: Any) -> float:
        return float(sum(self.agent_value(point, agent) for agent in self.here))

    def gradient(self, point: Any) -> Ambient:
        return self.term_gradient(point, np.arange(self.n_terms))

    def term_gradient(self, point: Any, terms: np.ndarray) -> Ambient:
        return Sum(*(self.agent_gradient(point, int(agent))[0] for agent in terms))


class BlockCost(Cost):
    """A cost whose gradient comes in blocks, for solvers that move one block a step.

    A cost without this runs under such solvers too, through its whole gradient.

    See Also
    --------
    rmopt.costs.LogDetTriplet : one of these.
    rmopt.solvers.CoordinateDescent : the solver that asks for blocks.

    References
    ----------
    Wright, Coordinate descent algorithms, Mathematical Programming 151 (2015),
    https://doi.org/10.1007/s10107-015-0892-3.

    Examples
    --------
    >>> from rmopt.core import BlockCost
    >>> from rmopt.costs import LogDetTriplet
    >>> X = [[0.0, 0.0], [0.0, 1.0], [2.0, 0.0]]
    >>> cost = LogDetTriplet(X, [[0, 1, 2]])
    >>> isinstance(cost, BlockCost), cost.n_blocks
    (True, 2)
    """

    @property
    @abstractmethod
    def n_blocks(self) -> int:
        """Number of blocks."""

    @abstractmethod
    def block_gradient(self, point: Any, block: int) -> Any:
        """Return the part of the Euclidean gradient in a block, as `HasBlocks.block_of` would."""

    @abstractmethod
    def block_scale(self, point: Any, block: int) -> float:
        """Return how long the gradient in a block would be if its parts did not cancel."""


@runtime_checkable
class HasProximalStep(Protocol):
    """A cost with a part that is not smooth, whose proximal map along a block is known.

    `gradient` is that of the smooth part, and `value` that of both: `rmopt.checks.check_gradient` holds the gradient
    against the values of the smooth part by itself alone.

    See Also
    --------
    BlockCost : the smooth part.

    References
    ----------
    Parikh and Boyd, Proximal algorithms, Foundations and Trends in Optimization 1 (2014),
    https://doi.org/10.1561/2400000003.

    Examples
    --------
    >>> import numpy as np
    >>> from rmopt.core.cost import HasProximalStep
    >>> from rmopt.costs import LogDetTriplet
    >>> isinstance(LogDetTriplet(np.eye(3), [[0, 1, 2]], sparsity=0.1), HasProximalStep)
    True
    """

    def proximal_step(self, point: Any, block: int, step: float) -> Any:
        """Return the point to which the proximal map of step · (the part that is not smooth) takes a block."""


@runtime_checkable
class HasRowGradient(Protocol):
    """A sum of terms at a matrix, a few terms of which have a gradient with a few rows that are not zero.

    See Also
    --------
    FiniteSum : whole gradients of some terms.

    References
    ----------
    Duchi, Hazan and Singer, Adaptive subgradient methods for online learning and stochastic optimization, JMLR
    12 (2011), https://jmlr.org/papers/v12/duchi11a.html.

    Examples
    --------
    >>> import numpy as np
    >>> from rmopt.core.cost import HasRowGradient
    >>> from problems.ranking import LogisticLabels
    >>> isinstance(LogisticLabels(np.eye(3), np.eye(3)), HasRowGradient)
    True
    """

    def row_gradient(self, point: np.ndarray, terms: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return numbers of rows, each once, and what the gradient of the sum over some terms is there."""


@runtime_checkable
class HasHessianAction(Protocol):
    """A cost that knows its second derivative.

    See Also
    --------
    HasHessian : what manifolds have to know.

    References
    ----------
    Boumal, An Introduction to Optimization on Smooth Manifolds, Cambridge University Press (2023),
    https://doi.org/10.1017/9781009166164, chapter 5.

    Examples
    --------
    >>> import rmopt
    >>> from rmopt.core.cost import HasHessianAction
    >>> isinstance(rmopt.autograd_cost(lambda x: (x**2).sum()), HasHessianAction)
    True
    """

    def hessian(self, point: Any, direction: Ambient) -> Ambient:
        """Return the derivative of the Euclidean gradient along an ambient direction, as an operator.

        On products `direction[i]` is that of part i, and a list with the derivative of each part will do.
        """


@runtime_checkable
class HasPreconditioner(Protocol):
    """A cost that knows something near to the inverse of its Riemannian Hessian.

    See Also
    --------
    HasHessianAction : second derivatives themselves.

    References
    ----------
    Boumal and Absil, Low-rank matrix completion via preconditioned optimization on the Grassmann manifold,
    Linear Algebra and its Applications 475 (2015), https://doi.org/10.1016/j.laa.2015.02.027.

    Examples
    --------
    >>> import numpy as np, scipy.sparse as sp
    >>> from rmopt.core.cost import HasPreconditioner
    >>> from problems.subspace import MatrixCompletion
    >>> isinstance(MatrixCompletion(sp.csc_array(np.ones((3, 4)))), HasPreconditioner)
    True
    """

    def precondition(self, point: Any, tangent: Any) -> Any:
        """Return the image of a tangent vector under a symmetric positive definite map of the tangent space."""
