"""Coordinate descent over the blocks of a manifold."""

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

from rmopt.core.arguments import integer, number, one_of, optional
from rmopt.core.problem import Problem
from rmopt.core.retraction import Retraction
from rmopt.costs import LogDetTriplet
from rmopt.engines.choose import ENGINES, choose_coordinate_engine
from rmopt.engines.coordinate import CoordinateDescentEngine
from rmopt.errors import MissingCapabilityError, warn
from rmopt.manifolds import PositiveDefinite
from rmopt.solvers.result import Result
from rmopt.solvers.stochastic.samplers import Cyclic, Sampler, ShuffledEpochs, Uniform, as_order
from rmopt.solvers.stochastic.scheduled import Schedule, ScheduledSolver
from rmopt.solvers.stochastic.step_sizes import ExactLineSearch, StepSizeLike, as_step_size
from rmopt.solvers.stop import Converged

# If the least eigenvalue is a smaller share of the largest, a matrix is at the boundary of the cone.
EDGE = 1e-6


class CoordinateDescent(ScheduledSolver):
    """Repeated steps along the gradient of one block, with a search and a retraction.

    Runs on any manifold with blocks (`block_of`). On `PositiveDefinite`, whose block k is row and column k, with
    `LogDetTriplet` this is COMET (Atzmon, Shalit and Chechik 2015, Algorithm 1). A run that ends at the boundary of
    the cone may be far above the minimum, and gives a warning.

    Parameters
    ----------
    n_epochs : float
        The budget, in steps over the number of blocks.
    step_size : StepSize, float or callable
        `ExactLineSearch`, `FractionOfBound`, or fixed step sizes, limited before the boundary.
    order : {"uniform", "shuffled", "cyclic"}, Sampler or callable
        The order of blocks. "uniform" draws with replacement, as in the paper; "shuffled" takes each block once per
        pass.
    retraction : Retraction, optional
        Defaults to the straight line, `Additive`, if the manifold has a `max_step`, and else to the manifold's
        default. A line search needs one with a `velocity`.
    tol : float
        Stop when the optimality residual, tested after each pass, is at most this. With 0 only the budget stops. The
        residual is the length of the gradient relative to that of its parts, for each block at its last step, which
        may be several times less than now. With the hinge it need not vanish. For a cost without known parts
        (`BlockCost`) it is relative to the block's first gradient: if that is huge, take a smaller value.
    engine : {"auto", "compiled", "reference"}
        "auto" takes the compiled engine if there is one.
    max_iter : int, optional
        The budget in steps, instead of `n_epochs`.

    See Also
    --------
    problems.metric.CometMetric : the estimator.
    LBFGS : full gradients.

    References
    ----------
    Atzmon, Shalit and Chechik, Metric learning using block coordinate descent, draft (2015).

    Examples
    --------
    >>> import numpy as np
    >>> from rmopt import Problem
    >>> from rmopt.costs import LogDetTriplet, squared_hinge
    >>> from rmopt.manifolds import PositiveDefinite
    >>> from rmopt.solvers import CoordinateDescent
    >>> X = np.random.default_rng(0).standard_normal((20, 4))
    >>> cost = LogDetTriplet(X, [[0, 1, 2], [3, 4, 5]], squared_hinge, alpha=0.1, beta=0.1)
    >>> problem = Problem(PositiveDefinite(4), cost)
    >>> CoordinateDescent(200, tol=1e-4).run(problem, random_state=0).converged
    True
    """

    orders: ClassVar[Any] = {"uniform": Uniform, "shuffled": ShuffledEpochs, "cyclic": Cyclic}

    def __init__(
        self,
        n_epochs: float = 8.0,
        *,
        step_size: StepSizeLike | None = None,
        order: str | Sampler | Callable[..., Any] = "uniform",
        retraction: Retraction | None = None,
        tol: float = 0.0,
        engine: str = "auto",
        max_iter: int | None = None,
    ) -> None:
        number("n_epochs", n_epochs, least=0, most=1e12)
        self.n_epochs, self.tol = n_epochs, number("tol", tol, least=0)
        self.order, self.engine_name = as_order(order, self.orders), one_of("engine", engine, ENGINES)
        self.step_size = ExactLineSearch() if step_size is None else as_step_size(step_size, searches=True)
        self.retraction = retraction
        self._max_iter = optional(integer)("max_iter", max_iter)

    def check_problem(self, problem: Problem) -> None:
        super().check_problem(problem)
        if not hasattr(problem.manifold, "block_of"):
            raise MissingCapabilityError(
                f"CoordinateDescent cannot run on {problem.manifold}: it needs blocks (`block_of`). Manifolds with "
                "blocks: PositiveDefinite."
            )

    def engine(self, problem: Problem) -> CoordinateDescentEngine:
        return choose_coordinate_engine(problem, self.retraction, self.engine_name, self.step_size.search)

    def budget(self, problem: Problem) -> int:
        if self._max_iter is not None:
            return self._max_iter
        return round(self.n_epochs * problem.manifold.n_blocks)  # type: ignore[attr-defined]

    def sampler_for(self, problem: Problem) -> Sampler:
        n_blocks: int = problem.manifold.n_blocks  # type: ignore[attr-defined]
        return self.orders[self.order](n_blocks) if isinstance(self.order, str) else self.order

    def check_every(self, problem: Problem) -> int | None:
        """Return the number of steps of a pass, after which the residual is tested."""
        return problem.manifold.n_blocks if self.tol > 0.0 else None  # type: ignore[attr-defined]

    def finished(self, work: Schedule, state: Any) -> str | None:
        assert isinstance(work.engine, CoordinateDescentEngine)
        residual = work.engine.residual(state)
        return Converged(f"an optimality residual of {residual:.1e}") if residual <= self.tol else None

    def check_end(self, problem: Problem, point: Any) -> str | None:
        """Return why a run cannot end at a point. At the boundary of the cone it may, with a warning."""
        reason = super().check_end(problem, point)
        if reason is not None and isinstance(problem.manifold, PositiveDefinite):
            values = np.linalg.eigvalsh(point)
            reason = None if values[0] > -1e-12 * values[-1] else reason
        return reason

    def conclude(self, result: Result, work: Schedule, state: Any) -> Result:
        """Warn if the run ended at the boundary of the cone."""
        engine: Any = work.engine
        cost, manifold = engine.cost, engine.manifold
        # With κ = 0 the barrier is infinite there, and eigenvalues of large matrices are expensive.
        kept_inside = isinstance(cost, LogDetTriplet) and cost.alpha > 0.0 and cost.kappa == 0.0
        if isinstance(manifold, PositiveDefinite) and not (result.converged or kept_inside):
            d, values = manifold.d, np.linalg.eigvalsh(result.point)
            if (share := values[0] / values[-1]) < EDGE:
                warn(
                    f"the run ended at the boundary of the cone (the least eigenvalue is {share:.0e} of the "
                    "largest), which may be far above the minimum: take a barrier, such as alpha > 0 with kappa = "
                    f"0, or full gradients: LBFGS().run(Problem(PSDFactors({d}, {d}), OnFactors(cost)), "
                    f"numpy.eye({d})).",
                    RuntimeWarning,
                )
        return result
