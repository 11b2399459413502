"""Curvatures of a cost at a point: the spectrum of its Hessian, and bases of tangent spaces."""

from itertools import islice
from typing import Any

import numpy as np
import scipy.linalg

from rmopt import namespaces as ns
from rmopt.core.ambient import Array
from rmopt.core.arguments import bounded, instance, integer, one_of
from rmopt.core.manifold import Manifold
from rmopt.core.points import arrays_of, rebuilt
from rmopt.core.problem import Problem
from rmopt.errors import InvalidInputError, MissingCapabilityError
from rmopt.solvers.batch.oracle import Oracle
from rmopt.solvers.batch.trust_regions import combined, lanczos

# The largest dimension of an explicit Hessian.
LARGE = 2000


def hessian_spectrum(
    problem: Problem, point: Any, k: int = 6, which: str = "smallest"
) -> tuple[Array, list[Any]]:
    """Return the k smallest or largest eigenvalues of the Riemannian Hessian at a point, with eigenvectors.

    Uses Lanczos steps on tangent vectors, for any metric, and repeats them orthogonally to the eigenvectors found, so
    that multiple eigenvalues occur with their multiplicity. If the problem has no second derivatives, differences of
    gradients replace them, and eigenvalues are accurate to about a millionth of the largest one.

    Parameters
    ----------
    problem : Problem
    point : point
        If the gradient is zero there, the signs distinguish minimum, saddle and maximum.
    k : int
    which : {"smallest", "largest"}

    Returns
    -------
    values : array, shape (k,)
        Ascending, or descending for the largest, with k at most the dimension.
    vectors : list of tangent vectors
        Orthonormal.

    Examples
    --------
    >>> import numpy as np
    >>> from rmopt import Problem, autograd_cost
    >>> from rmopt.manifolds import Grassmann
    >>> from rmopt.solvers import hessian_spectrum
    >>> A = np.diag([9.0, 5.0, 2.0, 0.0])
    >>> problem = Problem(
    ...     Grassmann(4, 2), autograd_cost(lambda U: -0.5 * (U * (A @ U)).sum())
    ... )
    >>> hessian_spectrum(problem, np.eye(4)[:, :2], 3)[0].round(6).tolist()
    [3.0, 5.0, 7.0]
    """
    work, gradient = _looked(problem, point)
    manifold, dim = work.manifold, work.manifold.dim
    k = min(bounded(integer, 1)("k", k), dim)
    sign = 1.0 if one_of("which", which, ("smallest", "largest")) == "smallest" else -1.0
    product, rng = work.hessian(point, gradient), np.random.default_rng(0)
    exact = 1e-11 * work.coarseness if work.bends else 1e-6 * work.coarseness ** (1.0 / 3.0)
    values, vectors = np.empty(0), list[Any]()

    def beside(vector: Any) -> Any:
        vector = manifold.to_tangent_space(point, vector)
        for known in vectors * 2:
            vector = vector - known * work.dot(point, known, vector)
        return vector

    while len(vectors) < dim:
        start = beside(manifold.random_tangent_vector(point, rng))
        start = start * (1.0 / manifold.norm(point, start))
        krylov = lanczos(work, point, start, lambda vector: product(vector) * sign, beside)
        for basis, diagonal, off, rest in islice(krylov, dim - len(vectors)):  # noqa: B007
            ritz, shares = scipy.linalg.eigh_tridiagonal(diagonal, off)
            rounded = exact * np.abs(ritz).max()
            sure = rest * np.abs(shares[-1]) <= rounded
            # The rest of the last product may be rounding, which is not tangent or lies along known vectors.
            if rest <= 10.0 * rounded or (len(ritz) >= k and sure[:k].all()):
                break
        # Those above a missing one may not be the next ones.
        count = max(1, int(np.argmin(sure)) if not sure.all() else len(sure))
        last = len(values) >= k and ritz[0] >= np.sort(values)[k - 1]
        values = np.append(values, ritz[:count])
        vectors += [combined(basis, shares[:, place]) for place in range(count)]
        if last:
            break
    order = np.argsort(values, kind="stable")[:k]
    return sign * values[order], [vectors[place] for place in order]


def hessian_matrix(problem: Problem, point: Any, basis: list[Any] | None = None) -> Array:
    """Return the Riemannian Hessian at a point as a symmetric numpy matrix, in a basis of tangent vectors.

    Parameters
    ----------
    problem : Problem
        Of at most 2,000 dimensions.
    point : point
    basis : list of tangent vectors, optional
        An orthonormal basis, by default from `tangent_basis`.

    See Also
    --------
    hessian_spectrum : a few eigenvalues, in any dimension.

    Examples
    --------
    >>> import numpy as np
    >>> from rmopt import Problem, autograd_cost
    >>> from rmopt.manifolds import Sphere
    >>> from rmopt.solvers import hessian_matrix
    >>> A = np.diag([3.0, 1.0, 0.0])
    >>> problem = Problem(Sphere(3), autograd_cost(lambda x: 0.5 * x @ A @ x))
    >>> np.linalg.eigvalsh(hessian_matrix(problem, np.eye(3)[2])).round(6).tolist()
    [1.0, 3.0]
    """
    work, gradient = _looked(problem, point)
    basis = tangent_basis(work.manifold, point) if basis is None else basis
    product = work.hessian(point, gradient)
    images = [product(vector) for vector in basis]
    matrix = np.array([[work.inner(point, one, image) for image in images] for one in basis])
    return 0.5 * (matrix + matrix.T)


def tangent_basis(manifold: Manifold, point: Any) -> list[Any]:
    """Return an orthonormal basis of a tangent space, as a list of tangent vectors.

    Parameters
    ----------
    manifold : Manifold
        Of at most 2,000 dimensions.
    point : point

    Examples
    --------
    >>> from rmopt.manifolds import SymmetricPositiveDefinite
    >>> from rmopt.solvers import tangent_basis
    >>> manifold = SymmetricPositiveDefinite(3)
    >>> x = manifold.random_point(0)
    >>> basis = tangent_basis(manifold, x)
    >>> len(basis), round(manifold.inner_product(x, basis[0], basis[1]), 8) == 0.0
    (6, True)
    """
    _on(instance("manifold", manifold, Manifold, "a Manifold of rmopt"), point)
    if manifold.dim > LARGE:
        raise MissingCapabilityError(
            f"{manifold} has {manifold.dim} dimensions, and a basis may have at most {LARGE}; take hessian_spectrum, "
            "or a solver such as ParticleSwarm, which need none."
        )
    rng = np.random.default_rng(0)
    basis = [manifold.random_tangent_vector(point, rng) for _ in range(manifold.dim)]
    # The second pass removes the rounding errors of the first.
    for _ in range(2):
        gram = np.zeros((len(basis),) * 2)
        for i, one in enumerate(basis):
            gram[i, : i + 1] = [manifold.inner_product(point, one, other) for other in basis[: i + 1]]
        shares = np.linalg.inv(np.linalg.cholesky(gram + np.tril(gram, -1).T))
        stacks = zip(*map(arrays_of, basis), strict=True)
        turned = [mixed(shares, list(stack)) for stack in stacks]
        basis = [rebuilt(vector, [stack[i] for stack in turned]) for i, vector in enumerate(basis)]
    return basis


def mixed(shares: Array, arrays: list[Any]) -> Any:
    """Return weighted sums of arrays, with the weights in rows."""
    stack = ns.namespace(arrays[0]).stack(arrays)
    return ns.namespace(stack).tensordot(ns.matched(ns.asarray(shares, stack), stack), stack, axes=1)


def _looked(problem: Problem, point: Any) -> tuple[Oracle, Any]:
    """Return the oracle of a problem, after a first evaluation at a point, and the gradient there."""
    _on(instance("problem", problem, Problem, "an rmopt.Problem(manifold, cost)").manifold, point)
    problem.hold_to_cost("a Hessian")
    work = Oracle(problem, None, None)
    return work, work.first(point).gradient


def _on(manifold: Manifold, point: Any) -> None:
    if (reason := manifold.check_point(point)) is not None:
        raise InvalidInputError(f"the point is not on {manifold}: {reason}.")
