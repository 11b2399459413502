"""Frames and subspaces whose columns are orthonormal in an ambient inner product xᴴBy."""

from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp

from rmopt import linalg
from rmopt import namespaces as ns
from rmopt.core.ambient import Ambient, Array, dense
from rmopt.core.arguments import integer, shown
from rmopt.core.points import as_like
from rmopt.core.retraction import Retraction
from rmopt.errors import InvalidInputError
from rmopt.manifolds.arrays import ArrayManifold
from rmopt.manifolds.grassmann import Grassmann
from rmopt.manifolds.stiefel import Stiefel
from rmopt.retractions.grassmann import GENERALIZED_RETRACTIONS, GeneralizedPolar


class GeneralizedStiefel(ArrayManifold):
    """The n × p matrices X with XᴴBX = I for a positive definite B, with the metric ⟨ξ, η⟩ = Re tr(ξᴴBη).

    Canonical correlations, discriminants and generalised eigenvalue problems are costs on it. Operations are products
    with B, and one solve per gradient, so that a sparse B stays sparse. `exp`, `log` and `dist`, as on `Stiefel`,
    need an array B.

    Parameters
    ----------
    B : array, sparse array or operator, shape (n, n)
        Hermitian and positive definite. An operator has `shape`, ``B @ X`` and ``B.solve(X)``, which returns B⁻¹X.
        Sparse arrays and operators compute on the host, wherever the points are.
    p : int
        Number of columns, p ≤ n.
    field : {"real", "complex"}

    See Also
    --------
    GeneralizedGrassmann : if only the span counts.
    scipy.sparse.linalg.eigsh : faster for plain eigenvalue problems.

    References
    ----------
    Edelman, Arias and Smith, The geometry of algorithms with orthogonality constraints, SIAM J. Matrix Anal.
    Appl. 20 (1998), https://doi.org/10.1137/S0895479895290954.

    Examples
    --------
    >>> import numpy as np
    >>> from rmopt import Problem, autograd_cost
    >>> from rmopt.manifolds import GeneralizedStiefel
    >>> from rmopt.solvers import TrustRegions
    >>> A, B = np.diag([3.0, 2.0, 1.0]), np.diag([1.0, 4.0, 1.0])
    >>> problem = Problem(
    ...     GeneralizedStiefel(B, 1), autograd_cost(lambda x: (x * (A @ x)).sum())
    ... )
    >>> round(TrustRegions().run(problem, random_state=0).cost, 6)
    0.5
    """

    default_retraction: Retraction = GeneralizedPolar()
    retractions = GENERALIZED_RETRACTIONS

    def __init__(self, B: Any, p: int, *, field: str = "real") -> None:
        self._take(field)
        n = _size(B)
        self.shape = (n, integer("p", p, 1))
        self._twin = self._flat(n, self.shape[1])
        self.B, self._solved, self._root = self._form(B)

    def _flat(self, n: int, p: int) -> Any:
        """Return the manifold for B = I."""
        return Stiefel(n, p, field=self.field)

    def _form(self, B: Any) -> tuple[Any, Callable[[Any], Any] | None, Any]:
        """Return B in double precision, and a function for B⁻¹X on the host or a Cholesky factor."""
        n, wanted = self.shape[0], complex if self.field == "complex" else float
        if hasattr(B, "solve"):
            X = self.drawn(np.random.default_rng(0), (n, 2))
            BX = np.asarray(B @ X)
            back, gram = np.asarray(B.solve(BX)), X.conj().T @ BX
            if not np.abs(back - X).max() <= 1e-6 * np.abs(X).max():
                raise InvalidInputError("B.solve(B @ X) is not X; let `solve` return B⁻¹X of an array X.")
            if not (
                np.abs(gram - gram.conj().T).max() <= 1e-8 * np.abs(gram).max() and gram[0, 0].real > 0.0
            ):
                raise InvalidInputError(f"B {_CURE}")
            return B, B.solve, None
        sparse = sp.issparse(B)
        whole = sp.csr_array(B) if sparse else ns.to_numpy(B)
        if whole.dtype.kind == "c" and self.field == "real":
            raise InvalidInputError("B is complex, and the points are real; take field='complex'.")
        whole = whole.astype(wanted)
        largest = abs(whole).max()
        if not (np.isfinite(largest) and abs(whole - whole.conj().T).max() <= 1e-10 * largest):
            raise InvalidInputError(f"B {_CURE}")
        try:
            if not sparse:
                return whole, None, np.linalg.cholesky(whole)
            # It is slow to import.
            from scipy.sparse.linalg import splu

            how = {
                "permc_spec": "MMD_AT_PLUS_A",
                "diag_pivot_thresh": 0.0,
                "options": {"SymmetricMode": True},
            }
            factors = splu(sp.csc_array(whole), **how)
            # With pivots on the diagonal, that of U is the D of L D Lᴴ.
            if not (np.array_equal(factors.perm_r, factors.perm_c) and factors.U.diagonal().real.min() > 0.0):
                raise InvalidInputError(f"B {_CURE}")
            return whole, factors.solve, None
        except (np.linalg.LinAlgError, RuntimeError) as error:
            raise InvalidInputError(f"B {_CURE}") from error

    @property
    def dim(self) -> int:
        return self._twin.dim

    @property
    def typical_dist(self) -> float:
        return self._twin.typical_dist

    @property
    def diameter(self) -> float:
        return self._twin.diameter

    # The inner product of the ambient space

    def times(self, array: Array) -> Array:
        """Return B X, for one matrix X or many."""
        return (
            self._on_host(self.B.__matmul__, array)
            if self._root is None
            else ns.matched(self.B, array) @ array
        )

    def solve(self, array: Array) -> Array:
        """Return B⁻¹ X, for one matrix X or many."""
        if self._solved is not None:
            return self._on_host(self._solved, array)
        return ns.adjoint(ns.matched(self._inverse, array)) @ (ns.matched(self._inverse, array) @ array)

    @cached_property
    def _inverse(self) -> np.ndarray:
        """The inverse of the Cholesky factor, which all libraries can multiply with many matrices."""
        return linalg.solve_lower(self._root, np.eye(len(self._root), dtype=self._root.dtype))

    def _on_host(self, function: Callable[[Any], Any], array: Array) -> Array:
        """Return the values on the host of a function of arrays' columns, in the arrays' library."""
        columns = np.moveaxis(ns.to_numpy(array), -2, 0)
        wide = columns.astype(np.result_type(columns, float)).reshape(len(columns), -1)
        found = np.moveaxis(np.asarray(function(wide)).reshape(columns.shape), 0, -2)
        return ns.matched(found, array)

    def inner(self, point: Array, tangent_vector_a: Array, tangent_vector_b: Array) -> Any:
        return super().inner(point, tangent_vector_a, self.times(tangent_vector_b))

    def inner_product(self, point: Array, tangent_vector_a: Array, tangent_vector_b: Array) -> float:
        return float(self.inner(point, tangent_vector_a, tangent_vector_b))

    def inner_products(self, point: Array, tangent_vectors_a: Array, tangent_vectors_b: Array) -> Array:
        return self._products(tangent_vectors_a, self.times(tangent_vectors_b))

    # The tangent space

    def projection(self, point: Array, ambient: Ambient) -> Array:
        """Return Z − X sym(XᴴBZ): the projection is orthogonal in the metric."""
        Z = dense(ambient, point)
        return Z - point @ self._bound(ns.adjoint(point) @ self.times(Z))

    def _bound(self, inner: Array) -> Array:
        """Return the part of XᴴBZ that vanishes for tangent vectors."""
        return linalg.symmetric(inner)

    def euclidean_to_riemannian_gradient(self, point: Array, euclidean_gradient: Ambient) -> Array:
        return self.projection(point, self.solve(dense(euclidean_gradient, point)))

    def euclidean_to_riemannian_hessian(
        self, point: Array, euclidean_gradient: Ambient, euclidean_hessian: Ambient, tangent_vector: Array
    ) -> Array:
        """Return P(B⁻¹H − ξ sym(XᴴG)) for the Euclidean gradient G and its derivative H along ξ."""
        bend = self._bound(ns.adjoint(point) @ dense(euclidean_gradient, point))
        return self.projection(point, self.solve(dense(euclidean_hessian, point)) - tangent_vector @ bend)

    # Geodesics are those of FᴴX for B = F Fᴴ

    def knows(self, method: str) -> bool:
        geodesic = method in ("exp", "log", "dist")
        return (self._root is not None and self._twin.knows(method)) if geodesic else super().knows(method)

    def exp(self, point: Array, tangent_vector: Array) -> Array:
        return self._by_root("exp", point, tangent_vector)

    def log(self, point_a: Array, point_b: Array) -> Array:
        return self._by_root("log", point_a, point_b)

    def dist(self, point_a: Array, point_b: Array) -> Any:
        return self._by_root("dist", point_a, point_b)

    def _by_root(self, name: str, *pair: Array) -> Any:
        if self._root is None:
            raise self._lacks(f"`{name}` where B is no array", "use `retraction`, or give B as an array")
        over = ns.adjoint(ns.matched(self._root, pair[0]))
        found = getattr(self._twin, name)(*(over @ array for array in pair))
        return found if name == "dist" else ns.adjoint(ns.matched(self._inverse, pair[0])) @ found

    # Points

    def refusal(self, point: Array) -> str | None:
        error = np.abs(ns.to_numpy(ns.adjoint(point) @ self.times(point)) - np.eye(self.shape[1])).max()
        if error > ns.slack(1e-10, point):
            return f"XᴴBX − I reaches {error:.1e}; multiply X by the inverse of the Cholesky factor of XᴴBX"
        return None

    def random_point(self, rng: np.random.Generator | None = None, like: Any = None) -> Array:
        """Return normally distributed numbers, made orthonormal in B."""
        X = self.drawn(rng)
        return as_like(self.default_retraction(self, X, X, 0.0), like)


class GeneralizedGrassmann(GeneralizedStiefel):
    """The p-dimensional subspaces of ℝⁿ or ℂⁿ, by bases X with XᴴBX = I for a positive definite B.

    X and X O are the same point for every orthogonal or unitary O. Tangent vectors have XᴴBξ = 0, and the metric is
    Re tr(ξᴴBη).

    Parameters
    ----------
    B, p, field : optional
        As in `GeneralizedStiefel`, with p < n.

    See Also
    --------
    GeneralizedStiefel : if the columns themselves count.

    References
    ----------
    Edelman, Arias and Smith, The geometry of algorithms with orthogonality constraints, SIAM J. Matrix Anal.
    Appl. 20 (1998), https://doi.org/10.1137/S0895479895290954.

    Examples
    --------
    >>> import numpy as np
    >>> import scipy.sparse as sp
    >>> from rmopt.manifolds import GeneralizedGrassmann
    >>> mass = sp.diags_array([1.0, 4.0, 1.0], offsets=[-1, 0, 1], shape=(9, 9)) / 6.0
    >>> X = GeneralizedGrassmann(mass, 2).random_point(0)
    >>> bool(np.allclose(X.T @ (mass @ X), np.eye(2)))
    True
    """

    def _flat(self, n: int, p: int) -> Any:
        return Grassmann(n, p, field=self.field)

    def _bound(self, inner: Array) -> Array:
        return inner


_CURE = "is not positive definite and Hermitian; give (B + Bᴴ)/2, with a multiple of the identity added."


def _size(B: Any) -> int:
    """Return the number of rows of B, and refuse anything but a square matrix."""
    if not (sp.issparse(B) or ns.is_array(B) or hasattr(B, "solve")) or not hasattr(B, "shape"):
        raise InvalidInputError(
            f"B must be an array, a sparse array, or an operator with `shape`, `@` and `solve`, got {shown(B)}."
        )
    if len(B.shape) != 2 or B.shape[0] != B.shape[1]:
        raise InvalidInputError(f"B must be a square matrix, got one of shape {tuple(B.shape)}.")
    return int(B.shape[0])
