"""Training of co-embeddings, and what the estimators that minimise over growing factors have in common."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from typing import Annotated, Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from problems.rows import product
from problems.validation import Embedder, Estimator, kept_count, seen
from rmopt.core import InvalidInputError, Problem, PSDPoint
from rmopt.core.ambient import Array
from rmopt.core.arguments import bounded, flag, number, optional, sequence, shown
from rmopt.costs import ConvexCost, Trace
from rmopt.errors import warn
from rmopt.manifolds import PSDFactors, PSDFixedRank
from rmopt.solvers import LBFGS, CertifiedResult, Growth, RankIncremental, Recorder

# The paper's weights, and larger ones, which standardised rows of length 1 need.
BETAS = (0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0)


def minimise(
    loss: ConvexCost,
    beta: float,
    solver: RankIncremental,
    start: PSDPoint | None = None,
    recorder: Recorder | None = None,
) -> CertifiedResult:
    """Return the minimum of loss + β trace over positive semidefinite matrices.

    Parameters
    ----------
    loss : ConvexCost
    beta : float
    solver : RankIncremental
    start : PSDPoint, optional
        A warm start, of any rank.
    recorder : Recorder, optional
    """
    problem = Problem(PSDFixedRank(loss.shape[0], 1), loss + Trace(beta))
    result = solver.run(problem, start, random_state=0, recorder=recorder)
    assert isinstance(result, CertifiedResult)
    return result


def checked_betas(betas: Any) -> list[float]:
    """Return the weights of a grid, ascending.

    Raises
    ------
    InvalidInputError
        For an empty grid, or weights that are not positive.
    """
    values = sequence("betas", betas)
    if not values:
        raise InvalidInputError(f"betas = {shown(betas)} must be positive numbers, at least one.")
    return sorted({number("betas", value, above=0) for value in values})


def local_optima(
    cost: ConvexCost,
    ranks: list[int],
    n_starts: int,
    seed: int,
    tick: Callable[[], None] = lambda: None,
    tol: float = 1e-5,
) -> dict[int, Array]:
    """Return the objectives of local optima from random starts, by the number of columns (Burer and Monteiro 2003).

    Parameters
    ----------
    cost : ConvexCost
    ranks : list of int
        Numbers of columns.
    n_starts : int
        Starts with standard normal entries, for each rank.
    seed : int
    tick : callable
        Called after each start.
    tol : float
        Relative length of the gradient at which a local optimisation ends.
    """

    def optimum(rank: int, start: int) -> float:
        Y = np.random.default_rng([seed, rank, start]).standard_normal((cost.shape[0], rank))
        solver = LBFGS(20, max_iter=5000, tol=tol)
        value = cost.value(solver.run(Problem(PSDFactors(*Y.shape), cost), Y).point)
        tick()
        return value

    return {rank: np.array([optimum(rank, start) for start in range(n_starts)]) for rank in ranks}


gap = bounded(number, least=0)
# Below the least, what certifies a minimum is no number.
weight = bounded(number, least=1e-100)


def _growth(name: str, value: Any) -> Any:
    if isinstance(value, type):
        raise InvalidInputError(f"{name} = {value.__name__} is a class; give {value.__name__}().")
    return RankIncremental(value).growth


@dataclass(eq=False, repr=False)
class Certified(Estimator):
    """An estimator whose parameters say how its convex cost is minimised, and whose attributes say how well.

    They are described in `problems.coembedding.CoembeddingClassifier`.
    """

    _: KW_ONLY
    growth: Annotated[Growth | None, _growth] = None
    max_rank: Annotated[int | None, optional(kept_count)] = None
    tol: Annotated[float, gap] = 1e-4
    verbose: Annotated[bool, flag] = False

    def solver(self) -> RankIncremental:
        """Return the solver that the parameters describe."""
        return RankIncremental(self.growth, tol=self.tol, max_rank=self.max_rank)

    def _minimised(self, loss: ConvexCost, beta: float) -> Any:
        """Return the factor that minimises loss + β trace, shape (p, rank); keep what certifies it."""
        recorder = Recorder(progress=self.verbose, description="rounds")
        factor = self._keep(minimise(loss, float(beta), self.solver(), recorder=recorder))
        if not self.rank_:
            # Where the empty model is not the minimum it is within tol of it.
            name, value = ("tol", self.tol) if self.gap_ > 0.0 else ("beta", beta)
            warn(
                f"{name} = {value:g} is so large that the model is empty (rank 0), and says the same of everything; "
                "try a tenth."
            )
        return factor

    def _keep(self, result: CertifiedResult, tell: bool = True) -> Any:
        """Return the factor of a result; keep what certifies it, and warn where nothing does."""
        # Who limits the rank does not ask for the minimum over all ranks.
        limited = self.max_rank is not None and result.point.rank >= self.max_rank
        if tell and not result.is_global and not limited:
            warn(
                f"tol = {self.tol:g} was not reached ({result.stopped_by}): the objective "
                f"{result.certificate.objective:.3g} may be {result.gap:.1e} above the minimum; choose a larger beta "
                "or tol, or scale the data.",
                ConvergenceWarning,
            )
        self.rank_, self.n_iter_ = result.point.rank, max(result.steps, 1)
        self.objective_, self.gap_ = result.certificate.objective, result.gap
        self.is_global_, self.history_ = result.is_global, result.history
        return result.point.factor()


class CertifiedEmbedder(Embedder, Certified):
    """A certified estimator that embeds rows x at U x, where `components_` is Uᵀ."""

    n_features_in_: int
    threshold_embedding_: np.ndarray

    def _embedded(self, X: Any) -> np.ndarray:
        return product(seen(self, X), self.components_.T)

    def transform(self, X: Any) -> np.ndarray:
        """Return the embeddings of rows, shape (n_samples, rank)."""
        return self._embedded(X)
