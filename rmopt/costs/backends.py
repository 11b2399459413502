"""Libraries of automatic differentiation behind three functions: join blocks, first and second derivatives."""

import importlib
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, ClassVar

import numpy as np

from rmopt.core.ambient import Array
from rmopt.errors import InvalidInputError, MissingCapabilityError, RmoptError
from rmopt.precision import coarseness

__all__ = ["AUTOGRAD", "JAX", "TORCH", "Autograd", "Backend", "Jax", "Torch"]

Slopes = Callable[[Sequence[Array]], tuple[Any, list[Array]]]
Product = Callable[[Sequence[Array]], list[Array]]
Bent = Callable[[Sequence[Array]], Product]
Where = tuple[int, ...]


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
    # How functions are to be written.
    words: ClassVar[str] = "use its own functions in the place of numpy"
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

    def check(self, function: Callable[..., Any], arrays: Sequence[Array]) -> None:  # noqa: B027
        """Look at a function before its first use."""

    def check_followed(self, value: Any, other: Any) -> None:  # noqa: B027
        """Tell that a value was cut off from the point, where derivatives by the point and by another are taken."""

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

    def called(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Return the function's value; an error has a note on how the library wants functions to be written."""
        try:
            return function(*arguments)
        except Exception as error:
            if not isinstance(error, RmoptError):
                error.add_note(f"{self.name} differentiates the function: {self.words}.")
            raise

    def plain(self, value: Any) -> Any:
        """Return a number of the library as one of numpy; anything else as it is."""
        return value

    def beside(self, blocks: Sequence[Any]) -> Any:
        """Return matrices side by side."""
        return self.module(".numpy").concatenate(blocks, axis=1)

    def value(self, function: Callable[..., Any]) -> Callable[[Sequence[Array]], Any]:
        """Return a function of the list of arguments that returns the value."""
        return lambda arrays: self.plain(function(*map(self.given, arrays)))

    @abstractmethod
    def slopes(self, function: Callable[..., Any], where: Where) -> Slopes:
        """Return a function of the list of arguments that returns value and derivatives by those at some places."""

    @abstractmethod
    def bent(self, function: Callable[..., Any], where: Where) -> Bent:
        """Return a function of the arguments that returns the products with the second derivative there.

        These map changes of the arguments at some places to changes of the derivatives by them.
        """


class Autograd(Backend):
    """The package autograd: functions written with ``autograd.numpy``.

    References
    ----------
    Maclaurin, Duvenaud and Adams, Autograd: effortless gradients in numpy, ICML workshop on automatic machine
    learning (2015).
    """

    name = "autograd"
    words = "use autograd.numpy in the place of numpy, float() and math, and do not write into arrays"

    def slopes(self, function: Callable[..., Any], where: Where) -> Slopes:
        # A tuple of arguments costs autograd a third more than one.
        alone, tied = len(where) == 1, self._tied(function, where, tell=True)
        differentiated = self.module().value_and_grad(tied, where[0] if alone else where)

        def call(arrays: Sequence[Array]) -> tuple[Any, list[Array]]:
            value, found = differentiated(*arrays)
            return value, [found] if alone else found

        return call

    def bent(self, function: Callable[..., Any], where: Where) -> Bent:
        from autograd import make_vjp
        from autograd.builtins import tuple as pack

        # Reverse over reverse, for not all of autograd's primitives have forward derivatives. The graph is made once
        # for a point; what it maps backwards it maps forwards too, since second derivatives are symmetric.
        alone = len(where) == 1
        places = where[0] if alone else where
        inner = self.module().grad(self._tied(function, where), places)
        gradient = self._tied(inner if alone else lambda *arguments: pack(inner(*arguments)), where)

        def at(arrays: Sequence[Array]) -> Product:
            back, _ = make_vjp(gradient, places)(*arrays)

            def product(along: Sequence[Any]) -> list[Array]:
                found = [back(along[0])] if alone else back(tuple(along))
                # Some versions of autograd return double precision for single.
                return [
                    part.astype(arrays[i].dtype, copy=False) for i, part in zip(where, found, strict=True)
                ]

            return product

        return at

    def check_followed(self, value: Any, other: Any) -> None:
        from autograd.tracer import isbox

        if isbox(other) and not isbox(value):
            warnings.warn(CUT_OFF, RuntimeWarning, stacklevel=2)

    def _tied(self, function: Callable[..., Any], where: Where, tell: bool = False) -> Callable[..., Any]:
        """Return the function; a result that depends on no argument is tied to them, where autograd would warn."""
        from autograd.tracer import isbox

        def tied(*arguments: Any) -> Any:
            value = function(*arguments)
            if isbox(value):
                return value
            if tell and np.ndim(value) == 0 and isinstance(value, np.generic):
                # A number of Python's is meant: the flat part of a hinge, say.
                warnings.warn(CUT_OFF, RuntimeWarning, stacklevel=2)
            if isinstance(value, (int, np.integer, np.bool_)):
                # autograd knows no derivatives of integers.
                value = float(value)
            return _tie()(value, *(arguments[i] for i in where))

        return tied


CUT_OFF = (
    "autograd sees no way from the point to the value of the cost, and takes the gradient for zero; compute with "
    "autograd.numpy throughout, without rounding, comparisons alone or copies into arrays of numpy."
)


@cache
def _tie() -> Any:
    """Return a primitive of autograd that returns its first argument, and has the others as arguments too."""
    from autograd.extend import defvjp_argnum, primitive, vspace

    tie = primitive(lambda value, *others: value)
    defvjp_argnum(
        tie,
        lambda argnum, ans, args, kwargs: (
            (lambda g: g) if argnum == 0 else (lambda g: vspace(args[argnum]).zeros())
        ),
    )
    return tie


class Jax(Backend):
    """JAX: functions written with ``jax.numpy``, compiled (Bradbury et al. 2018, https://github.com/jax-ml/jax).

    Parameters
    ----------
    compiles : bool
        Otherwise functions run as they stand, also those that `jax.jit` has compiled.
    """

    name = "jax"
    words = (
        "use jax.numpy in the place of numpy, jnp.where or jax.lax.cond in the place of if, and jax.lax.fori_loop "
        "where a count depends on the point"
    )

    def __init__(self, compiles: bool = True) -> None:
        self.compiles = compiles

    def module(self, part: str = "") -> Any:
        found = super().module(part)
        # Gradients of single precision would end each run at 1e-4.
        super().module().config.update("jax_enable_x64", True)
        return found

    def check(self, function: Callable[..., Any], arrays: Sequence[Array]) -> None:
        """Warn where a function of double precision holds data of single, as they are before the first jax_cost."""
        held = self.module().make_jaxpr(function)(*arrays).consts
        single = any(getattr(data, "dtype", None) == np.float32 for data in held)
        if single and coarseness(*arrays) == 1.0:
            warnings.warn(
                "the function holds data of single precision (float32), so that its values are rounded to 1e-7; make "
                'them after jax.config.update("jax_enable_x64", True).',
                stacklevel=2,
            )

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

    def slopes(self, function: Callable[..., Any], where: Where) -> Slopes:
        ready = self._ready(self.module().value_and_grad(function, where))

        def call(arrays: Sequence[Array]) -> tuple[Any, list[Array]]:
            value, slopes = ready(*arrays)
            return value, [np.asarray(slope) for slope in slopes]

        return call

    def bent(self, function: Callable[..., Any], where: Where) -> Bent:
        jax = self.module()
        gradient = jax.grad(function, where)

        def change(arrays: Sequence[Any], along: Sequence[Any]) -> Any:
            def of_moved(*there: Any) -> Any:
                moved = dict(zip(where, there, strict=True))
                return gradient(*(moved.get(i, array) for i, array in enumerate(arrays)))

            return jax.jvp(of_moved, [arrays[i] for i in where], list(along))[1]

        ready = self._ready(change)
        return lambda arrays: lambda along: [np.asarray(part) for part in ready(list(arrays), list(along))]


class Torch(Backend):
    """PyTorch: functions of tensors.

    References
    ----------
    Paszke et al., PyTorch: an imperative style, high-performance deep learning library, NeurIPS (2019),
    arXiv:1912.01703.
    """

    name = "torch"
    words = (
        "use functions of torch in the place of numpy, with data of the point's precision, data.to(x.dtype); what "
        "detach() returns would be missing in the gradient"
    )

    def given(self, array: Array) -> Any:
        # A copy: tensors have no negative strides, and must not write into points.
        return self.module().tensor(np.ascontiguousarray(array))

    def plain(self, value: Any) -> Any:
        return value.numpy(force=True) if isinstance(value, self.module().Tensor) else value

    def beside(self, blocks: Sequence[Any]) -> Any:
        return self.module().cat(list(blocks), dim=1)

    def slopes(self, function: Callable[..., Any], where: Where) -> Slopes:
        def call(arrays: Sequence[Array]) -> tuple[Any, list[Array]]:
            value, wanted = self._followed(function, arrays, where)
            return value, [self.plain(slope) for slope in self._of(value, wanted)]

        return call

    def bent(self, function: Callable[..., Any], where: Where) -> Bent:
        # What is not recorded would have second derivatives of zero.
        recorded = self.module().inference_mode(False)

        def at(arrays: Sequence[Array]) -> Product:
            value, wanted = self._followed(function, arrays, where)
            slopes = self._of(value, wanted, create_graph=True)

            def product(along: Sequence[Array]) -> list[Array]:
                slope = sum((part * self.given(one)).sum() for part, one in zip(slopes, along, strict=True))
                return [self.plain(bent) for bent in self._of(slope, wanted, retain_graph=True)]

            return recorded(product)

        return recorded(at)

    def _followed(
        self, function: Callable[..., Any], arrays: Sequence[Array], where: Where
    ) -> tuple[Any, list[Any]]:
        """Return the value of a function with the graph of how it was made, and what to differentiate by."""
        with self.module().inference_mode(False):
            tensors = [self.given(array) for array in arrays]
            wanted = [tensors[i].requires_grad_() for i in where]
            value = function(*tensors)
        self.check_followed(value, wanted[0])
        return value, wanted

    def check_followed(self, value: Any, other: Any) -> None:
        if not isinstance(value, self.module().Tensor) or other.requires_grad > value.requires_grad:
            raise InvalidInputError(
                "the function's value does not depend on its arguments, or was cut off from them by detach(), "
                "item(), numpy() or no_grad(), and has no derivatives; compute it by operations of torch alone."
            )

    def _of(self, value: Any, wanted: list[Any], **graph: bool) -> Any:
        """Return the derivatives of a number; zeros where it does not depend on a tensor."""
        torch = self.module()
        if not value.requires_grad:
            return [torch.zeros_like(one) for one in wanted]
        return torch.autograd.grad(value, wanted, allow_unused=True, materialize_grads=True, **graph)


AUTOGRAD, JAX, TORCH = Autograd(), Jax(), Torch()
