"""Libraries of automatic differentiation behind three functions: join blocks, first and second derivatives."""

import importlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from rmopt import namespaces as ns
from rmopt.core.ambient import Array
from rmopt.core.product import Parts
from rmopt.errors import InvalidInputError, MissingCapabilityError, warn

__all__ = ["AUTOGRAD", "JAX", "TORCH", "Autograd", "Backend", "Jax", "Torch"]

Slopes = Callable[[Sequence[Array]], tuple[Any, list[Array]]]
Product = Callable[[Sequence[Array]], list[Array]]
Bent = Callable[[Sequence[Array]], Product]


class Backend(ABC):
    """A library that differentiates functions of arrays.

    It takes its own arrays unchanged, and those of other libraries by way of numpy. Derivatives are in the library of
    their arguments, and are ∂/∂Re + i ∂/∂Im for complex numbers.

    Attributes
    ----------
    name : str
        The name of its package.
    compiles : bool
        Whether functions are compiled before calls. Then it also has the methods of `Jax`.
    conjugates : bool
        Whether its own complex derivatives are ∂/∂Re − i ∂/∂Im.

    References
    ----------
    Baydin, Pearlmutter, Radul and Siskind, Automatic differentiation in machine learning: a survey, JMLR 18
    (2018), https://jmlr.org/papers/v18/17-468.html.
    """

    name: str
    compiles: bool = False
    conjugates: bool = True

    def module(self, part: str = "") -> Any:
        """Return the library, or a part of it such as ``".numpy"``. The error explains how to install it."""
        try:
            return importlib.import_module(self.name + part)
        except ImportError as error:
            raise MissingCapabilityError(
                f"{self.name}_cost and {self.name}_residuals need {self.name}, which cannot be imported ({error}); "
                f'pip install "rmopt[{self.name}]".'
            ) from error

    def taken(self, array: Array) -> Array:
        """Return an array of the library or of numpy unchanged, and one of another library in numpy."""
        if type(array) is np.ndarray or self.name in ns.namespace(array).__name__:
            return array
        if "cpu" not in str(ns.device_of(array)).lower():
            raise InvalidInputError(
                f"a function of {self.name} meets a point on {ns.device_of(array)}; write it with functions of the "
                "point's library, or begin with an array of numpy."
            )
        return ns.to_numpy(array)

    def given(self, array: Array) -> Any:
        """Return an array in the library's type. Functions must not write into points."""
        view = self.taken(array).view()
        view.flags.writeable = False
        return view

    def back(self, slopes: Sequence[Any], arrays: Sequence[Array]) -> list[Array]:
        """Return derivatives by some arrays in the library, device and precision of these."""
        found = map(ns.matched, slopes, arrays)
        return [*map(ns.conj, found)] if self.conjugates else [*found]

    def value(self, function: Callable[..., Any]) -> Callable[[Sequence[Array]], Any]:
        """Return a function from the list of arguments to the value."""
        return lambda arrays: function(*map(self.given, arrays))

    @abstractmethod
    def slopes(self, function: Callable[..., Any], count: int) -> Slopes:
        """Return a function from a list of `count` arguments to the value and the derivatives by all."""

    @abstractmethod
    def bent(self, function: Callable[..., Any], count: int) -> Bent:
        """Return a function from the arguments to the products with the second derivative there.

        These map changes of the arguments to changes of the derivatives by them.
        """


class Autograd(Backend):
    """The package autograd: functions written with ``autograd.numpy``.

    References
    ----------
    Maclaurin, Duvenaud and Adams, Autograd: effortless gradients in numpy, ICML workshop on automatic machine
    learning (2015).
    """

    name = "autograd"

    def slopes(self, function: Callable[..., Any], count: int) -> Slopes:
        # Autograd takes a third longer for a tuple of arguments than for one.
        alone = count == 1
        differentiated = self.module().value_and_grad(_tied(function), 0 if alone else tuple(range(count)))

        def call(arrays: Sequence[Array]) -> tuple[Any, list[Array]]:
            value, found = differentiated(*map(self.taken, arrays))
            return value, self.back([found] if alone else found, arrays)

        return call

    def bent(self, function: Callable[..., Any], count: int) -> Bent:
        make_vjp, pack = self.module().make_vjp, self.module(".builtins").tuple
        # Reverse over reverse, since not all of autograd's primitives have forward derivatives. The graph is made
        # once for a point. Its backward map is also the forward map, since second derivatives are symmetric.
        alone = count == 1
        places = 0 if alone else tuple(range(count))
        inner = self.module().grad(_tied(function), places)

        def gradient(*arguments: Any) -> Any:
            slopes = (inner(*arguments),) if alone else inner(*arguments)
            tied = [slope + 0.0 * argument for slope, argument in zip(slopes, arguments, strict=True)]
            return tied[0] if alone else pack(tied)

        def at(arrays: Sequence[Array]) -> Product:
            back, _ = make_vjp(gradient, places)(*map(self.taken, arrays))

            def product(along: Sequence[Any]) -> list[Array]:
                along = [*map(self.taken, along)]
                # Some versions of autograd return double precision for single.
                return self.back([back(along[0])] if alone else back(tuple(along)), arrays)

            return product

        return at


def _tied(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function, with a constant value tied to the arguments, for which autograd would warn.

    A Python number is meant to be constant, as the flat part of a hinge. A numpy number was cut off.
    """
    from autograd.numpy import real
    from autograd.tracer import isbox

    def tied(*arguments: Any) -> Any:
        value = function(*arguments)
        if isbox(value):
            return value
        if isinstance(value, np.generic):
            warn(
                "autograd finds no path from the point to the value of the cost, so its gradient is zero; compute "
                "with autograd.numpy throughout, without copies into arrays of numpy.",
                RuntimeWarning,
            )
        return value + 0.0 * sum(real(argument).sum() for argument in arguments)

    return tied


class Jax(Backend):
    """JAX: functions written with ``jax.numpy``, compiled (Bradbury et al. 2018, https://github.com/jax-ml/jax).

    Parameters
    ----------
    compiles : bool
        Otherwise functions run uncompiled, even those wrapped in `jax.jit`.
    """

    name = "jax"

    def __init__(self, compiles: bool = True) -> None:
        self.compiles = compiles

    def module(self, part: str = "") -> Any:
        found = super().module(part)
        # With gradients in single precision each run would end at 1e-4.
        super().module().config.update("jax_enable_x64", True)
        return found

    def given(self, array: Array) -> Any:
        return self.module(".numpy").asarray(self.taken(array))

    def uncompiled(self) -> Backend:
        """Return the library without compilation."""
        return Jax(compiles=False)

    def forget(self) -> None:
        """Discard all compiled functions of the process."""
        self.module().clear_caches()

    def _ready(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return the function, compiled, or run with the user's own `jax.jit` disabled."""
        return self.compiled(function) if self.compiles else self.module().disable_jit()(function)

    def compiled(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a compiled function, with outside arrays as arguments instead of constants of the program."""
        jax, tree, core = (self.module(part) for part in ("", ".tree_util", ".extend.core"))
        made: dict[Any, Any] = {}
        with suppress(ValueError):
            # Parts are known already if another function was compiled before.
            tree.register_pytree_node(Parts, lambda point: (point.parts, None), lambda _, parts: Parts(parts))

        def call(*arguments: Any) -> Any:
            flat, form = tree.tree_flatten(arguments)
            if any(isinstance(one, jax.core.Tracer) for one in flat):
                # It is part of another function.
                return function(*arguments)
            key = form, *((np.shape(one), getattr(one, "dtype", None)) for one in flat)
            if key not in made:
                closed, shapes = jax.make_jaxpr(function, return_shape=True)(*arguments)

                def program(held: list[Any], *given: Any) -> Any:
                    return core.jaxpr_as_fun(core.ClosedJaxpr(closed.jaxpr, held))(*given)

                made[key] = jax.jit(program), jax.device_put(closed.consts), tree.tree_structure(shapes)
            run, held, wanted = made[key]
            return tree.tree_unflatten(wanted, run(held, *flat))

        return call

    def value(self, function: Callable[..., Any]) -> Callable[[Sequence[Array]], Any]:
        return super().value(self._ready(function))

    def slopes(self, function: Callable[..., Any], count: int) -> Slopes:
        ready = self._ready(self.module().value_and_grad(function, tuple(range(count))))

        def call(arrays: Sequence[Array]) -> tuple[Any, list[Array]]:
            value, slopes = ready(*map(self.taken, arrays))
            return value, self.back(slopes, arrays)

        return call

    def bent(self, function: Callable[..., Any], count: int) -> Bent:
        jax = self.module()
        gradient = jax.grad(function, tuple(range(count)))
        ready = self._ready(lambda arrays, along: jax.jvp(gradient, arrays, along)[1])

        def at(arrays: Sequence[Array]) -> Product:
            place = [*map(self.taken, arrays)]
            return lambda along: self.back(ready(place, [*map(self.taken, along)]), arrays)

        return at


class Torch(Backend):
    """PyTorch: functions of tensors.

    References
    ----------
    Paszke et al., PyTorch: an imperative style, high-performance deep learning library, NeurIPS (2019),
    arXiv:1912.01703.
    """

    name = "torch"
    conjugates = False

    def given(self, array: Array) -> Any:
        array = self.taken(array)
        if isinstance(array, self.module().Tensor):
            # No graph is recorded for tensors made in inference mode.
            return array.clone() if array.is_inference() else array.detach()
        # A copy: tensors have no negative strides, and must not write into points.
        return self.module().tensor(np.ascontiguousarray(array))

    def slopes(self, function: Callable[..., Any], count: int) -> Slopes:
        def call(arrays: Sequence[Array]) -> tuple[Any, list[Array]]:
            value, wanted = self._followed(function, arrays)
            return value, self.back(self._of(value, wanted), arrays)

        return call

    def bent(self, function: Callable[..., Any], count: int) -> Bent:
        # Unrecorded operations would have zero second derivatives.
        recorded = self.module().inference_mode(False)

        def at(arrays: Sequence[Array]) -> Product:
            value, wanted = self._followed(function, arrays)
            slopes = self._of(value, wanted, create_graph=True)

            def product(along: Sequence[Array]) -> list[Array]:
                pairs = zip(slopes, map(self.given, along), strict=True)
                slope = sum((part.conj() * one).real.sum() for part, one in pairs)
                return self.back(self._of(slope, wanted, retain_graph=True), arrays)

            return recorded(product)

        return recorded(at)

    def _followed(self, function: Callable[..., Any], arrays: Sequence[Array]) -> tuple[Any, list[Any]]:
        """Return the value of a function with its graph, and the tensors to differentiate by."""
        with self.module().inference_mode(False):
            wanted = [self.given(array).requires_grad_() for array in arrays]
            value = function(*wanted)
        if not isinstance(value, self.module().Tensor) or not value.requires_grad:
            raise InvalidInputError(
                "the function's value does not depend on its arguments, or was cut off from them by detach(), "
                "item(), numpy() or no_grad(), and has no derivatives; compute it by operations of torch alone."
            )
        return value, wanted

    def _of(self, value: Any, wanted: list[Any], **graph: bool) -> Any:
        """Return the derivatives of a number, zero for tensors on which it does not depend."""
        torch = self.module()
        if not value.requires_grad:
            return [torch.zeros_like(one) for one in wanted]
        return torch.autograd.grad(value, wanted, allow_unused=True, materialize_grads=True, **graph)


AUTOGRAD, JAX, TORCH = Autograd(), Jax(), Torch()
