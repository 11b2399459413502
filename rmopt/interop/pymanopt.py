"""pymanopt's optimizers on rmopt's manifolds, and pymanopt's manifolds of single arrays as rmopt manifolds."""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from threading import RLock
from typing import Any

import numpy as np

from rmopt.core.ambient import Array, dense
from rmopt.core.arguments import instance, one_of, shown
from rmopt.core.manifold import FIELDS, Manifold
from rmopt.core.points import is_finite
from rmopt.core.problem import Problem
from rmopt.core.retraction import Retraction
from rmopt.core.streams import Stream, generator, seed_of
from rmopt.core.transport import ByProjection
from rmopt.errors import InvalidInputError, MissingCapabilityError
from rmopt.manifolds.arrays import ArrayManifold
from rmopt.namespaces import adjoint, is_complex
from rmopt.solvers.batch.oracle import Oracle, held
from rmopt.solvers.recorder import Recorder
from rmopt.solvers.result import Result
from rmopt.solvers.run import Callback, Solver, StopRule, finite_numbers
from rmopt.solvers.stop import Converged, asked

try:
    import pymanopt
    from pymanopt import manifolds, optimizers
    from pymanopt.manifolds.manifold import Manifold as PymanoptManifold
    from pymanopt.manifolds.manifold import RetrAsExpMixin, raise_not_implemented_error
except ImportError as error:
    raise MissingCapabilityError(
        f'the adapters of pymanopt need it, and it cannot be imported ({error}); pip install "rmopt[pymanopt]".'
    ) from error

# From here on isinstance(rmopt manifold, pymanopt manifold) holds, pymanopt's only requirement.
PymanoptManifold.register(Manifold)


def to_pymanopt(problem: Problem) -> pymanopt.Problem:
    """Return a problem for pymanopt's optimizers: cost, gradient and, if known, Hessian and preconditioner.

    Parameters
    ----------
    problem : Problem

    Examples
    --------
    >>> import pymanopt, rmopt
    >>> from rmopt.interop import to_pymanopt
    >>> from rmopt.manifolds import Sphere
    >>> problem = to_pymanopt(rmopt.Problem(Sphere(3), rmopt.autograd_cost(lambda x: x[0])))
    >>> result = pymanopt.optimizers.SteepestDescent(verbosity=0).run(problem)
    >>> result.cost < -0.999
    True
    """
    instance("problem", problem, Problem, "a Problem; rmopt's manifolds are pymanopt's as they are")
    return _watched(problem, Watch(problem, Recorder()))


def _watched(problem: Problem, watch: "Watch") -> pymanopt.Problem:
    manifold, cost = problem.manifold, problem.cost
    wrap = pymanopt.function.numpy(manifold)
    parts: dict[str, Any] = {"euclidean_gradient": wrap(watch.gradient)}
    if problem.lacks_hessian() is None:
        parts["euclidean_hessian"] = wrap(watch.hessian)
    if hasattr(cost, "precondition"):
        parts["preconditioner"] = cost.precondition
    return pymanopt.Problem(manifold, wrap(watch.value), **parts)


class Watch:
    """Watches an optimizer at work: counts its calls, measures its iterations, and may stop it.

    The current point is that of the latest gradient, evaluated right after the cost.
    """

    def __init__(
        self, problem: Problem, recorder: Recorder, stop: StopRule | None = None,
        callback: Callback | None = None,
    ) -> None:  # fmt: skip
        self.problem, self.recorder, self.stop, self.callback = problem, recorder, stop, callback
        self.counts = dict.fromkeys(("costs", "gradients", "hessians", "retractions"), 0)
        self.point, self.cost, self.tried = None, np.inf, np.inf
        self.reason: str | None = None
        self.seconds, self.begun = 0.0, time.perf_counter()

    def value(self, point: Any) -> float:
        self.counts["costs"] += 1
        self.tried = self.problem.value(point)
        # Line searches shorten a step to an infinite cost, and accept one to NaN.
        return np.inf if np.isnan(self.tried) else self.tried

    def gradient(self, point: Any) -> Any:
        self.counts["gradients"] += 1
        self.point, self.cost = point, self.tried
        return self.problem.gradient(point)

    def hessian(self, point: Any, direction: Any) -> Any:
        self.counts["hessians"] += 1
        return self.problem.cost.hessian(point, direction)  # type: ignore[attr-defined]

    def iteration(self, number: int, gradient_norm: float) -> str | None:
        """Add a row with the clock stopped, and return why to stop, or None."""
        self.seconds += time.perf_counter() - self.begun
        row = {"step": number, "updates": number, "seconds": self.seconds, "cost": float(self.cost)}
        self.recorder.measure(self.point, row | {"gradient_norm": float(gradient_norm)} | self.counts)
        self.recorder.advance(number)
        if self.callback is not None:
            self.callback(self.recorder.rows[-1])
        self.reason = None if self.stop is None else asked(self.stop, self.recorder.rows)
        self.begun = time.perf_counter()
        return self.reason


class PymanoptSolver(Solver):
    """Conjugate gradients or trust regions of pymanopt as an rmopt solver.

    Parameters
    ----------
    optimizer : {"ConjugateGradient", "TrustRegions"}
        Other optimizers, some without gradients, run on ``to_pymanopt(problem)``.
    **options : object
        Passed to the optimizer, e.g. ``max_iterations``.

    Raises
    ------
    InvalidInputError
        For an unknown optimizer.

    See Also
    --------
    rmopt.solvers.ConjugateGradient : rmopt's own, which is faster.

    References
    ----------
    Townsend, Koep and Weichwald, Pymanopt: a Python toolbox for optimization on manifolds using automatic
    differentiation, JMLR 17 (2016), https://jmlr.org/papers/v17/16-177.html.

    Examples
    --------
    >>> import numpy as np
    >>> import rmopt
    >>> from rmopt.manifolds import Sphere
    >>> from rmopt.interop import PymanoptSolver
    >>> energy = rmopt.autograd_cost(lambda x: 0.5 * (np.arange(1.0, 6.0) * x**2).sum())
    >>> problem = rmopt.Problem(Sphere(5), energy)
    >>> result = PymanoptSolver("TrustRegions").run(problem, random_state=0)
    >>> bool(np.isclose(problem.value(result.point), 0.5))
    True
    """

    takes_all_arrays = True

    def __init__(self, optimizer: str = "ConjugateGradient", **options: Any) -> None:
        self.optimizer = one_of("optimizer", optimizer, ("ConjugateGradient", "TrustRegions"))
        self.options = {"verbosity": 0} | options

    def begin(self, *arguments: Any, **options: Any) -> Any:
        raise MissingCapabilityError(
            f"pymanopt's {self.optimizer} has no states to iterate over or to save; pass `stop` "
            "and `recorder` to run, or take the solver of rmopt.solvers."
        )

    advance = iterate = begin

    def _whole(
        self, problem: Problem, initial_point: Any, random_state: Any, stop: StopRule | None, recorder: Recorder,
        checkpoint: Any, threads: int | None, callback: Callback | None,
    ) -> Result:  # fmt: skip
        """Run pymanopt's optimizer, with a row and an update for each iteration."""
        if checkpoint is not None:
            self.begin()
        self.check_problem(problem)
        seed, lacking = seed_of(random_state), problem.lacks_hessian()
        if self.optimizer == "TrustRegions" and lacking is not None:
            raise MissingCapabilityError(f"TrustRegions needs second derivatives: {lacking}")
        given = initial_point.point if isinstance(initial_point, Result) else initial_point
        start = self._started(problem, given, generator(seed, Stream.POINT))
        problem.probe(start)
        watch = Watch(problem, recorder, stop, callback)
        optimizer = getattr(optimizers, self.optimizer)(**self.options)
        foreign, usual = _watched(problem, watch), optimizer._check_stopping_criterion

        def criterion(**seen: Any) -> str | None:
            return watch.iteration(seen["iteration"], seen["gradient_norm"]) or usual(**seen)

        optimizer._check_stopping_criterion = criterion
        watch.recorder.begin(0, optimizer._max_iterations, [])
        try:
            with finite_numbers(0):
                found = optimizer.run(foreign, initial_point=start)
        finally:
            watch.recorder.end()
            # Both refer to themselves: cycles in which the data would wait for the garbage collector.
            vars(optimizer).clear()
            vars(foreign).clear()
        point, steps, why = found.point, found.iterations, str(found.stopping_criterion)
        if not (np.isfinite(found.cost) and is_finite(point)):
            raise self.diverged(steps)
        converged = isinstance(watch.reason, Converged) if watch.reason else "grad norm" in why
        rows = watch.recorder.rows
        result = Result(point, steps, steps, watch.seconds, why, seed, rows, converged, watch.counts, threads)
        gradient = problem.riemannian_gradient(point)
        norm = problem.manifold.norm(point, gradient)
        return held(result, Oracle(problem, None, None, seed), found.cost, gradient, norm, norm, np.inf)


class ForeignRetraction(Retraction):
    """The retraction of a pymanopt manifold."""

    order = 1
    name = "foreign"

    def __call__(self, manifold: Any, point: Array, tangent: Array, t: float = 1.0) -> Array:
        return manifold.foreign.retraction(point, t * tangent)


def _has(foreign: Any, method: str) -> bool:
    """Return whether pymanopt has a closed form, and not a retraction instead of a geodesic."""
    without = raise_not_implemented_error(len).__code__, RetrAsExpMixin.exp.__code__
    return getattr(type(foreign), method).__code__ not in without


def _skew(foreign: Any, point: Array, ambient: Array) -> Array:
    return foreign.to_tangent_space(point, adjoint(point) @ ambient)


HERMITIAN = (manifolds.HermitianPositiveDefinite, manifolds.SpecialHermitianPositiveDefinite)
# Methods that pymanopt 2.2.1 computes as if all numbers were real.
_MENDED: dict[tuple[type, str], Any] = {
    (manifolds.ComplexCircle, "exp"): lambda _, point, vector: (
        point * np.exp(1j * (point.conj() * vector).imag)
    ),
    (manifolds.UnitaryGroup, "projection"): _skew,
    (manifolds.UnitaryGroup, "euclidean_to_riemannian_gradient"): _skew,
}


def _as_there(method: str) -> Any:
    """Return a method that calls pymanopt's, if it has one."""

    def asked(self: "FromPymanopt", *arguments: Any) -> Any:
        if not _has(self.foreign, method):
            raise MissingCapabilityError(
                f"{self} has no `{method}`; choose a manifold or a solver that needs none."
            )
        arrays = map(dense, arguments)
        if (mended := _MENDED.get((type(self.foreign), method))) is not None:
            return mended(self.foreign, *arrays)
        return getattr(self.foreign, method)(*arrays)

    asked.__doc__ = getattr(Manifold, method, asked).__doc__
    return asked


class FromPymanopt(ArrayManifold):
    """A pymanopt manifold whose points are arrays, as an rmopt manifold.

    Closed forms of the foreign manifold (`exp`, `log`, `dist`, `pair_mean`) are available. Points of complex
    manifolds stay complex. Errors of pymanopt 2.2.1 with complex numbers are corrected: the gradients of
    `UnitaryGroup`, `exp` of `ComplexCircle`, and the dimensions of Hermitian positive definite matrices.

    Parameters
    ----------
    foreign : pymanopt manifold
        With `point_layout` 1, e.g. ``Sphere(5)``.

    Raises
    ------
    InvalidInputError
        For anything else.
    """

    _inner_product = _as_there("inner_product")
    transport = _as_there("transport")
    exp = _as_there("exp")
    log = _as_there("log")
    dist = _as_there("dist")
    pair_mean = _as_there("pair_mean")
    projection = _as_there("projection")
    embedding = _as_there("embedding")
    euclidean_to_riemannian_gradient = _as_there("euclidean_to_riemannian_gradient")
    euclidean_to_riemannian_hessian = _as_there("euclidean_to_riemannian_hessian")
    default_retraction: Retraction = ForeignRetraction()
    retractions: Mapping[str, Retraction] = {"foreign": ForeignRetraction()}

    def __init__(self, foreign: Any) -> None:
        ours = isinstance(foreign, Manifold) or not isinstance(foreign, PymanoptManifold)
        if ours or foreign.point_layout != 1:
            raise InvalidInputError(
                f"from_pymanopt needs a manifold made by pymanopt whose points are single arrays, e.g. "
                f"pymanopt.manifolds.Sphere(5), got {shown(foreign)}."
            )
        self.foreign = foreign
        point = self.random_point(np.random.default_rng(0))
        self.shape = point.shape
        self._take(FIELDS[is_complex(point)])
        if not _has(foreign, "transport"):
            self.default_transport = ByProjection()

    def __repr__(self) -> str:
        return f"FromPymanopt({self.foreign})"

    @property
    def dim(self) -> int:
        dim = int(self.foreign.dim)
        # There the diagonals count as complex.
        return dim - self.foreign._k * self.foreign._n if isinstance(self.foreign, HERMITIAN) else dim

    @property
    def typical_dist(self) -> float:
        try:
            return float(self.foreign.typical_dist)
        except NotImplementedError:
            return super().typical_dist

    def inner_product(self, point: Array, tangent_vector_a: Array, tangent_vector_b: Array) -> float:
        return float(np.real(self._inner_product(point, tangent_vector_a, tangent_vector_b)))

    def random_point(self, rng: np.random.Generator | None = None) -> Array:
        """Return a random point from pymanopt, which draws from numpy's global state, here seeded and restored."""
        with global_seed(rng):
            return self.foreign.random_point()

    @property
    def knows_hessians(self) -> bool:
        return _has(self.foreign, "euclidean_to_riemannian_hessian")

    def knows(self, method: str) -> bool:
        return _has(self.foreign, method)

    def refusal(self, point: Array) -> str | None:
        """Return why `point` is not on the manifold, or None, since pymanopt has no such check.

        The test uses the zero step, which does not move a point of the manifold, and the enclosing linear space or
        cone, if pymanopt has one.
        """
        if not isinstance(point, np.ndarray):
            return f"it is of another library, and {self} computes with numpy; convert it"
        try:
            nearest = self.foreign.retraction(point, np.zeros_like(point))
        except np.linalg.LinAlgError as error:
            return f"a step of length zero fails ({error})"
        if isinstance(self.foreign, manifolds.Symmetric | manifolds.SkewSymmetric):
            nearest = self.foreign.projection(nearest, nearest)
        elif isinstance(self.foreign, manifolds.Positive):
            nearest = np.abs(nearest)
        elif hasattr(self.foreign, "_subspace_projector"):
            nearest = self.foreign._subspace_projector @ nearest
        off = np.linalg.norm(nearest - point) / max(1.0, float(np.linalg.norm(point)))
        return None if off < 1e-8 else f"a step of length zero moves the point by {off:.1e}"


_GLOBAL = RLock()


@contextmanager
def global_seed(rng: np.random.Generator | None) -> Iterator[None]:
    """Seed numpy's global state inside a with block and restore it afterwards."""
    # All threads share this state, and draws here may need more.
    with _GLOBAL:
        before = np.random.get_state()
        np.random.seed(int(np.random.default_rng(rng).integers(2**32)))
        try:
            yield
        finally:
            np.random.set_state(before)


def from_pymanopt(manifold: Any) -> FromPymanopt:
    """Return a manifold of pymanopt as one of rmopt (see `FromPymanopt`).

    Parameters
    ----------
    manifold : pymanopt manifold
        For example ``pymanopt.manifolds.Sphere(5)``.

    Examples
    --------
    >>> import numpy as np, pymanopt
    >>> from rmopt.interop import from_pymanopt
    >>> manifold = from_pymanopt(pymanopt.manifolds.Sphere(4))
    >>> manifold.dim, manifold.random_point(np.random.default_rng(0)).shape
    (3, (4,))
    """
    return FromPymanopt(manifold)
