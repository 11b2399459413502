"""The rivals of COMET (Atzmon et al. 2015, section 5.1), behind the same interface."""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np

from problems.door import admit, count, kept_count, step_rule
from problems.full_matrix import Lego
from problems.metric.base import MahalanobisMetric, TripletLearner
from problems.metric.boost import boost_metric
from problems.metric.hdsl import hdsl
from rmopt.core import Problem
from rmopt.core.arguments import Check, bounded, number
from rmopt.costs import TripletSum
from rmopt.manifolds import Euclidean
from rmopt.solvers import ShuffledEpochs

Array = np.ndarray


class EuclideanMetric(MahalanobisMetric):
    """The plain Euclidean distance, W = I."""

    _parameters: ClassVar[dict[str, Check]] = {}

    def fit(self, X: Any, y: Any = None) -> Self:
        """Look at the number of features.

        Parameters
        ----------
        X : array or sparse matrix, shape (n_samples, n_features)
        y : array, optional
            Nothing is learned from it; it must fit X.

        Returns
        -------
        self
        """
        X = admit(self, X) if y is None else admit(self, X, y, multi_output=True)[0]
        self.mahalanobis_ = self.components_ = np.eye(X.shape[1])
        return self


class LegoMetric(TripletLearner):
    """Online log-det metric learning (Jain et al. 2008) in its form for relative distances.

    The positive of a triplet should be within the 5th percentile of the squared distances of random rows, the
    negative beyond the 95th (`problems.full_matrix.Lego`).

    Parameters
    ----------
    step_size : float
        η, the weight of a pair against the present matrix.
    n_epochs : int
        Passes over the triplets.
    n_triplets : int or None
        Triplets that `fit` draws; None: 20 for each row.
    random_state : int, RandomState or None
    """

    _parameters: ClassVar[dict[str, Check]] = TripletLearner._parameters | {
        "step_size": step_rule,
        "n_epochs": bounded(count, 10**6),
    }

    def __init__(
        self,
        step_size: float = 1.0,
        *,
        n_epochs: int = 1,
        n_triplets: int | None = None,
        random_state: Any = None,
    ) -> None:
        self.step_size = step_size
        self.n_epochs = n_epochs
        self.n_triplets = n_triplets
        self.random_state = random_state

    def learn(self, X: Any, triplets: Array, seed: int) -> Array:
        d = X.shape[1]
        sampler = ShuffledEpochs(triplets)
        solver = Lego(self.step_size, n_steps=int(self.n_epochs) * len(triplets), sampler=sampler)
        return solver.run(Problem(Euclidean(d, d), TripletSum(X, X)), np.eye(d), random_state=seed).point


class BoostMetric(TripletLearner):
    """A metric as a sum of rank-one matrices found by boosting (Shen et al. 2012).

    Parameters
    ----------
    n_learners : int
        The most weak learners.
    penalty : float
        v, the price of the trace.
    n_triplets : int or None
        Triplets that `fit` draws; None: 20 for each row.
    random_state : int, RandomState or None
    """

    _parameters: ClassVar[dict[str, Check]] = TripletLearner._parameters | {
        "n_learners": count,
        "penalty": bounded(number, above=0),
    }

    def __init__(
        self,
        n_learners: int = 100,
        *,
        penalty: float = 1e-7,
        n_triplets: int | None = None,
        random_state: Any = None,
    ) -> None:
        self.n_learners = n_learners
        self.penalty = penalty
        self.n_triplets = n_triplets
        self.random_state = random_state

    def learn(self, X: Any, triplets: Array, seed: int) -> Array:
        return boost_metric(X, triplets, penalty=self.penalty, n_learners=self.n_learners)


class HdslMetric(TripletLearner):
    """Sparse 2 × 2 bases added by Frank–Wolfe (HDSL: Liu, Bellet and Sha 2015).

    Parameters
    ----------
    scale : float
        λ, the size of the bases.
    n_iterations : int
        Number of bases added.
    n_triplets : int or None
        Triplets that `fit` draws; None: 20 for each row.
    random_state : int, RandomState or None
    """

    _parameters: ClassVar[dict[str, Check]] = TripletLearner._parameters | {
        "scale": bounded(number, above=0),
        "n_iterations": kept_count,
    }

    def __init__(
        self,
        scale: float = 1000.0,
        *,
        n_iterations: int = 8000,
        n_triplets: int | None = None,
        random_state: Any = None,
    ) -> None:
        self.scale = scale
        self.n_iterations = n_iterations
        self.n_triplets = n_triplets
        self.random_state = random_state

    def learn(self, X: Any, triplets: Array, seed: int) -> Array:
        return hdsl(X, triplets, scale=self.scale, n_iterations=self.n_iterations, seed=seed)
