"""Laws of costs, their gradients and their Hessians."""

from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np

from rmopt import namespaces as ns
from rmopt.checks.geometry import in_other_factors, start_at, turn, written
from rmopt.checks.laws import Check, Law, along_several, hold, law, slope_check
from rmopt.core.ambient import Array, applied, dense
from rmopt.core.arguments import instance
from rmopt.core.cost import AgentSum, BlockCost, FiniteSum
from rmopt.core.manifold import Manifold
from rmopt.core.points import arrays_of, as_like, coarseness_of, in_precision
from rmopt.core.problem import Problem, ambient_at
from rmopt.costs import ConvexCost, Loss, ResidualSum
from rmopt.errors import MissingCapabilityError
from rmopt.manifolds import Elliptope, Grassmann, PSDFactors

# Sums over data in different orders.
SUMS = 1e-10
SEEDS = (int, np.integer, np.random.Generator, list, type(None))

COST: list[Law] = []
HESSIAN: list[Law] = []


def check_gradient(problem: Problem, rng: Any = 0, point: Any = None, dtype: Any = None) -> Check:
    """Check the Riemannian gradient: f(R(tξ)) − f(x) − t⟨grad, ξ⟩ falls like t², and the cost obeys its other laws.

    Parameters
    ----------
    problem : Problem
    rng : seed or Generator
        The seed for the point and the direction.
    point : object, optional
        Defaults to a random point.
    dtype : dtype, optional
        np.float32 for the laws in single precision. Defaults to that of the point, and to double without one.

    Returns
    -------
    Check
        The slope, which must be at least 2, or if it is, the first broken law of `check_cost`, if any.

    See Also
    --------
    check_hessian : second derivatives.

    References
    ----------
    Boumal, An Introduction to Optimization on Smooth Manifolds, Cambridge University Press (2023),
    https://doi.org/10.1017/9781009166164.

    Examples
    --------
    >>> import numpy as np
    >>> import rmopt
    >>> from rmopt.checks import check_gradient
    >>> from rmopt.core import Cost
    >>> from rmopt.manifolds import Sphere
    >>> class Wrong(Cost):
    ...     def value(self, x):
    ...         return np.sum(x**4)
    ...
    ...     def gradient(self, x):
    ...         return 3.0 * x**3
    >>> bool(check_gradient(rmopt.Problem(Sphere(5), Wrong())))
    False
    """
    first, *others = check_cost(problem, rng, point, dtype)
    return next((check for check in (first, *others) if not check), first)


def check_cost(problem: Problem, rng: Any = 0, point: Any = None, dtype: Any = None) -> list[Check]:
    """Check the gradient and all other methods of a cost: sums of terms, agents, blocks, a preconditioner.

    Parameters
    ----------
    problem : Problem
    rng, point, dtype : optional
        As in `check_gradient`.

    Returns
    -------
    list of Check
        The slope of the Taylor error, and a check for each law that applies.

    See Also
    --------
    check_gradient : one check instead of a list.
    """
    manifold, rng, x = _start(problem, rng, point, dtype)
    vectors = partial(manifold.random_tangent_vector, x, rng)
    # If a part has a proximal step, the value includes it and the gradient does not.
    slopes = along_several(partial(_taylor, problem, x), vectors) if _is_smooth(problem, x) else []
    laws = hold(COST, _subject(problem), _Cost(problem, x, rng), coarseness_of(x))
    return slopes + laws + [check for one in _constraints(problem) for check in check_cost(one, rng, x)]


def check_hessian(problem: Problem, rng: Any = 0, point: Any = None, dtype: Any = None) -> list[Check]:
    """Check the Riemannian Hessian: symmetric, hence linear, and the Taylor error of second order falls like t³.

    The Taylor error is measured along the default retraction if that is of second order, else along geodesics. It is
    left out if neither is known.

    Parameters
    ----------
    problem : Problem
    rng, point, dtype : optional
        As in `check_gradient`.

    Returns
    -------
    list of Check
        The slope and the symmetry.

    Raises
    ------
    MissingCapabilityError
        If the manifold or the cost has no second derivatives.
    """
    manifold, rng, x = _start(problem, rng, point, dtype)
    vectors = partial(manifold.random_tangent_vector, x, rng)
    xi, eta, taylor = vectors(), vectors(), partial(_taylor, problem, x, second=True)
    slopes = [] if _straight(manifold) is None else along_several(taylor, vectors, xi)
    laws = hold(
        HESSIAN, _subject(problem), (problem, x, xi, eta, problem.riemannian_hessian(x, xi)), coarseness_of(x)
    )
    bent = [one for one in _constraints(problem) if one.lacks_hessian() is None]
    return slopes + laws + [check for one in bent for check in check_hessian(one, rng, x)]


def _taylor(problem: Problem, x: Any, v: Any, second: bool = False) -> list[Check]:
    """Return the check of the Taylor error along a tangent vector, of first or of second order."""
    manifold, cost, gradient = problem.manifold, problem.cost, problem.riemannian_gradient(x)
    slope = manifold.inner_product(x, gradient, v)
    bend = 0.5 * manifold.inner_product(x, problem.riemannian_hessian(x, v), v) if second else 0.0
    move = _straight(manifold) if second else manifold.retraction
    start, direction, power = _line(problem, x, v)
    value = problem.real(cost.value(start))

    def error(t: float) -> float:
        return cost.value(move(start, t * direction)) - value - t * slope - t * t * bend

    if second:
        cause = (
            "the curvature of the manifold is missing, or `hessian` is not the derivative of `gradient`; or the "
            "retraction has not its declared order (see check_retraction)"
        )
        taylor = Law("Hessian", "the Taylor error of second order", cause, 3.0, error)
    else:
        cause = "a factor, a sign or a part that is missing in `gradient`; or a kink near this point"
        taylor = Law("gradient", "the Taylor error of first order", cause, 2.0, error)
    claim, probe = bend if second else slope, _probe(problem.gradient(x), x, np.random.default_rng(0))
    # A derivative that is zero up to the rounding of the ambient gradient predicts nothing.
    if not abs(claim) > 1e-12 * float(np.linalg.norm(_probed(problem.gradient(x), probe))) * coarseness_of(x):
        claim = 0.0
    return [slope_check(taylor, _subject(problem), abs(value) + abs(slope), coarseness_of(x), power, claim)]


def _start(problem: Problem, rng: Any, point: Any, dtype: Any) -> tuple[Manifold, Any, Any]:
    manifold = instance("problem", problem, Problem, "a Problem").manifold
    rng = np.random.default_rng(instance("rng", rng, SEEDS, "a seed or a Generator; a point is point=…"))
    return manifold, rng, in_precision(start_at(manifold, point, rng), dtype)


def _constraints(problem: Problem) -> list[Problem]:
    """Return problems with the constraints of this one as costs."""
    return [Problem(problem.manifold, one) for several in problem.constraints for one in several]


def _line(problem: Problem, x: Any, xi: Any) -> tuple[Any, Any, int]:
    """Return the start and velocity of a curve in double precision, and the growth of its errors with the step.

    Values along the curve of a point in single precision would drown in rounding. For the law of a derivative only
    the step's share is rounded. A cost of single data may refuse double points, and gets the curve as it is.
    """
    if coarseness_of(x) > 1.0:
        exact, along = in_precision(x, float), in_precision(xi, float)
        # A rounded point is off the manifold by a rounding.
        start = problem.manifold.retraction(exact, along * 0.0)
        with suppress(Exception):
            problem.cost.value(start)
            return start, along, 1
    return x, xi, 0


def _straight(manifold: Manifold) -> Any:
    """Return a map along curves without initial acceleration, or None if none is known."""
    if manifold.default_retraction.order >= 2:
        return manifold.retraction
    return manifold.exp if manifold.knows("exp") else None


# Costs


class _Cost:
    """A cost at a point, with its gradient and probes of operators."""

    def __init__(self, problem: Problem, x: Any, rng: np.random.Generator) -> None:
        self.problem, self.x, self.rng = problem, x, rng
        self.manifold: Any = problem.manifold
        # Each law tests for further methods of the cost.
        self.cost: Any = problem.cost
        self.gradient = problem.gradient(x)
        # Sizes are also those of another point, because at a minimum there is only rounding.
        other = as_like(problem.manifold.random_point(rng), x)
        self.value_size = max(abs(self.cost.value(x)), abs(self.cost.value(other)), np.finfo(float).tiny)
        # Operators are never formed: they may be large.
        self.probe = _probe(self.gradient, x, rng)
        self.size = np.linalg.norm(self.seen(problem.gradient(other)))

    def seen(self, ambient: Any) -> Array:
        """Return the probed numbers of an ambient gradient."""
        return _probed(ambient, self.probe)

    def seen_of(self, terms: Array) -> Array:
        """Return the probed numbers of the gradient of some terms."""
        ambient = self.cost.term_gradient(self.x, terms)
        return self.seen(ambient_at(self.manifold, self.x, ambient, self.cost, "term_gradient"))

    def gap(self, found: Any, expected: Any) -> float:
        """Return the difference of two ambient gradients, relative to the size of gradients."""
        return _relative(np.asarray(found), expected, self.size)

    def terms(self) -> Array:
        """Return all terms as rows. Laws of terms do not apply if the cost is a stream or not a sum."""
        if isinstance(self.cost, FiniteSum) and self.cost.n_terms is not None:
            return self.cost.all_terms().reshape(-1, self.cost.term_width)
        raise MissingCapabilityError(f"{self.cost} does not list its terms.")


@law(COST, "random numbers, or a state that `value` or `gradient` changes")
def _repetition(at: _Cost) -> float:
    """The same point gives the same value and gradient."""
    values = [at.cost.value(at.x) for _ in range(2)]
    again = at.gap(at.seen(at.problem.gradient(at.x)), at.seen(at.gradient))
    return max(abs(values[0] - values[1]) / at.value_size, again)


@law(COST, "an operation in place, such as `point -= …`", 0.0)
def _purity(at: _Cost) -> float:
    """Points, terms and directions stay unchanged."""
    calls: list[tuple[Any, ...]] = [(at.cost.value, at.x), (at.problem.gradient, at.x)]
    if isinstance(at.cost, FiniteSum) and at.cost.n_terms is not None and at.cost.term_width == 1:
        # The last ones: a schedule of zeros is a common slip.
        calls.append((at.cost.term_gradient, at.x, np.arange(at.cost.n_terms)[-2:]))
    if at.problem.lacks_hessian() is None:
        xi = at.manifold.random_tangent_vector(at.x, np.random.default_rng(0))
        calls.append((at.cost.hessian, at.x, at.manifold.embedding(at.x, xi)))
    return written(calls)


@law(COST, "the gradient's `T` is another operator", SUMS)
def _transposed_gradient(at: _Cost) -> float | None:
    """Uᵀ(G v) = (Gᵀu)ᵀv."""
    if ns.is_array(at.gradient) or len(at.gradient.shape) != 2:
        return None
    left = _probe(at.gradient.T, at.x, at.rng)
    there, back = left.T @ applied(at.gradient, at.probe), applied(at.gradient.T, left).T @ at.probe
    return at.gap(ns.to_numpy(there), ns.to_numpy(back))


@law(COST, "the cost depends on the basis or the factors of a point", 1e-08)
def _invariance(at: _Cost) -> float | None:
    """Two forms of one point have the same value."""
    forms = [_other_form(at.manifold, at.x, at.rng) for _ in range(5)]
    if forms[0] is None:
        return None
    return max(abs(at.cost.value(at.x) - at.cost.value(form)) for form in forms) / at.value_size


@law(COST, "a sign or a part missing in one; a mean; a term or row counted once (np.add.at counts all)", SUMS)
def _terms(at: _Cost) -> float:
    """`term_gradient` of all terms is the gradient, that of i, i, j counts i twice. `row_gradient` has its rows."""
    terms, cost = at.terms(), at.cost
    i, j = terms[at.rng.choice(len(terms), 2)]
    whole, of_i, of_j = (at.seen_of(np.concatenate(some)) for some in ((i, i, j), (i,), (j,)))
    errors = [at.gap(at.seen_of(terms.ravel()), at.seen(at.gradient)), at.gap(whole, 2.0 * of_i + of_j)]
    if callable(getattr(cost, "row_gradient", None)):
        few, expected = terms[:5].ravel(), np.zeros_like(at.x)
        rows, part = cost.row_gradient(at.x, few)
        expected[rows] = part
        errors.append(_relative(expected, dense(cost.term_gradient(at.x, few))))
    return max(errors)


@law(COST, "agent_value and agent_gradient are of different parts", SUMS)
def _agents(at: _Cost) -> Any:
    """Agents' values and gradients add up, and their curvature is symmetric and not negative."""
    if not isinstance(at.cost, AgentSum) or len(at.cost.here) != at.cost.n_terms:
        return None
    value = sum(at.cost.agent_value(at.x, agent) for agent in at.cost.here)
    parts, curvatures = zip(*(at.cost.agent_gradient(at.x, agent) for agent in at.cost.here), strict=True)
    errors = [abs(value - at.cost.value(at.x)) / at.value_size]
    errors.append(at.gap(sum(map(at.seen, parts)), at.seen(at.gradient)))
    for curvature in curvatures:
        if np.shape(curvature) != 2 * np.shape(at.x)[-1:]:
            return "a curvature is not of shape (r, r)"
        negative = -np.linalg.eigvalsh(curvature)[0] / np.linalg.norm(curvature)
        errors += [at.gap(curvature, curvature.T), negative]
    return float(max(errors))


@law(COST, "block_gradient is of another block, or misses a part", SUMS)
def _block_gradients(at: _Cost) -> Any:
    """`block_gradient` is the block of the gradient, and block_scale no less than its length."""
    if not isinstance(at.cost, BlockCost) or not hasattr(at.manifold, "block_of"):
        return None
    if at.cost.n_blocks != at.manifold.n_blocks:
        return f"the cost has {at.cost.n_blocks} blocks and the manifold {at.manifold.n_blocks}"
    error, size = 0.0, float(np.linalg.norm(dense(at.gradient)))
    for block in range(at.cost.n_blocks):
        expected = at.manifold.block_of(at.gradient, block)
        length = np.linalg.norm(getattr(expected, "column", dense(expected)))
        scale = at.cost.block_scale(at.x, block)
        if scale < (1.0 - SUMS) * length:
            return f"block_scale of block {block} is {scale:.3g}, below {length:.3g}"
        off = dense(at.cost.block_gradient(at.x, block)) - dense(expected)
        error = max(error, float(np.linalg.norm(off)) / size)
    return error


def _is_smooth(problem: Problem, x: Any) -> bool:
    """Return whether a cost's proximal steps, if any, do not move the point."""
    cost: Any = problem.cost
    manifold: Any = problem.manifold
    if not hasattr(cost, "proximal_step") or not hasattr(manifold, "block_of"):
        return True
    return all(np.array_equal(cost.proximal_step(x, block, 1.0), x) for block in range(manifold.n_blocks))


@law(COST, "the step has the wrong sign, or `value` lacks that part", SUMS)
def _proximal_step(at: _Cost) -> Any:
    """A step of length 0 stays, and longer ones lower the part that is not smooth."""
    cost, x, step = at.cost, at.x, 1e-4
    if not hasattr(at.cost, "proximal_step") or not hasattr(at.manifold, "block_of"):
        return None
    block = int(at.rng.integers(at.manifold.n_blocks))
    if float(np.abs(cost.proximal_step(x, block, 0.0) - x).max()) > 0.0:
        return "a step of length 0 moves the point"
    moved = cost.proximal_step(x, block, step)
    move = moved - x
    # The change of the smooth part, from the gradients at both ends.
    smooth = 0.5 * float(np.vdot(dense(at.gradient) + dense(cost.gradient(moved)), move))
    fall = cost.value(x) + smooth - cost.value(moved)
    return max(0.0, 0.3 * float(np.vdot(move, move)) / step - fall) / at.value_size


@law(COST, "one of them was changed and the other one not: solvers use either", SUMS)
def _shortcuts(at: _Cost) -> float:
    """`value_and_gradient` and `hessian_along` agree with `value`, `gradient` and `hessian`."""
    cost, manifold, x = at.cost, at.manifold, at.x
    value, ambient = cost.value_and_gradient(x)
    errors = [abs(value - cost.value(x)) / at.value_size]
    errors.append(at.gap(at.seen(ambient_at(manifold, x, ambient, cost)), at.seen(at.gradient)))
    if hasattr(cost, "hessian"):
        along = manifold.embedding(x, manifold.random_tangent_vector(x, at.rng))
        bent: tuple[Any, Any] = at.cost.hessian_along(x)(along), cost.hessian(x, along)
        found = [ambient_at(manifold, x, one, at.cost) for one in bent]
        errors.append(_relative(*map(at.seen, found)))
    return max(errors)


@law(COST, "a missing weight, or a slope by another variable", SUMS)
def _mixtures(at: _Cost) -> float | None:
    """`mixture` of factors has the value at the sum of their matrices, and its slopes are those of the gradient."""
    if not isinstance(at.cost, ConvexCost):
        return None
    Y = at.x if isinstance(at.x, np.ndarray) else at.x.factor()
    Z = at.rng.standard_normal((len(Y), 1)) * (np.linalg.norm(Y) / len(Y) ** 0.5)
    value, slopes = at.cost.mixture([Y, Z])(np.array([0.5, 2.0]))
    local = at.cost.at(np.hstack([0.5**0.5 * Y, 2.0**0.5 * Z]))
    expected = np.array([np.vdot(factor, local.apply(factor)) for factor in (Y, Z)])
    return max(abs(value - local.value) / max(at.value_size, abs(local.value)), _relative(slopes, expected))


@law(COST, "a preconditioner that is not positive: conjugate gradients fail with it", 1e-08)
def _preconditioner(at: _Cost) -> Any:
    """`precondition` is symmetric, hence linear, and positive on the tangent space, as is `preconditioner_at`."""
    precondition = at.cost.preconditioner_at(at.x)
    if precondition is None:
        return None
    manifold, x, inner = at.manifold, at.x, at.manifold.inner_product
    a, b = (manifold.random_tangent_vector(x, at.rng) * length for length in (1.0, 2.0))
    if written([(precondition, a)]):
        return "it changes its argument"
    of_a, of_b = precondition(a), precondition(b)
    if not min(inner(x, a, of_a), inner(x, b, of_b)) > 0.0:
        return "it is not positive"
    vectors = [manifold.to_tangent_space(x, of_a) - of_a]
    if hasattr(at.cost, "precondition"):
        vectors.append(at.cost.precondition(x, a) - of_a)
    errors = [abs(inner(x, of_a, b) - inner(x, a, of_b)), *(manifold.norm(x, vector) for vector in vectors)]
    return max(errors) / manifold.norm(x, of_b)


def _other_form(manifold: Manifold, x: Any, rng: np.random.Generator) -> Any:
    """Return the same point in another basis or other factors, or None if it has only one form."""
    if isinstance(manifold, Grassmann | Elliptope | PSDFactors):
        return x @ turn(x.shape[1], rng, x)
    if (form := in_other_factors(x, rng)) is None and manifold.knows("exp"):
        # There and back: a quotient ends in another form of the point, other manifolds in the same one.
        y = as_like(manifold.random_point(rng), x)
        return manifold.exp(y, manifold.log(y, x))
    return form


def _probe(ambient: Any, x: Any, rng: np.random.Generator) -> Array:
    """Return two random columns that an ambient gradient at a point can multiply."""
    return ns.matched(rng.standard_normal((ambient.shape[-1], 2)), arrays_of(x)[0])


def _probed(ambient: Any, probe: Array) -> np.ndarray:
    """Return the numbers of an ambient gradient, or those of its product with a probe, which takes little memory."""
    return ns.to_numpy(ambient if ns.is_array(ambient) and ambient.ndim != 2 else applied(ambient, probe))


# Hessians: (problem, x, ξ, η, Hξ)


@law(HESSIAN, "a curvature term with wrong sides; a cost that depends on the basis; or a constant")
def _Hessian_symmetry(about: Any) -> float:
    """⟨Hξ, ξ + 2η⟩ = ⟨ξ, H(ξ + 2η)⟩, which only holds for a linear map."""
    problem, x, xi, eta, of_xi = about
    inner, norm = problem.manifold.inner_product, problem.manifold.norm
    both = xi + eta * 2.0
    of_both = problem.riemannian_hessian(x, both)
    return abs(inner(x, of_xi, both) - inner(x, xi, of_both)) / max(1.0, norm(x, of_xi), norm(x, of_both))


@law(COST, "a sign, a factor or a part that J and its transpose do not share", SUMS)
def _transposed_residuals(at: _Cost) -> float | None:
    """⟨J ξ, w⟩ = ⟨ξ, Jᵀw⟩. The law of the gradient tests that Jᵀ belongs to these residuals."""
    if not isinstance(at.cost, ResidualSum):
        return None
    manifold, xi = at.manifold, at.manifold.random_tangent_vector(at.x, at.rng)
    forward, backward = at.cost.linearised(at.x)
    found = forward(manifold.embedding(at.x, xi))
    weights = at.rng.standard_normal(len(found))
    gradient = manifold.euclidean_to_riemannian_gradient(at.x, backward(weights))
    back = manifold.inner_product(at.x, xi, gradient)
    size = max(float(np.linalg.norm(found) * np.linalg.norm(weights)), np.finfo(float).tiny)
    return abs(float(found @ weights) - back) / size


def _relative(found: Array, expected: Array, size: Any = 0.0) -> float:
    size = max(np.linalg.norm(found), np.linalg.norm(expected), size, np.finfo(float).tiny)
    return float(np.linalg.norm(found - expected) / size)


def _subject(problem: Problem) -> str:
    cost = problem.cost
    loss = getattr(cost, "loss", None)
    named = type(cost).__repr__ is not object.__repr__
    name = repr(cost) if named else type(cost).__name__ + (f"({loss})" if isinstance(loss, Loss) else "")
    return f"{name} on {problem.manifold}"
