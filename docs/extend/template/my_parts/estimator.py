"""A scikit-learn estimator, made of a manifold, the cost, the retraction and a solver."""

from sklearn.base import BaseEstimator, TransformerMixin

from my_parts.parts import CholeskyQR, Spread
from rmopt import Problem
from rmopt.manifolds import Grassmann
from rmopt.solvers import TrustRegions


class SubspaceEmbedding(TransformerMixin, BaseEstimator):
    """Embed rows in their principal subspace.

    Parameters
    ----------
    rank : int
        Numbers in an embedding; experiments set it.
    random_state : int
        Seed of the start; experiments set it.
    """

    def __init__(self, rank=20, random_state=0):
        self.rank = rank
        self.random_state = random_state

    def fit(self, X, y=None):
        """Find the subspace of the rows of X; y is not used."""
        problem = Problem(Grassmann(X.shape[1], self.rank), Spread(X))
        solver = TrustRegions(retraction=CholeskyQR())
        self.result_ = solver.run(problem, random_state=self.random_state)
        self.components_ = self.result_.point.T
        return self

    def transform(self, X):
        """Return the coordinates of rows in the subspace."""
        return X @ self.components_.T
