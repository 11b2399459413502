"""What the estimators have in common that minimise over growing factors."""

from __future__ import annotations

from typing import Any

from problems.coembedding.training import checked_betas, minimise
from rmopt.costs import ConvexCost
from rmopt.solvers import CertifiedResult, Exponential, Growth, RankIncremental, Recorder


class Certified:
    """An estimator whose parameters say how its convex cost is minimised, and whose attributes say how well.

    Attributes
    ----------
    beta, growth, max_rank, tol, verbose
        Parameters; see `problems.coembedding.CoembeddingClassifier`.
    rank_ : int
    n_iter_ : int
        Rounds.
    objective_, gap_ : float
        The objective, and how far above the global minimum it can be at most.
    is_global_ : bool
        Whether the gap is within `tol`.
    history_ : list of dict
        Rank, objective, eigenvalue and gap by round.
    """

    beta: float
    growth: Growth | None
    max_rank: int | None
    tol: float
    verbose: bool

    def solver(self) -> RankIncremental:
        """Return the solver that the parameters describe."""
        return RankIncremental(self.growth or Exponential(), tol=self.tol, max_rank=self.max_rank)

    def minimised(self, loss: ConvexCost, beta: float) -> Any:
        """Return the factor that minimises loss + β trace, shape (p, rank); keep what certifies it."""
        checked_betas([beta])
        recorder = Recorder(progress=bool(self.verbose), description="rounds")
        return self.keep(minimise(loss, beta, self.solver(), recorder=recorder))

    def keep(self, result: CertifiedResult) -> Any:
        """Return the factor of a result; keep what certifies it."""
        self.rank_, self.n_iter_ = result.point.rank, max(result.steps, 1)
        self.objective_, self.gap_ = result.certificate.objective, result.gap
        self.is_global_, self.history_ = result.is_global, result.history
        return result.point.factor()
