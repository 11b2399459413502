"""Minimisation over the positive semidefinite cone by factors that grow: ILA, with a certificate."""

from collections import deque
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from rmopt.core.ambient import Array
from rmopt.core.arguments import flag, integer, number, shown
from rmopt.core.problem import Problem
from rmopt.core.psd import PSDPoint, point_of
from rmopt.core.streams import Stream, generator
from rmopt.costs.convex import ConvexCost
from rmopt.errors import InvalidInputError, MissingCapabilityError
from rmopt.manifolds.factors import PSDFactors
from rmopt.manifolds.psd_fixed_rank import PSDMatrices
from rmopt.solvers.base import Result, Solver
from rmopt.solvers.certificate import Certificate, checked_lower_bound
from rmopt.solvers.descent import GradientSolver
from rmopt.solvers.growth import Doubling, Growth
from rmopt.solvers.line_search import LBFGS
from rmopt.solvers.rank_rounds import Inner, RankEngine, RankState
from rmopt.solvers.stop import Converged
from rmopt.solvers.trust_regions import TrustRegions

# Rounds in a row without progress after which a run gives up.
PATIENCE = 3


@dataclass(frozen=True, eq=False)
class CertifiedResult(Result):
    """The end of a run, with a bound on how far from the global minimum it is.

    Attributes
    ----------
    certificate : Certificate
    tol : float
        The relative gap that was asked for.

    See Also
    --------
    RankIncremental : returns it.

    Examples
    --------
    >>> import numpy as np
    >>> from problems.coembedding import MetricRegression
    >>> from rmopt import Problem
    >>> from rmopt.costs import Trace
    >>> from rmopt.manifolds import PSDFixedRank
    >>> from rmopt.solvers import RankIncremental
    >>> X = np.random.default_rng(0).standard_normal((5, 20))
    >>> problem = Problem(PSDFixedRank(5, 1), MetricRegression(X) + Trace(0.5))
    >>> result = RankIncremental().run(problem, random_state=0)
    >>> result.is_global, result.gap < 1e-6
    (True, True)
    """

    certificate: Certificate = field(repr=False, kw_only=True)
    tol: float = field(kw_only=True)

    @property
    def gap(self) -> float:
        """An upper bound on f(W) − f(W*)."""
        return self.certificate.gap

    @property
    def is_global(self) -> bool:
        """Whether the gap is at most `tol` times f(W) less its lower bound."""
        return self.certificate.is_global(self.tol)


class Rounds(NamedTuple):
    """What the rounds of a run work with."""

    engine: RankEngine
    seed: int
    first_step: int


class RankIncremental(Solver):
    """ILA: local optimisation of a factor that grows until a certificate says that the minimum is global.

    Minimises a convex f over all positive semidefinite W = YYᵀ (Mirzazadeh et al. 2015, Algorithm 1). The rank of the
    problem's manifold does not matter: the run goes through all its sisters, and the result may be of rank 0.

    Each round adds leading eigenvectors of −∇f, found by Lanczos iterations, scales old and new columns, minimises
    locally, and drops columns that vanished. `growth`, `rescale` and `inner` give the strategies that the paper
    compares: ``RankIncremental(OneByOne())`` is Zhang et al. (2012), with ``rescale=False`` Journée et al. (2010),
    and with ``inner=None`` boosting without local optimisation.

    Parameters
    ----------
    growth : Growth
        `Doubling()` or `OneByOne()`, or anything with their two methods. ``Doubling(64)`` unless given: where
        columns are few, local optimisation is hard and soon out of date.
    inner : "auto", Solver or None
        The local optimiser: anything with ``run(problem, initial_point, random_state=…)`` on matrices of one rank.
        "auto" is ``TrustRegions(max_iter=20)``, so that a round which lacks columns ends soon, or `LBFGS` where
        the cost has no second derivatives. How short the gradient is to become the rounds say, and not its own
        tolerances. None: only new columns and their scale.
    tol : float
        The relative gap at which the minimum counts as global.
    max_iter : int
    max_rank : int, optional
        Where the rank stops to grow; the size of W unless given.
    rescale : bool
        Scale the old columns too; otherwise only the new ones.

    See Also
    --------
    TrustRegions : a rank that is known.
    certify : the certificate alone.

    References
    ----------
    Mirzazadeh, White, György and Schuurmans, Scalable metric learning for co-embedding, ECML PKDD (2015),
    https://doi.org/10.1007/978-3-319-23528-8_39. Journée, Bach, Absil and Sepulchre, Low-rank optimization on the
    cone of positive semidefinite matrices, SIAM J. Optim. 20 (2010), https://doi.org/10.1137/080731359. Zhang, Yu
    and Schuurmans, Accelerated training for matrix-norm regularization: a boosting approach, NIPS (2012).

    Examples
    --------
    >>> import numpy as np
    >>> from problems.coembedding import MetricRegression
    >>> from rmopt import Problem
    >>> from rmopt.costs import Trace
    >>> from rmopt.manifolds import PSDFixedRank
    >>> from rmopt.solvers import RankIncremental
    >>> X = np.random.default_rng(0).standard_normal((20, 50))
    >>> problem = Problem(PSDFixedRank(20, 1), MetricRegression(X) + Trace(0.5))
    >>> result = RankIncremental().run(problem)
    >>> result.point.rank, result.is_global
    (20, True)
    """

    def __init__(
        self,
        growth: Growth | None = None,
        *,
        inner: Any = "auto",
        tol: float = 1e-6,
        max_iter: int = 1000,
        max_rank: int | None = None,
        rescale: bool = True,
    ) -> None:
        automatic = isinstance(inner, str) and inner == "auto"
        made = not isinstance(inner, type) and callable(getattr(inner, "run", None))
        if not (inner is None or automatic or made):
            raise InvalidInputError(
                f"inner = {shown(inner)} must be a solver, for example TrustRegions(), LBFGS() or "
                "PymanoptSolver('ConjugateGradient'); or None."
            )
        self.growth = Doubling(64) if growth is None else growth
        methods = (getattr(self.growth, name, None) for name in ("first", "after"))
        if isinstance(self.growth, type) or not all(map(callable, methods)):
            raise InvalidInputError(f"growth = {shown(growth)} is unknown; choose Doubling() or OneByOne().")
        self.inner, self.rescale = inner, flag("rescale", rescale)
        self.tol, self.max_iter = number("tol", tol, least=0), integer("max_iter", max_iter)
        self.max_rank = None if max_rank is None else integer("max_rank", max_rank, 1)

    def engine(self, problem: Problem) -> RankEngine:
        """Return what does the rounds."""
        cost, manifold = problem.cost, problem.manifold
        if not isinstance(cost, ConvexCost) or not isinstance(manifold, PSDMatrices):
            raise MissingCapabilityError(
                f"RankIncremental cannot run {type(cost).__name__} on {manifold}: it needs a ConvexCost "
                "(rmopt.costs) on PSDFixedRank or PolarPSD."
            )
        checked_lower_bound(cost)
        size = manifold.shape[0]
        limit = size if self.max_rank is None else min(self.max_rank, size)
        return RankEngine(cost, self._inner_of(problem), self.growth, self.tol, limit, self.rescale)

    def _inner_of(self, problem: Problem) -> Inner | None:
        """Return the local optimiser as a function of factors."""
        solver, manifold, cost = self.inner, problem.manifold, problem.cost
        if solver is None:
            return None
        assert isinstance(manifold, PSDMatrices)
        assert isinstance(cost, ConvexCost)
        if isinstance(solver, str):
            nowhere = np.zeros((manifold.shape[0], 1))
            try:
                cost.hessian(nowhere, nowhere)
                solver = TrustRegions(max_iter=20)
            except MissingCapabilityError:
                solver = LBFGS(20)

        def minimised(Y: Array, gradient_norm: float, seed: int) -> Array:
            if isinstance(solver, GradientSolver):
                # In the geometry of factors, where columns may vanish.
                local = Problem(PSDFactors(*Y.shape), cost)
                states = solver.with_gradient_norm(gradient_norm).iterate(local, Y, random_state=seed)
                return deque(states, 1).pop().point
            local = Problem(manifold.with_rank(Y.shape[1]), cost)
            found = solver.run(local, point_of(Y), random_state=seed)
            point = getattr(found, "point", None)
            if not isinstance(point, PSDPoint):
                raise InvalidInputError(
                    f"inner = {shown(solver)} returned {shown(found)}; its run must return a Result, whose point is "
                    f"one of {local.manifold}."
                )
            return point.factor()

        return minimised

    def prepare(self, problem: Problem, seed: int, first_step: int) -> Rounds:
        return Rounds(self.engine(problem), seed, first_step)

    def begin(self, work: Rounds, point: Any) -> RankState:
        return work.engine.load(point)

    def advance(self, work: Rounds, state: RankState, steps: int) -> RankState:
        """Do one round; the local optimiser has a seed of its own in each."""
        if steps == 0:
            return state
        rng = generator(work.seed, Stream.INNER, work.first_step + state.steps)
        return work.engine.round(state, int(rng.integers(2**63)))

    def point(self, work: Rounds, state: RankState) -> PSDPoint:
        return point_of(state.Y)

    def start(self, problem: Problem, rng: np.random.Generator) -> PSDPoint:
        """Return the zero matrix."""
        p = problem.manifold.shape[0]  # type: ignore[attr-defined]
        return PSDPoint(np.zeros((p, 0)), np.zeros((0, 0)))

    def check_start(self, problem: Problem, point: Any) -> str | None:
        manifold = problem.manifold
        assert isinstance(manifold, PSDMatrices)
        if isinstance(point, PSDPoint) and point.rank == 0 and point.Q.shape == (manifold.shape[0], 0):
            return None
        rank = point.rank if isinstance(point, PSDPoint) else manifold.rank
        return manifold.with_rank(max(1, min(rank, manifold.shape[0]))).check_point(point)

    def finished(self, work: Rounds, state: RankState) -> str | None:
        gap = f"relative gap of {state.certificate.relative_gap:.1e}"
        if state.certificate.is_global(self.tol):
            return Converged(f"a certified {gap}")
        if state.idle >= PATIENCE:
            return f"{PATIENCE} rounds without progress, at a {gap}"
        limit = work.engine.max_rank
        full = state.Y.shape[1] == limit < len(state.Y) and state.added == 0
        # A round ends after a few steps, whether its columns are at their minimum or not.
        if full and state.idle:
            return f"max_rank = {limit}"
        return None

    def observe(self, work: Rounds, state: RankState) -> dict[str, float]:
        """Return rank, objective, the eigenvalue that is left and the certified gap."""
        found = state.certificate
        return {
            "rank": state.Y.shape[1], "objective": found.objective,
            "eigenvalue": found.eigenvalue, "gap": found.gap,
        }  # fmt: skip

    def conclude(self, result: Result, work: Rounds, state: RankState) -> CertifiedResult:
        return CertifiedResult(**vars(result), certificate=state.certificate, tol=self.tol)
