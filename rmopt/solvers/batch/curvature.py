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

# Dimensions up to which a Hessian is written out.
LARGE = 2000


def hessian_spectrum(
    problem: Problem, point: Any, k: int = 6, which: str = "smallest"
) -> tuple[Array, list[Any]]:
    """Return the k smallest or largest eigenvalues of the Riemannian Hessian at a point, with eigenvectors.

    By Lanczos steps on tangent vectors, whatever the metric, and again beside what was found: an eigenvalue that
    occurs several times is found so many times. Where the problem has no second derivatives, differences of gradients
    stand for them, and eigenvalues are known to about a millionth of the largest one.

    Parameters
    ----------
    problem : Problem
    point : point
        Where the gradient is zero the signs are those of a minimum, a saddle or a maximum.
    k : int
    which : {"smallest", "largest"}

    Returns
    -------
    values : array, shape (k,)
        Ascending, or descending if they are the largest; as many as there are dimensions at most.
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
            # What is left of the last product may be rounding, which is not tangent, or lies along known vectors.
            if rest <= 10.0 * rounded or (len(ritz) >= k and sure[:k].all()):
                break
        # Those above one that is not known yet may not be the next ones.
        count = max(1, int(np.argmin(sure)) if not sure.all() else len(sure))
        last = len(values) >= k and ritz[0] >= np.sort(values)[k - 1]
        values = np.append(values, ritz[:count])
        vectors += [combined(basis, shares[:, place]) for place in range(count)]
        if last:
            break
    order = np.argsort(values, kind="stable")[:k]
    return sign * values[order], [vectors[place] for place in order]


def hessian_matrix(problem: Problem, point: Any, basis: list[Any] | None = None) -> Array:
    """Return the Riemannian Hessian at a point as a symmetric matrix of numpy, by a basis of tangent vectors.

    Parameters
    ----------
    problem : Problem
        Of at most 2,000 dimensions.
    point : point
    basis : list of tangent vectors, optional
        Orthonormal ones; those of `tangent_basis` unless given.

    See Also
    --------
    hessian_spectrum : a few eigenvalues, of any size.

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
    """Return an orthonormal basis of a tangent space, of as many vectors as the manifold has dimensions.

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
            f"{manifold} has {manifold.dim} dimensions, and a basis is written out up to {LARGE}; take "
            "hessian_spectrum, or a solver such as ParticleSwarm, which need none."
        )
    rng = np.random.default_rng(0)
    basis = [manifold.random_tangent_vector(point, rng) for _ in range(manifold.dim)]
    # The second time for the roundings of the first one.
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
    """Return sums of arrays, with shares in rows."""
    stack = ns.namespace(arrays[0]).stack(arrays)
    return ns.namespace(stack).tensordot(ns.matched(ns.asarray(shares, stack), stack), stack, axes=1)


def _looked(problem: Problem, point: Any) -> tuple[Oracle, Any]:
    """Return a problem as solvers ask it, after a first look at a point, and the gradient there."""
    _on(instance("problem", problem, Problem, "an rmopt.Problem(manifold, cost)").manifold, point)
    problem.hold_to_cost("a Hessian")
    work = Oracle(problem, None, None)
    return work, work.first(point).gradient


def _on(manifold: Manifold, point: Any) -> None:
    if (reason := manifold.check_point(point)) is not None:
        raise InvalidInputError(f"the point is not on {manifold}: {reason}.")
