"""COMET as a scikit-learn estimator."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np

from problems.door import engine_name, file_path, kept_count, loss_named, natural_size, step_rule
from problems.following import checkpoint_of
from problems.metric.base import TripletLearner
from rmopt.core import InvalidInputError, Problem, Retraction
from rmopt.core.ambient import Array
from rmopt.core.arguments import bounded, flag, named, number, one_of, optional, shown
from rmopt.core.matrices import as_rows
from rmopt.costs import LogDetTriplet
from rmopt.costs.log_det import SCORES
from rmopt.manifolds import PositiveDefinite
from rmopt.renamed import renamed
from rmopt.retractions import POSITIVE_DEFINITE_RETRACTIONS
from rmopt.solvers import CoordinateDescent, Recorder, Sampler
from rmopt.solvers.coordinate_descent import ORDERS

INITS = ("scaled", "identity")
# Of rows of length 1.
BETA = 1e-5


@renamed(n_passes="n_epochs", n_steps_="n_iter_")
@dataclass(eq=False, repr=False)
class CometMetric(TripletLearner):
    """A metric learned by block coordinate descent over positive definite matrices (Atzmon et al. 2015).

    Minimises the mean loss of qᵀW(p − n) over triplets (query, positive, negative), minus α log det(W + κI), plus
    β/2 ‖W‖². Each step moves one row and column of W and knows how far it may go, so W stays positive definite
    without a projection.

    Parameters
    ----------
    n_epochs : float
        The budget, in steps over the number of features.
    alpha : float
    beta : float or None
        Weights of the barrier and of ‖W‖²/2, relative to the mean loss; β must be positive. None: 10⁻⁵ times the
        square of the mean of ‖x‖², or with "distance" of ‖x − x̄‖², so that the scale of X changes nothing.
    kappa : float
        What is added to the diagonal of W in the barrier. Above 0 nothing keeps W inside the cone, and where the
        minimum lies at its boundary the descent can end well above it.
    sparsity : float
        Weight of Σ_k ‖row k without its diagonal entry‖: whole features lose their ties to the others. A step sees
        the term of its own feature alone: the descent stays a little above the minimum, and ends by its budget.
    loss : {"logistic", "hinge", "squared_hinge"} or Loss
        The loss of the score and the target 1; the paper's is the hinge.
    compare : {"similarity", "distance"}
        "similarity", the paper's: qᵀW(p − n). "distance": ½ (‖q − n‖² − ‖q − p‖²) in the metric, as nearest
        neighbours compare; take it with ``triplets="neighbors"`` before a vote of neighbours.
    n_triplets : int or None
        Triplets that `fit` draws; None: 20 for each row.
    triplets : {"random", "neighbors"}
        Which ones `fit` draws: any, or of near rows (`problems.triplets.NeighborTriplets`), for a vote of nearest
        neighbours.
    n_rounds : int
        How often `fit` draws triplets of near rows and learns: what is near is after the first time told by the
        metric that was learned, from which the next round goes on. Each has the whole budget. It pays where the
        Euclidean distance is a poor guide to neighbours; choose it by cross-validation.
    step_size : StepSize, float, callable or None
        None: an exact line search. See `rmopt.solvers.CoordinateDescent`.
    order : {"shuffled", "uniform", "cyclic", "gauss-southwell"}
        Which row and column moves; the paper draws uniformly.
    retraction : {"additive", "schur-exponential", "affine-exponential", "second-order"} or Retraction
        The curve that a step follows.
    init : {"scaled", "identity"}
        "scaled": the best multiple of the identity.
    tol : float
        Stop when the optimality residual is at most this after a pass.
    engine : {"auto", "compiled", "reference"}
        "reference" is the plain definition, slow.
    checkpoint : path or None
        Save the state there every half minute, and resume from it when the file exists.
    random_state : int, RandomState or None
        Equal integers give equal bits.
    verbose : bool
        Draw a progress bar on standard error.

    Attributes
    ----------
    components_ : array, shape (n_features, n_features)
        L with W = LᵀL, the transposed Cholesky factor.
    mahalanobis_ : array, shape (n_features, n_features)
        W.
    classes_ : array
        The classes seen by `fit`.
    n_features_in_, n_iter_ : int
    stopped_by_ : str
        Why the run ended: the budget, or a small optimality residual.
    history_ : list of dict
        What the `recorder` of `learn` measured.

    See Also
    --------
    problems.similarity.LoretaSimilarity : for many sparse features, and a low rank.
    LegoMetric : one pass over the triplets, without a search.
    HdslMetric : few of many features.

    References
    ----------
    Atzmon, Shalit and Chechik, Metric learning using block coordinate descent, draft (2015).

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from sklearn.neighbors import KNeighborsClassifier
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import StandardScaler
    >>> from problems.metric import CometMetric
    >>> X, y = load_wine(return_X_y=True)
    >>> metric = CometMetric(random_state=0)
    >>> model = make_pipeline(StandardScaler(), metric, KNeighborsClassifier())
    >>> bool(model.fit(X[::2], y[::2]).score(X[1::2], y[1::2]) > 0.9)
    True
    """

    @property
    def ranks_by(self) -> str:  # type: ignore[override]
        return self.compare

    n_epochs: Annotated[float, bounded(number, least=0, most=1e9)] = 8.0
    _: KW_ONLY
    alpha: Annotated[float, bounded(number, least=0)] = 1e-4
    beta: Annotated[float | None, optional(bounded(number, above=0))] = None
    kappa: Annotated[float, bounded(number, least=0)] = 0.0
    sparsity: Annotated[float, bounded(number, least=0)] = 0.0
    loss: Annotated[Any, loss_named] = "logistic"
    compare: Annotated[str, bounded(one_of, SCORES)] = "similarity"
    n_triplets: int | None = None
    triplets: str = "random"
    n_rounds: Annotated[int, kept_count] = 1
    step_size: Annotated[Any, optional(step_rule, searches=True)] = None
    order: Annotated[str, bounded(named, ORDERS, Sampler)] = "shuffled"
    retraction: Annotated[Any, bounded(named, POSITIVE_DEFINITE_RETRACTIONS, Retraction)] = "additive"
    init: Annotated[str, bounded(one_of, INITS)] = "scaled"
    tol: Annotated[float, bounded(number, least=0)] = 1e-4
    engine: Annotated[str, engine_name] = "auto"
    checkpoint: Annotated[Path | str | None, file_path] = None
    random_state: Any = None
    verbose: Annotated[bool, flag] = False

    def sampler(self, X: Any, y: Any) -> Sampler:
        if self.n_rounds != 1 and (self.triplets != "neighbors" or self.checkpoint is not None):
            raise InvalidInputError(
                f"n_rounds = {shown(self.n_rounds)} draws near rows anew: it needs triplets = 'neighbors', and no "
                "checkpoint, which holds one round."
            )
        return super().sampler(X, y)

    def learn(
        self, X: Any, triplets: Array, seed: int, recorder: Recorder | None = None, start: Array | None = None
    ) -> Array:
        problem = self.problem(X, triplets)
        if recorder is None:
            recorder = Recorder(progress=self.verbose, description="COMET")
        # The start is as large as W: no name holds it while the solver runs.
        result = self.solver().run(
            problem,
            self._start(problem.cost) if start is None else start,
            random_state=seed,
            recorder=recorder,
            checkpoint=checkpoint_of(self, seed),
        )
        self.n_iter_, self.history_, self.stopped_by_ = result.steps, result.history, result.stopped_by
        return result.point

    def problem(self, X: Any, triplets: Array) -> Problem:
        """Return the problem that is solved: the sum of the losses, with weights that grow with their number."""
        # If the rows grow by a factor c, a W that gives the same scores shrinks by c².
        beta = self.beta
        if beta is None:
            rows = as_rows(X, "X")
            beta = natural_size(rows, BETA, -2, mean=rows.mean(axis=0) if self.compare == "distance" else 0.0)
        weights = {"alpha": self.alpha, "beta": beta, "sparsity": self.sparsity}
        scaled = {name: float(weight) * len(triplets) for name, weight in weights.items()}
        loss = loss_named("loss", self.loss)
        cost = LogDetTriplet(X, triplets, loss, kappa=float(self.kappa), score=self.compare, **scaled)
        return Problem(PositiveDefinite(cost.n_blocks), cost)

    def _start(self, cost: Any) -> Array:
        return cost.best_multiple_of_identity() if self.init == "scaled" else np.eye(cost.n_blocks)

    def solver(self) -> CoordinateDescent:
        """Return the solver."""
        return CoordinateDescent(
            self.n_epochs,
            step_size=self.step_size,
            order=self.order,
            retraction=named("retraction", self.retraction, POSITIVE_DEFINITE_RETRACTIONS, Retraction),
            tol=self.tol,
            engine=self.engine,
        )
