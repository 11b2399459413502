"""Data distributed over several workers: each has its own cost, and no process needs those of others."""

from collections.abc import Mapping
from typing import Any

from rmopt.core.arguments import instance, integer
from rmopt.core.cost import Combined, FiniteSum
from rmopt.errors import InvalidInputError


class Shards(Combined):
    """The sum of the costs of `Parallel`'s workers, each on its own part of the data.

    In a mean a worker is weighted by its number of terms. Between means each approaches the minimum of its own part.
    With constant steps they meet near the minimum of the sum, the closer the smaller `every` is, and with decreasing
    steps at it. `Adam` and `AdaGrad` take equal steps for flat and steep costs, so with different parts their workers
    do not meet there.

    Of several processes each gives the costs of its own workers alone, ``world.mine(workers)``. Then value and
    gradient are those of the parts in this process.

    Parameters
    ----------
    costs : mapping from int to FiniteSum
        Costs by the number of the worker, from 0.

    Raises
    ------
    InvalidInputError
        If there are no costs.

    See Also
    --------
    Parallel : the solver.
    rmopt.core.AgentSum : agents with their own points.

    References
    ----------
    Stich, Local SGD converges fast and communicates little, ICLR (2019), arXiv:1805.09767.

    Examples
    --------
    >>> import numpy as np
    >>> from rmopt import Problem
    >>> from rmopt.costs import BilinearSum
    >>> from rmopt.manifolds import FixedRankEmbedded
    >>> from rmopt.solvers import SGD, Parallel, Shards
    >>> rng = np.random.default_rng(0)
    >>> left, right = rng.standard_normal((2, 400, 20))
    >>> y = np.sign(left[:, 0] * right[:, 0])
    >>> half = lambda i: BilinearSum(left[i::2], right[i::2], targets=y[i::2])
    >>> shards = Shards({0: half(0), 1: half(1)})
    >>> solver = Parallel(SGD(0.01, max_iter=10_000), workers=2, every=1000)
    >>> solver.run(Problem(FixedRankEmbedded(20, 20, 1), shards), random_state=0).steps
    5000
    """

    def __init__(self, costs: Mapping[int, FiniteSum]) -> None:
        if not instance("costs", costs, Mapping, "a mapping from the numbers of workers to costs"):
            raise InvalidInputError("costs are empty; give one for each worker of this process.")
        self.costs = {
            integer("a number of a worker", worker): instance(
                f"costs[{worker}]", cost, FiniteSum, "a FiniteSum"
            )
            for worker, cost in sorted(costs.items())
        }
        super().__init__([(1.0, cost) for cost in self.costs.values()])

    def __reduce__(self) -> Any:
        return type(self), (self.costs,)
