"""LORETA for label ranking as a scikit-learn estimator."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from problems.door import RUN, admit, begin, count, finite, natural_step_size, seen, step_rule
from problems.ranking.cost import indicators
from problems.ranking.measures import mean_average_precision
from problems.ranking.model import LabelScores
from problems.ranking.training import INITS, SAMPLINGS, loreta_ranking_solver, ranking_cost, starting_point
from rmopt.core import InvalidInputError, Problem, Retraction
from rmopt.core.arguments import Check, bounded, flag, integer, named, one_of, optional
from rmopt.core.files import reading
from rmopt.manifolds import FixedRankEmbedded
from rmopt.retractions import FIXED_RANK_RETRACTIONS
from rmopt.solvers import Checkpoint, Recorder

Array = np.ndarray


class LoretaLabelRanker(BaseEstimator):
    """A low-rank ranking of labels, for examples with several labels out of many.

    Learns W of a fixed rank (labels × features) such that true labels score higher than wrong ones, by LORETA-1
    (Shalit et al. 2012, §7.2).

    Parameters
    ----------
    rank : int or None
        The rank of W; None: 50, or half the number of labels or features where that is smaller (at least 1).
    init : {"zero", "identity", "gaussian"}
        The start: the first 2·rank subgradients from the zero matrix, a zero-padded identity, or a product of two
        random matrices (§7.2.1).
    step_size : float, StepSize, callable or None
        The step size, or a rule of them (`rmopt.solvers`). None: 0.1 over the mean of ‖x‖².
    max_iter : int
        Passes over the rows.
    sampling : {"warp", "exact"}
        "exact": the paper's loss, which compares with the best-scored wrong label; that label is often a true one
        that nobody wrote down. "warp": draws wrong labels until one violates the margin (Weston et al. 2011); more
        robust, and faster where labels are many.
    retraction : {"second-order", "metric-projection", "orthographic"} or Retraction
        How a step stays on the manifold.
    engine : {"auto", "compiled", "reference"}
        "reference" is the plain definition, slow.
    top_k : int or None
        Labels that `predict` gives to each row; None: the rounded mean number of labels in the training rows.
    warm_start : bool
        Let `fit` go on from the present solution, step numbers included.
    checkpoint : path or None
        Save the state there every half minute, and resume from it when the file exists.
    random_state : int, RandomState or None
        Equal integers give equal bits.
    verbose : bool
        Draw a progress bar on standard error.

    Attributes
    ----------
    model_ : LabelScores
        The learned scores.
    n_labels_, n_features_in_ : int
    top_k_ : int
        Labels that `predict` gives to each row.
    n_steps_, n_updates_ : int
        Steps done, and how many of them moved W.
    """

    _parameters: ClassVar[dict[str, Check]] = RUN | {
        "rank": optional(integer, 1),
        "init": bounded(one_of, INITS),
        "step_size": optional(step_rule),
        "max_iter": count,
        "sampling": bounded(one_of, SAMPLINGS),
        "retraction": bounded(named, FIXED_RANK_RETRACTIONS, Retraction),
        "top_k": optional(integer, 1),
        "warm_start": flag,
    }

    def __init__(
        self,
        rank: int | None = None,
        *,
        init: str = "zero",
        step_size: Any = None,
        max_iter: int = 10,
        sampling: str = "warp",
        retraction: Any = "second-order",
        engine: str = "auto",
        top_k: int | None = None,
        warm_start: bool = False,
        checkpoint: Path | str | None = None,
        random_state: Any = None,
        verbose: bool = False,
    ) -> None:
        self.rank = rank
        self.init = init
        self.step_size = step_size
        self.max_iter = max_iter
        self.sampling = sampling
        self.retraction = retraction
        self.engine = engine
        self.top_k = top_k
        self.warm_start = warm_start
        self.checkpoint = checkpoint
        self.random_state = random_state
        self.verbose = verbose

    model_: LabelScores
    n_labels_: int
    top_k_: int
    n_steps_: int
    n_updates_: int

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.target_tags.required = True
        tags.target_tags.multi_output = True
        tags.target_tags.single_output = False
        return tags

    def fit(self, X: Any, Y: Any) -> Self:
        """Learn from examples and their labels.

        Parameters
        ----------
        X : array or sparse matrix, shape (n_samples, n_features)
        Y : array or sparse matrix, shape (n_samples, n_labels)
            Indicators: what is not zero is a true label.

        Returns
        -------
        self
        """
        seed = begin(self)
        return self._learn(
            X, Y, self.max_iter, seed, afresh=not (self.warm_start and hasattr(self, "model_"))
        )

    def partial_fit(self, X: Any, Y: Any) -> Self:
        """Go on learning by one pass over a batch of examples.

        Parameters
        ----------
        X : array or sparse matrix, shape (n_samples, n_features)
        Y : array or sparse matrix, shape (n_samples, n_labels)

        Returns
        -------
        self
        """
        return self._learn(X, Y, 1, begin(self), afresh=not hasattr(self, "model_"))

    def decision_function(self, X: Any) -> Array:
        """Return the scores of all labels, shape (n_samples, n_labels)."""
        X = seen(self, X, "model_")
        with np.errstate(all="ignore"):
            return finite(self.model_(X))

    def predict(self, X: Any) -> Array:
        """Return indicators of the `top_k_` best-scored labels of each row, shape (n_samples, n_labels)."""
        scores = self.decision_function(X)
        order = np.argsort(-scores, axis=1, kind="stable")[:, : self.top_k_]
        chosen = np.zeros(scores.shape, dtype=int)
        np.put_along_axis(chosen, order, 1, axis=1)
        return chosen

    def score(self, X: Any, Y: Any) -> float:
        """Return the mean average precision (see `problems.ranking.mean_average_precision`)."""
        return mean_average_precision(self.decision_function(X), Y)

    def save(self, path: Path | str) -> None:
        """Write the learned scores as an ``.npz`` file, without pickle; `load` reads it."""
        check_is_fitted(self, "model_")
        about = {"steps": self.n_steps_, "updates": self.n_updates_, "top_k": self.top_k_}
        LabelScores(self.model_.point, about).save(path)

    @classmethod
    def load(cls, path: Path | str) -> Self:
        """Return a fitted estimator with the scores that `save` wrote.

        Its `rank` is the saved one; the other parameters are the defaults.
        """
        model = LabelScores.load(path)
        if isinstance(model.point, np.ndarray):
            raise InvalidInputError(f"{path} holds scores of full rank; read it with LabelScores.load.")
        estimator = cls(rank=model.point.rank)
        estimator.model_ = model
        estimator.n_labels_, estimator.n_features_in_ = model.point.shape
        with reading(path):
            counts = (integer(name, model.about.get(name)) for name in ("steps", "updates", "top_k"))
            estimator.n_steps_, estimator.n_updates_, estimator.top_k_ = counts
        return estimator

    def _learn(self, X: Any, Y: Any, n_epochs: int, seed: int, *, afresh: bool) -> Self:
        X = admit(self, X, reset=afresh)
        if Y is None:
            raise InvalidInputError(
                "Y is missing: this estimator requires y to be passed, but the target y is None."
            )
        truth = indicators(Y, X.shape[0])
        n_labels, n = truth.shape[1], X.shape[1]
        if not afresh and n_labels != self.n_labels_:
            raise InvalidInputError(
                f"Y has {n_labels} labels, and the model was fitted with {self.n_labels_}."
            )
        optional(integer, 1, n_labels)("top_k", self.top_k)
        rank = max(1, min(50, n_labels // 2, n // 2)) if self.rank is None else int(self.rank)
        manifold = FixedRankEmbedded(n_labels, n, rank)
        cost = ranking_cost(X, truth, self.sampling)
        solver = loreta_ranking_solver(
            cost,
            natural_step_size(cost.X, 0.1, 1) if self.step_size is None else self.step_size,
            n_epochs,
            retraction=self.retraction,
            engine=self.engine,
        )
        first_size = float(solver.step_size(np.zeros(1, dtype=np.int64))[0])
        start = starting_point(manifold, cost, self.init, seed, first_size) if afresh else self.model_.point
        done, moved = (0, 0) if afresh else (self.n_steps_, self.n_updates_)
        result = solver.run(
            Problem(manifold, cost),
            start,
            random_state=seed,
            recorder=Recorder(progress=self.verbose, description="LORETA"),
            checkpoint=None if self.checkpoint is None else Checkpoint(self.checkpoint),
            first_step=done,
        )
        self.n_steps_, self.n_updates_ = done + result.steps, moved + result.updates
        self.n_labels_ = n_labels
        self.top_k_ = int(self.top_k or 0) or min(n_labels, max(1, round(truth.nnz / truth.shape[0])))
        self.model_ = LabelScores(result.point)
        return self
