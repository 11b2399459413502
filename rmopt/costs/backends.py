"""Libraries of automatic differentiation behind three functions: join blocks, first and second derivatives."""

import importlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from rmopt.core.ambient import Array
from rmopt.errors import InvalidInputError, MissingCapabilityError, warn

__all__ = ["AUTOGRAD", "JAX", "TORCH", "Autograd", "Backend", "Jax", "Torch"]

Slopes = Callable[[Sequence[Array]], tuple[Any, list[Array]]]
Product = Callable[[Sequence[Array]], list[Array]]
Bent = Callable[[Sequence[Array]], Product]


class Backend(ABC):
    """A library that differentiates functions of arrays.

    Attributes
    ----------
    name : str
        Of its package.

    References
    ----------
    Baydin, Pearlmutter, Radul and Siskind, Automatic differentiation in machine learning: a survey, JMLR 18
    (2018), https://jmlr.org/papers/v18/17-468.html.
    """

    name: str
    compiles: bool = False

    def module(self, part: str = "") -> Any:
        """Return the library, or a part of it such as ``".numpy"``; say how to install it where it is missing."""
        try:
            return importlib.import_module(self.name + part)
        except ImportError as error:
            raise MissingCapabilityError(
                f"{self.name}_cost and {self.name}_residuals need {self.name}, which cannot be imported ({error}); "
                f"install it: pip install {self.name}"
            ) from error

    def given(self, array: Array) -> Any:
        """Return an array as the library takes it; functions must not write into points."""
        view = array.view()
        view.flags.writeable = False
        return view

    def uncompiled(self) -> "Backend":
        """Return the library as it is without compiling."""
        return self

    def forget(self) -> None:  # noqa: B027
        """Throw away what was compiled anywhere in the process."""

    def plain(self, value: Any) -> Any:
        """Return a number of the library as one of numpy; anything else as it is."""
        return value

    def value(self, function: Callable[..., Any]) -> Callable[[Sequence[Array]], Any]:
        """Return a function of the list of arguments that returns the value."""
        return lambda arrays: self.plain(function(*map(self.given, arrays)))

    @abstractmethod
    def slopes(self, function: Callable[..., Any], count: int) -> Slopes:
        """Return a function of a list of so many arguments that returns the value and the derivatives by all."""

    @abstractmethod
    def bent(self, function: Callable[..., Any], count: int) -> Bent:
        """Return a function of so many arguments that returns the products with the second derivative there.

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
        # A tuple of arguments costs autograd a third more than one.
        alone = count == 1
        differentiated = self.module().value_and_grad(_tied(function), 0 if alone else tuple(range(count)))

        def call(arrays: Sequence[Array]) -> tuple[Any, list[Array]]:
            value, found = differentiated(*arrays)
            return value, [found] if alone else found

        return call

    def bent(self, function: Callable[..., Any], count: int) -> Bent:
        from autograd import make_vjp
        from autograd.builtins import tuple as pack

        # Reverse over reverse, for not all of autograd's primitives have forward derivatives. The graph is made once
        # for a point; what it maps backwards it maps forwards too, since second derivatives are symmetric.
        alone = count == 1
        places = 0 if alone else tuple(range(count))
        inner = self.module().grad(_tied(function), places)

        def gradient(*arguments: Any) -> Any:
            slopes = (inner(*arguments),) if alone else inner(*arguments)
            tied = [slope + 0.0 * argument for slope, argument in zip(slopes, arguments, strict=True)]
            return tied[0] if alone else pack(tied)

        def at(arrays: Sequence[Array]) -> Product:
            back, _ = make_vjp(gradient, places)(*arrays)

            def product(along: Sequence[Any]) -> list[Array]:
                found = [back(along[0])] if alone else back(tuple(along))
                # Some versions of autograd return double precision for single.
                return [part.astype(one.dtype, copy=False) for one, part in zip(arrays, found, strict=True)]

            return product

        return at


def _tied(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function; a value that depends on no argument is tied to them, where autograd would warn.

    A number of Python's is meant to be constant: the flat part of a hinge, say. One of numpy's was cut off.
    """
    from autograd.tracer import isbox

    def tied(*arguments: Any) -> Any:
        value = function(*arguments)
        if isbox(value):
            return value
        if isinstance(value, np.generic):
            warn(
                "autograd sees no way from the point to the value of the cost, and takes the gradient for zero; "
                "compute with autograd.numpy throughout, without copies into arrays of numpy.",
                RuntimeWarning,
            )
        return value + 0.0 * sum(argument.sum() for argument in arguments)

    return tied


class Jax(Backend):
    """JAX: functions written with ``jax.numpy``, compiled (Bradbury et al. 2018, https://github.com/jax-ml/jax).

    Parameters
    ----------
    compiles : bool
        Otherwise functions run as they stand, also those that `jax.jit` has compiled.
    """

    name = "jax"

    def __init__(self, compiles: bool = True) -> None:
        self.compiles = compiles

    def module(self, part: str = "") -> Any:
        found = super().module(part)
        # Gradients of single precision would end each run at 1e-4.
        super().module().config.update("jax_enable_x64", True)
        return found

    def given(self, array: Array) -> Any:
        return self.module(".numpy").asarray(array)

    def uncompiled(self) -> Backend:
        return Jax(compiles=False)

    def forget(self) -> None:
        self.module().clear_caches()

    def _ready(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return the function, compiled, or run without what the user's own `jax.jit` has compiled."""
        jax = self.module()
        return jax.jit(function) if self.compiles else jax.disable_jit()(function)

    def value(self, function: Callable[..., Any]) -> Callable[[Sequence[Array]], Any]:
        return super().value(self._ready(function))

    def plain(self, value: Any) -> Any:
        return np.asarray(value) if isinstance(value, self.module().Array) else value

    def slopes(self, function: Callable[..., Any], count: int) -> Slopes:
        ready = self._ready(self.module().value_and_grad(function, tuple(range(count))))

        def call(arrays: Sequence[Array]) -> tuple[Any, list[Array]]:
            value, slopes = ready(*arrays)
            return value, [np.asarray(slope) for slope in slopes]

        return call

    def bent(self, function: Callable[..., Any], count: int) -> Bent:
        jax = self.module()
        gradient = jax.grad(function, tuple(range(count)))
        ready = self._ready(lambda arrays, along: jax.jvp(gradient, arrays, along)[1])
        return lambda arrays: lambda along: [np.asarray(part) for part in ready(list(arrays), list(along))]


class Torch(Backend):
    """PyTorch: functions of tensors.

    References
    ----------
    Paszke et al., PyTorch: an imperative style, high-performance deep learning library, NeurIPS (2019),
    arXiv:1912.01703.
    """

    name = "torch"

    def given(self, array: Array) -> Any:
        # A copy: tensors have no negative strides, and must not write into points.
        return self.module().tensor(np.ascontiguousarray(array))

    def plain(self, value: Any) -> Any:
        return value.numpy(force=True) if isinstance(value, self.module().Tensor) else value

    def slopes(self, function: Callable[..., Any], count: int) -> Slopes:
        def call(arrays: Sequence[Array]) -> tuple[Any, list[Array]]:
            value, wanted = self._followed(function, arrays)
            return value, [self.plain(slope) for slope in self._of(value, wanted)]

        return call

    def bent(self, function: Callable[..., Any], count: int) -> Bent:
        # What is not recorded would have second derivatives of zero.
        recorded = self.module().inference_mode(False)

        def at(arrays: Sequence[Array]) -> Product:
            value, wanted = self._followed(function, arrays)
            slopes = self._of(value, wanted, create_graph=True)

            def product(along: Sequence[Array]) -> list[Array]:
                slope = sum((part * self.given(one)).sum() for part, one in zip(slopes, along, strict=True))
                return [self.plain(bent) for bent in self._of(slope, wanted, retain_graph=True)]

            return recorded(product)

        return recorded(at)

    def _followed(self, function: Callable[..., Any], arrays: Sequence[Array]) -> tuple[Any, list[Any]]:
        """Return the value of a function with the graph of how it was made, and what to differentiate by."""
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
        """Return the derivatives of a number; zeros where it does not depend on a tensor."""
        torch = self.module()
        if not value.requires_grad:
            return [torch.zeros_like(one) for one in wanted]
        return torch.autograd.grad(value, wanted, allow_unused=True, materialize_grads=True, **graph)


AUTOGRAD, JAX, TORCH = Autograd(), Jax(), Torch()
