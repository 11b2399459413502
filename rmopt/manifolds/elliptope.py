"""Correlation matrices of low rank, by factors with rows of length 1."""

from typing import Any, ClassVar

import numpy as np

from rmopt import namespaces as ns
from rmopt.core.ambient import Ambient, Array
from rmopt.core.arguments import integer
from rmopt.core.psd import FactorArray
from rmopt.errors import InvalidInputError
from rmopt.linalg import horizontal
from rmopt.manifolds.sphere import UnitLength


class Elliptope(UnitLength):
    """The n × n correlation matrices W = YYᵀ of rank k, as in max-cut, by n × k factors Y with rows of length 1.

    Y stands for the same W as Y O for every orthogonal O. A tangent vector is a horizontal array ξ: its rows are
    orthogonal to those of Y, and Yᵀξ is symmetric, so that no part of it turns Y alone; the metric is tr(ξᵀη)
    (Journée et al. 2010; Grubišić and Pietersz 2007). Geodesics are great circles in each row; of distances no closed
    form is known. A cost must be a function of YYᵀ: parts of a gradient that turn Y are dropped.

    Where the solution has a smaller rank than k, as that of a relaxation has, the quotient has a corner there. Runs
    end there all the same; on the spheres without the quotient, ``Oblique(k, n)`` for Yᵀ, each step takes less time.
    `rmopt.solvers.certify` tells whether a minimum is that of all correlation matrices, and
    `rmopt.solvers.RankIncremental` finds the rank at which it is.

    Parameters
    ----------
    n, k : int
        Numbers of rows and columns of the factors, 2 ≤ k ≤ n.

    See Also
    --------
    Oblique : spheres without the quotient; each step takes less time.

    References
    ----------
    Journée, Bach, Absil and Sepulchre, Low-rank optimization on the cone of positive semidefinite matrices, SIAM
    J. Optim. 20 (2010), https://doi.org/10.1137/080731359. Grubišić and Pietersz, Efficient rank reduction of
    correlation matrices, Linear Algebra and its Applications 422 (2007).

    Examples
    --------
    >>> import numpy as np
    >>> from rmopt import Problem, autograd_cost
    >>> from rmopt.manifolds import Elliptope
    >>> from rmopt.solvers import TrustRegions
    >>> target = np.array([[1.0, 0.9, 0.1], [0.9, 1.0, 0.9], [0.1, 0.9, 1.0]])
    >>> cost = autograd_cost(lambda Y: ((Y @ Y.T - target) ** 2).sum())
    >>> result = TrustRegions(tol=1e-9).run(Problem(Elliptope(3, 2), cost), random_state=0)
    >>> (result.point @ result.point.T).round(2)
    array([[1.  , 0.77, 0.18],
           [0.77, 1.  , 0.77],
           [0.18, 0.77, 1.  ]])
    """

    # Also costs of matrices W that are known at factors are taken.
    point_type: ClassVar[type] = FactorArray

    def __init__(self, n: int, k: int) -> None:
        self.shape = (integer("n", n, 1), integer("k", k, 1))
        if not 2 <= k <= n:
            raise InvalidInputError(f"Elliptope needs 2 ≤ k ≤ n, got n = {n}, k = {k}; choose another k.")
        self.sizes = n, n

    @property
    def dim(self) -> int:
        n, k = self.shape
        return n * (k - 1) - k * (k - 1) // 2

    def products(self, a: Array, b: Array) -> Any:
        if type(a) is np.ndarray and a.ndim == b.ndim == 2:
            return np.einsum("ij,ij->i", a, b)[:, None]
        return ns.real_dots(a, b, 1)

    def projection(self, point: Array, ambient: Ambient) -> Array:
        return horizontal(point, super().projection(point, ambient))

    def transport(self, point_a: Array, point_b: Array, tangent_vector_a: Array) -> Array:
        """Carry a tangent vector by projection, turned as the end is turned against the start."""
        left, _, right = ns.namespace(point_a).linalg.svd(point_a.mT @ point_b)
        return self.projection(point_b, tangent_vector_a @ (left @ right))

    def to_dense(self, point: Array) -> Array:
        """Return W as an n × n array; for small matrices and tests."""
        return point @ point.mT
