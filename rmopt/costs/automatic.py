"""Costs by automatic differentiation, as functions of arrays, the factors of W = A Bᵀ, or the parts of products."""

import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import cache, cached_property
from itertools import chain
from types import SimpleNamespace
from typing import Any

import numpy as np

from rmopt import namespaces as ns
from rmopt.core.ambient import Array
from rmopt.core.arguments import shown
from rmopt.core.cost import Cost
from rmopt.core.low_rank import LowRankPoint, PSDFactor, PSDPoint
from rmopt.core.product import Parts
from rmopt.core.runs import current_run
from rmopt.core.tensors import Partials, TensorPoint
from rmopt.core.values import Value
from rmopt.costs import point_forms as forms
from rmopt.costs.backends import AUTOGRAD, JAX, TORCH, Backend
from rmopt.errors import InvalidInputError

__all__ = ["AutomaticCost", "autograd_cost", "jax_cost", "torch_cost"]


class AutomaticCost(Cost):
    """A cost with automatic derivatives, exact to rounding and computed with the value.

    The function takes the components of points: an array X, or the factors A (n, j) and B (m, j), for any j, of a
    matrix W = A Bᵀ of fixed rank, on which alone it may depend: A @ B.T without conjugates, also if complex. On a
    product it takes one argument for each part, a pair (A, B) if the part is such a matrix.

    Arrays of the function's library are passed unchanged, others by way of numpy. Derivatives are in the point's
    library. For complex numbers they are ∂/∂Re + i ∂/∂Im, so that f changes by Re tr(Gᴴ dX).

    The derivative G by W is known by its actions: the derivatives of f([A 0 Y], [B X 0]) by the two factors end in G
    X and Gᵀ Y. Singular values and their gaps are never divisors, so tied values need no special case, and no n × m
    array is formed unless the function forms one.

    Parameters
    ----------
    function : callable
        Returns a number.
    backend : Backend
        The library that differentiates it.

    Raises
    ------
    InvalidInputError
        If it is not a function of arrays. From `value`, `gradient` and `hessian` if the function returns no finite
        number at the first point or depends on more than A Bᵀ.

    References
    ----------
    Townsend, Koep and Weichwald, Pymanopt: a Python toolbox for optimization on manifolds using automatic
    differentiation, JMLR 17 (2016), https://jmlr.org/papers/v17/16-177.html.

    Examples
    --------
    >>> import numpy as np
    >>> from rmopt.costs import AutomaticCost
    >>> cost = AutomaticCost(lambda X: (X**2).sum())
    >>> cost.value(np.ones((2, 2))), cost.gradient(np.ones((2, 2))).tolist()
    (4.0, [[2.0, 2.0], [2.0, 2.0]])
    """

    point_type = (np.ndarray, LowRankPoint, PSDPoint, PSDFactor, TensorPoint, Parts)

    def __init__(self, function: Callable[..., Any], backend: Backend = AUTOGRAD) -> None:
        if not callable(function):
            raise InvalidInputError(
                f"{backend.name}_cost, or {backend.name}_residuals, needs a function of the factors A and B, or of a "
                f"point that is an array, got {function!r}."
            )
        backend.module()
        self.function = function
        # A backend that compiles has more methods.
        self.backend: Any = backend
        self.__doc__ = function.__doc__

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in vars(self).items() if key not in ("_known", "weighted")}

    def __call__(self, *arguments: Any) -> float:
        """Return the function's value, checked to be a number."""
        return self._real(self.function(*arguments))

    def refuses(self, point_type: type) -> str | None:
        """Return one sentence on why the function does not take points of a class, or None."""
        reason = super().refuses(point_type)
        if reason is not None or issubclass(point_type, Parts | TensorPoint):
            return reason
        is_array = issubclass(point_type, np.ndarray | PSDFactor)
        if self._takes(1 if is_array else 2):
            return None
        wanted, kind = "the point alone" if is_array else "A and B with W = A Bᵀ", point_type.__name__
        if issubclass(point_type, PSDFactor):
            wanted += ", an array Y, or give OnFactors a function of A and B"
        return f"{self._name} does not take a point of type {kind}; write a function of {wanted}."

    def _takes(self, count: int) -> bool:
        """Return whether the function's signature allows a number of arguments."""
        with suppress(ValueError):
            try:
                inspect.signature(self.function).bind(*range(count))
            except TypeError:
                return False
        return True

    @property
    def _name(self) -> str:
        return f"the cost {getattr(self.function, '__name__', 'function')}"

    def value(self, point: Any) -> float:
        return self._real(self._ready("value", self._taken(point), point)(forms.flat_of(point)))

    def evaluated(self, point: Any) -> Any:
        """Return the function's value at a point, unchecked."""
        given = map(self.backend.given, forms.flat_of(point))
        found = self._function_of(forms.form_of(point))(*given)
        return ns.to_numpy(found) if ns.is_array(found) else found

    def as_one(
        self, name: str, function: Callable[..., Any], first: Sequence[Any], key: Sequence[Any]
    ) -> Any:
        """Return a compiled function of points that calls this one, or an uncompiled one if that fails.

        The last one of each precision is cached with the other compiled functions, for equal parts `key`.
        """
        leaf = forms.flat_of(first[0])[0]
        if not self.backend.compiles or self.backend.name not in ns.namespace(leaf).__name__:
            return function
        place, kept = (name, str(leaf.dtype)), self._known.made
        if place not in kept or not all(map(Value.__eq__, kept[place][0], key)):
            kept[place] = key, self.backend.compiled(function)
            try:
                kept[place][1](*first)
            except Exception:
                # The function needs concrete numbers on the way.
                kept[place] = key, None
        return kept[place][1] or function

    def value_and_gradient(self, point: Any) -> tuple[float, Any]:
        """Return cost and gradient by one evaluation: an array, an operator, or `Parts` of both."""
        value, gradient = self.unread(point)
        return self._real(value), gradient

    def unread(self, point: Any) -> tuple[Any, Any]:
        """Return `value_and_gradient`, with the function's own value on its device."""
        form, leaves = self._taken(point), forms.leaves_of(point)
        arguments = [forms.widened(leaf) for leaf in leaves]
        slopes = self._ready("slopes", form, point)
        value, found = slopes(_flat(arguments))

        def again(i: int, right: Array, left: Array) -> list[Array]:
            pair = forms.pair_of(leaves[i], right, left)
            return slopes(_flat([*arguments[:i], pair, *arguments[i + 1 :]]))[1]

        return value, self._assembled(point, form, leaves, found, again)

    def hessian(self, point: Any, direction: Any) -> Any:
        """Return the derivative of the gradient along an ambient direction, in the gradient's form."""
        return self.hessian_along(point)(direction)

    def hessian_along(self, point: Any) -> Callable[[Any], Any]:
        """Return `hessian` at a point, with the work for the point done once."""
        form, leaves = self._taken(point), forms.leaves_of(point)
        arguments = [forms.widened(leaf) for leaf in leaves]
        bent = self._ready("bent", form, point)
        at_point = cache(lambda: bent(_flat(arguments)))

        def along(direction: Any) -> Any:
            blocks = forms.with_blocks(point, direction)

            def at(bases: dict[int, tuple[Array, Array]]) -> list[Array]:
                pairs = [
                    forms.moved(leaf, block, *(bases.get(i) or forms.bases_of(leaf)))
                    for i, (leaf, block) in enumerate(zip(leaves, blocks, strict=True))
                ]
                wide, moves = (_flat(side) for side in zip(*pairs, strict=True))
                return bent(wide)(moves)

            tangents = [forms.tangent_move(*pair) for pair in zip(leaves, blocks, strict=True)]
            moves = [tangent for tangent in tangents if tangent is not None]
            found = at_point()(_flat(moves)) if len(moves) == len(leaves) else at({})
            return self._assembled(point, form, leaves, found, lambda i, *pair: at({i: pair}))

        return along

    def _taken(self, point: Any) -> forms.Form:
        """Return the form of a point, and probe the function once for each form and each type of numbers."""
        form = forms.form_of(point)
        kind = form, forms.flat_of(point)[0].dtype
        if kind not in self._known.probed:
            if isinstance(point, Parts | TensorPoint) and not self._takes(len(point.parts)):
                raise InvalidInputError(
                    f"{self._name} must take one argument for each of the {len(point.parts)} parts of a point."
                )
            self._probe(form, point)
            self._known.probed.add(kind)
        return form

    @cached_property
    def _known(self) -> SimpleNamespace:
        # The probed forms, the functions derived from the function, and the run in which they were compared with it.
        return SimpleNamespace(probed=set(), made={}, held={})

    def _ready(self, kind: str, form: forms.Form, point: Any) -> Any:
        """Return the function for the value, the slopes or the second derivatives ("bent") by a list of arrays.

        Compiled functions hold outside values from the time of compilation. So they serve runs alone, during which no
        name is rebound, and once per run they are compared with the original.
        """
        if self.backend.compiles:
            run = current_run()
            if run is None:
                return self._make(kind, form, self.backend.uncompiled())
            if run != self._known.held.get(form):
                self._hold(form, _flat(map(forms.widened, forms.leaves_of(point))))
                self._known.held[form] = run
        return self._kept(kind, form)

    def _kept(self, kind: str, form: forms.Form) -> Any:
        made = self._known.made
        if (kind, form) not in made:
            made[kind, form] = self._make(kind, form, self.backend)
        return made[kind, form]

    def _make(self, kind: str, form: forms.Form, backend: Backend) -> Any:
        function = self._function_of(form)
        if kind == "value":
            return backend.value(function)
        count = sum(1 if kind == forms.ARRAY else 2 for kind in forms.kinds_in(form))
        return getattr(backend, kind)(function, count)

    def _hold(self, form: forms.Form, arguments: list[Array]) -> None:
        """Compare compiled value and slopes with the function, and compile again if they differ."""
        known = self._known
        try:
            value, plain = self._make("slopes", form, self.backend.uncompiled())(arguments)
        except Exception:
            # The library needs compilation, or the compiled function will raise the same error.
            known.made.clear()
            return
        compiled, found = self._kept("slopes", form)(arguments)
        pairs = [[*map(ns.to_numpy, pair)] for pair in zip([value, *plain], [compiled, *found], strict=True)]
        sizes = [float(np.max(abs(part), initial=0.0)) for part, _ in pairs]
        limit = ns.slack(1e-9, *arguments)
        if not all(
            np.allclose(other, part, rtol=0.0, atol=limit * (size + 1e-6 * max(sizes)), equal_nan=True)
            for (part, other), size in zip(pairs, sizes, strict=True)
        ):
            known.made.clear()
            # The user may have compiled an inner function.
            self.backend.forget()

    @cached_property
    def weighted(self) -> "AutomaticCost":
        """The weighted sum of the function's values at many points. The second part holds the weights."""

        def total(points: Any, weights: Any) -> Any:
            values = self.function(points)
            if tuple(getattr(values, "shape", ())) != tuple(weights.shape):
                raise InvalidInputError(
                    f"{self._name} returned {shown(values)}, and of {weights.shape[0]} points it must return as many "
                    "numbers: one for each."
                )
            return (weights * values).sum()

        return AutomaticCost(total, self.backend)

    def _function_of(self, form: forms.Form) -> Callable[..., Any]:
        """Return the function of a flat list of arrays: two for each matrix."""

        def part(form: forms.Form, flat: Iterator[Any]) -> Any:
            if form == forms.ARRAY:
                return next(flat)
            if isinstance(form, str):
                return next(flat), next(flat)
            return tuple(part(one, flat) for one in form)

        def of_flat(*flat: Any) -> Any:
            arguments = part(form, iter(flat))
            return self.function(*([arguments] if form == forms.ARRAY else arguments))

        return of_flat

    def _assembled(
        self,
        point: Any,
        form: forms.Form,
        leaves: list[Any],
        found: Sequence[Array],
        again: Callable[..., Any],
    ) -> Any:
        """Return derivatives in the form of a point. `again` computes those for other blocks X and Y of a leaf."""
        parts: list[Any] = []
        place = 0
        for i, leaf in enumerate(leaves):
            if ns.is_array(leaf):
                parts.append(found[place])
                place += 1
                continue
            here = slice(place, place + 2)

            def act(right: Array, left: Array, i: int = i, here: slice = here) -> tuple[Array, Array]:
                return forms.images_of(again(i, right, left)[here], right, left)

            parts.append(forms.derivative(leaf, act, forms.images_of(found[here], *forms.bases_of(leaf))))
            place += 2
        whole = forms.gathered(form, iter(parts))
        return Partials(point, whole.parts) if isinstance(point, TensorPoint) else whole

    def _probe(self, form: forms.Form, point: Any) -> None:
        """Compare the function with wider pairs of factors of the same matrices, once."""
        function, flat = self._function_of(form), forms.flat_of(point)

        def at(arrays: Sequence[Array]) -> float:
            return self._real(function(*map(self.backend.given, arrays)))

        try:
            value = at(flat)
        except RuntimeError as error:
            if "type" in (said := str(error)):
                remedy = "make data so, or give initial_point=manifold.random_point(0, like=data)"
                if "omplex" in said and not ns.is_complex(flat[0]):
                    remedy = 'for complex data give the manifold field="complex"'
                error.add_note(f"Points are {flat[0].dtype}; {remedy}.")
            raise
        if forms.MATRIX not in forms.kinds_in(form):
            return
        if not np.isfinite(value):
            raise InvalidInputError(f"{self._name} is {value} at the first point; start elsewhere.")
        # A value near 0 may be a difference of large ones, whose scale the value at a multiple of the point shows.
        with np.errstate(all="ignore"):
            other = at(_flat(map(forms.turned, forms.leaves_of(point))))
            elsewhere = at([1.5 * part for part in flat])
        scale = max(abs(number) for number in (value, elsewhere) if np.isfinite(number))
        if not abs(other - value) <= ns.slack(1e-6, *flat) * scale:
            raise InvalidInputError(
                f"{self._name} depends on more than A Bᵀ: {value:.6g} and {other:.6g} for two pairs of factors of "
                "one matrix. Use A and B only in products such as A @ B.T or sum(A[i] * B[j]), also if complex."
            )


def _flat(arguments: Iterable[Any]) -> list[Array]:
    return list(chain.from_iterable(arguments))


def autograd_cost(function: Callable[..., Any]) -> AutomaticCost:
    """Turn a function written with ``autograd.numpy`` into a cost with automatic derivatives.

    Parameters
    ----------
    function : callable
        It takes the point if points are arrays, the two factors A and B of W = A Bᵀ on matrices of fixed rank, and
        one argument for each part on products (see `AutomaticCost`).

    Returns
    -------
    AutomaticCost

    Raises
    ------
    InvalidInputError
        If it is not a function of arrays.
    MissingCapabilityError
        If autograd is not installed.

    See Also
    --------
    jax_cost : compiled, also for accelerators.
    torch_cost : tensors of PyTorch.
    rmopt.costs.autograd_residuals : functions with several values.

    Examples
    --------
    >>> import autograd.numpy as anp, numpy as np
    >>> from rmopt import Problem, autograd_cost
    >>> from rmopt.manifolds import Euclidean, Grassmann, Product
    >>> from rmopt.solvers import TrustRegions
    >>> X = np.random.default_rng(0).standard_normal((50, 6)) + 3.0
    >>> @autograd_cost
    ... def residuals(U, offset):
    ...     centred = X - offset.T
    ...     return anp.sum((centred - centred @ U @ U.T) ** 2)
    >>> plane = Product([Grassmann(6, 2), Euclidean(6, 1)])
    >>> TrustRegions().run(Problem(plane, residuals), random_state=0).converged
    True
    """
    return AutomaticCost(function, AUTOGRAD)


def jax_cost(function: Callable[..., Any]) -> AutomaticCost:
    """Turn a function written with ``jax.numpy`` into a cost, as `autograd_cost` does, compiled in solvers.

    It switches JAX to double precision: create data after that, or they are in single precision. Outside runs the
    function is not compiled. Once per run the compiled version is compared with the function itself.

    Parameters
    ----------
    function : callable
        As in `autograd_cost`.

    Raises
    ------
    MissingCapabilityError
        If JAX is not installed.

    Examples
    --------
    >>> import jax.numpy as jnp, numpy as np  # doctest: +SKIP
    >>> from rmopt import Problem, jax_cost
    >>> from rmopt.manifolds import Sphere
    >>> from rmopt.solvers import LBFGS
    >>> cost = jax_cost(lambda x: jnp.vdot(jnp.arange(3.0), x))  # doctest: +SKIP
    >>> x = LBFGS().run(Problem(Sphere(3), cost), random_state=0).point  # doctest: +SKIP
    >>> bool(np.allclose(x, -np.arange(3.0) / 5**0.5, atol=1e-5))  # doctest: +SKIP
    True
    """
    return AutomaticCost(function, JAX)


def torch_cost(function: Callable[..., Any]) -> AutomaticCost:
    """Turn a function of PyTorch tensors into a cost, as `autograd_cost` does.

    A point that is a tensor is passed without a copy, on its device. Others become tensors of the point's precision,
    double unless it is single. PyTorch does not multiply matrices of two precisions: convert data in the function by
    ``data.to(x.dtype)``.

    Parameters
    ----------
    function : callable
        As in `autograd_cost`.

    Raises
    ------
    MissingCapabilityError
        If PyTorch is not installed.
    """
    return AutomaticCost(function, TORCH)
