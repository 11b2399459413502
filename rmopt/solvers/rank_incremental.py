"""Minimisation over the positive semidefinite cone by factors that grow: ILA, with a certificate."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np

from rmopt.core.ambient import Array
from rmopt.core.arguments import flag, integer, number, shown
from rmopt.core.cost import FiniteSum, WholeCost
from rmopt.core.errors import InvalidInputError, MissingCapabilityError
from rmopt.core.problem import Problem
from rmopt.core.psd import PSDPoint
from rmopt.core.streams import Stream
from rmopt.costs.convex import ConvexCost
from rmopt.engines.base import Engine
from rmopt.engines.certificate import Certificate, checked_lower_bound
from rmopt.engines.rank_incremental import Growth, Inner, RankEngine, RankState, point_of
from rmopt.manifolds.psd_fixed_rank import PSDMatrices
from rmopt.solvers.base import Result, Solver
from rmopt.solvers.factor import FactorSolver
from rmopt.solvers.growth import Exponential
from rmopt.solvers.newton import Hybrid
from rmopt.solvers.samplers import Sampler
from rmopt.solvers.step_sizes import Constant, StepSize

# Rounds in a row without progress after which a run gives up.
PATIENCE = 3


@dataclass(frozen=True)
class CertifiedResult(Result):
    """The end of a run, with a bound on how far from the global minimum it is.

    Attributes
    ----------
    certificate : Certificate
    tol : float
        The relative gap that was asked for.
    """

    certificate: Certificate = field(repr=False)
    tol: float

    @property
    def gap(self) -> float:
        """An upper bound on f(W) − f(W*)."""
        return self.certificate.gap

    @property
    def is_global(self) -> bool:
        """Whether the gap is at most `tol` times f(W) less its lower bound."""
        return self.certificate.is_global(self.tol)


class Seeds(Sampler):
    """A seed for the local optimiser of each round; rounds look at everything."""

    block_size, stream = 1, Stream.INNER

    def draw(self, rng: np.random.Generator, start: int, size: int) -> Array:
        return rng.integers(2**63, size=(size, 1))


class RankIncremental(Solver):
    """ILA: local optimisation of a factor that grows until a certificate says that the minimum is global.

    Minimises a convex f over all positive semidefinite W = YYᵀ (Mirzazadeh et al. 2015, Algorithm 1). The rank of the
    problem's manifold does not matter: the run goes through all its sisters, and the result may be of rank 0.

    Each round adds leading eigenvectors of −∇f, found by Lanczos iterations, scales old and new columns, minimises
    locally, and drops columns that vanished. `growth`, `rescale` and `inner` give the strategies that the paper
    compares: ``RankIncremental(Linear())`` is Zhang et al. (2012), with ``rescale=False`` Journée et al. (2010), and
    with ``inner=None`` boosting without local optimisation.

    Parameters
    ----------
    growth : Growth
        `Exponential()` or `Linear()`, or anything with their two methods.
    inner : "auto", FactorSolver, Solver, PymanoptSolver or None
        The local optimiser: anything with ``run(problem, initial_point, random_state=…)`` on matrices of one rank.
        "auto" is `Hybrid`. None: only new columns and their scale.
    tol : float
        The relative gap at which the minimum counts as global.
    max_rounds : int
    max_rank : int, optional
        Where the rank stops to grow; the size of W unless given.
    rescale : bool
        Scale the old columns too; otherwise only the new ones.

    Examples
    --------
    >>> from problems.coembedding import MetricRegression
    >>> from rmopt import Problem
    >>> from rmopt.costs import Trace
    >>> from rmopt.manifolds import PSDFixedRank
    >>> X = np.random.default_rng(0).standard_normal((20, 50))
    >>> result = RankIncremental().run(Problem(PSDFixedRank(20, 1), MetricRegression(X) + Trace(0.5)))
    >>> result.point.rank, result.is_global
    (20, True)
    """

    def __init__(
        self,
        growth: Growth | None = None,
        *,
        inner: Any = "auto",
        tol: float = 1e-6,
        max_rounds: int = 1000,
        max_rank: int | None = None,
        rescale: bool = True,
    ) -> None:
        if isinstance(inner, str) and inner == "auto":
            inner = Hybrid()
        if inner is not None and not callable(getattr(inner, "run", None)):
            raise InvalidInputError(
                f"inner = {shown(inner)} must be a solver, for example NewtonCG(), LBFGS() or "
                "PymanoptSolver('ConjugateGradient'); or None."
            )
        self.growth = Exponential() if growth is None else growth
        if not all(callable(getattr(self.growth, name, None)) for name in ("first", "after")):
            raise InvalidInputError(f"growth = {shown(growth)} is unknown; choose Exponential() or Linear().")
        self.inner, self.rescale = inner, flag("rescale", rescale)
        self.tol, self.n_steps = number("tol", tol, least=0), integer("max_rounds", max_rounds)
        self.max_rank = None if max_rank is None else integer("max_rank", max_rank, 1)

    def engine(self, problem: Problem) -> RankEngine:
        cost, manifold = problem.cost, problem.manifold
        if not isinstance(cost, ConvexCost) or not isinstance(manifold, PSDMatrices):
            raise MissingCapabilityError(
                f"RankIncremental cannot run {type(cost).__name__} on {manifold}: it needs a ConvexCost "
                "(rmopt.costs) on PSDFixedRank or PolarPSD."
            )
        if not number(f"trace_weight of {cost}", cost.trace_weight, least=0) > 0.0:
            raise InvalidInputError(
                f"{type(cost).__name__} has no trace term, without which minima need not exist and nothing can be "
                "certified; add Trace(beta)."
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
        wrapped = WholeCost(cost) if isinstance(solver, Solver) and not isinstance(cost, FiniteSum) else cost

        def minimised(Y: Array, gradient_norm: float, seed: int) -> Array:
            if isinstance(solver, FactorSolver):
                return solver.with_gradient_norm(gradient_norm).minimise(cost, Y)[0]
            local = Problem(manifold.with_rank(Y.shape[1]), wrapped)
            return solver.run(local, point_of(Y), random_state=seed).point.factor()

        return minimised

    def sampler_for(self, problem: Problem) -> Sampler:
        """Return a schedule of the seeds of rounds."""
        return Seeds()

    def step_size_rule(self) -> StepSize:
        """Return a rule that is not looked at."""
        return Constant(1.0)

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

    def check_every(self, problem: Problem) -> int:
        """Return 1: the certificate is looked at after each round."""
        return 1

    def converged(self, engine: Engine, state: RankState) -> str | None:
        assert isinstance(engine, RankEngine)
        if state.certificate.is_global(self.tol):
            return f"a certified relative gap of {state.certificate.relative_gap:.1e}"
        if state.idle >= PATIENCE:
            return f"{PATIENCE} rounds without progress, at a relative gap of {state.certificate.relative_gap:.1e}"
        if self.inner is not None and state.Y.shape[1] == engine.max_rank < len(state.Y) and state.added == 0:
            return f"max_rank = {engine.max_rank}"
        return None

    def observe(self, engine: Engine, state: RankState) -> dict[str, float]:
        """Return rank, objective, the eigenvalue that is left and the certified gap."""
        found = state.certificate
        return {
            "rank": state.Y.shape[1], "objective": found.objective,
            "eigenvalue": found.eigenvalue, "gap": found.gap,
        }  # fmt: skip

    def conclude(self, result: Result, engine: Engine, state: RankState) -> CertifiedResult:
        """Return the result with its certificate."""
        known = {one.name: getattr(result, one.name) for one in fields(Result)}
        return CertifiedResult(**known, certificate=state.certificate, tol=self.tol)
