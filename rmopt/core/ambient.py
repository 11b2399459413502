"""Ambient gradients as operators: anything with `shape`, `T` and `@` on n × j arrays.

Numpy arrays and scipy sparse arrays qualify as they are. The classes here add gradients that are
products of factors, sums, and pairs of functions. Projections use these actions alone, so a gradient that is not an n
× m array never becomes one.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import Any, Protocol, Self

import numpy as np

from rmopt.core.arguments import shown
from rmopt.errors import InvalidInputError
from rmopt.namespaces import F8, conj, is_array, is_complex, matched, real_type

Array = np.ndarray
Action = Callable[[Array], Array]


class Ambient(Protocol):
    """An n × m matrix known by its actions ``G @ X`` and ``G.T @ X``."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Numbers of rows and columns, (n, m)."""

    @property
    def T(self) -> Any:
        """The transposed operator: the same object if it is known to be symmetric."""

    def __matmul__(self, other: Any) -> Any:
        """Return the (n, j) array G @ other for an (m, j) array."""


class Linear:
    """Arithmetic derived from sums and multiples: differences, negatives, left multiples, quotients."""

    # Numpy arrays and scalars must leave sums and products to this class.
    __array_ufunc__ = None

    def __sub__(self, other: Any) -> Any:
        return self.__add__(-other)  # type: ignore[operator]

    def __neg__(self) -> Any:
        return self * -1.0  # type: ignore[operator]

    def __rmul__(self, scalar: float) -> Any:
        return self * scalar  # type: ignore[operator]

    def __truediv__(self, scalar: float) -> Any:
        return self * (1.0 / scalar)  # type: ignore[operator]


class Operator(Linear, Ambient):
    """The arithmetic of ambient matrices that are no arrays: sums, differences, multiples.

    A subclass has `shape`, `T` and `@`. Sums and differences may mix operators, arrays and sparse arrays.
    """

    def __add__(self, other: Any) -> Any:
        return Sum(self, other) if hasattr(other, "shape") else NotImplemented

    def __radd__(self, other: Any) -> Any:
        # sum([A, B]) begins with the number 0.
        if np.ndim(other) == 0 and other == 0:
            return self
        return Sum(other, self) if hasattr(other, "shape") else NotImplemented

    def __rsub__(self, other: Any) -> Any:
        return other + -self

    def __mul__(self, scalar: float) -> Any:
        return self._times(scalar) if np.ndim(scalar) == 0 else NotImplemented

    def _times(self, scalar: float) -> Any:
        def scaled(operator: Any) -> Action:
            return lambda X: (operator @ X) * scalar

        apply, turned = scaled(self), self.T
        return Actions(self.shape, apply, apply if turned is self else scaled(turned))


class Factored(Operator):
    """The ambient matrix L Rᵀ.

    Parameters
    ----------
    left : array or sparse array, shape (n, r)
    right : array or sparse array, shape (m, r)
    """

    def __init__(self, left: Any, right: Any) -> None:
        self.left, self.right = left, right

    @property
    def shape(self) -> tuple[int, int]:
        return self.left.shape[0], self.right.shape[0]

    @property
    def T(self) -> "Factored":
        return Factored(self.right, self.left)

    def __matmul__(self, other: Array) -> Array:
        return self.left @ (self.right.T @ other)

    def _times(self, scalar: float) -> "Factored":
        return Factored(self.left * scalar, self.right)


class Sum(Operator):
    """The ambient matrix that is the sum of others.

    Parameters
    ----------
    *terms : Ambient
        Of one shape.
    """

    def __init__(self, *terms: Ambient) -> None:
        if len({tuple(term.shape) for term in terms}) != 1:
            raise InvalidInputError(
                f"Sum needs one or more operators of one shape, got {[tuple(term.shape) for term in terms]}."
            )
        self.terms = terms

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.terms[0].shape)

    @property
    def T(self) -> "Sum":
        turned = [term.T for term in self.terms]
        return self if all(a is b for a, b in zip(turned, self.terms, strict=True)) else Sum(*turned)

    def __matmul__(self, other: Array) -> Array:
        return reduce(add, [term @ other for term in self.terms])

    def _times(self, scalar: float) -> "Sum":
        return Sum(*(term * scalar for term in self.terms))  # type: ignore[operator, arg-type]


class Actions(Operator):
    """The ambient matrix known by two functions.

    Parameters
    ----------
    shape : (int, int)
        Numbers of rows and columns, (n, m).
    apply : callable
        Maps an (m, j) array X to G @ X.
    apply_transposed : callable
        Maps an (n, j) array X to G.T @ X. For a symmetric matrix give the same function, so that it is called once if
        both products are needed.
    """

    def __init__(self, shape: tuple[int, ...], apply: Action, apply_transposed: Action) -> None:
        self._shape, self._apply, self._apply_transposed = tuple(shape), apply, apply_transposed

    @property
    def shape(self) -> tuple[int, ...]:
        return self._shape

    @property
    def T(self) -> "Actions":
        if self._apply == self._apply_transposed:
            return self
        return Actions(self._shape[::-1], self._apply_transposed, self._apply)

    def __matmul__(self, other: Array) -> Array:
        return self._apply(other)


@dataclass(frozen=True, eq=False)
class RowColumn(Operator):
    """The symmetric matrix H = u e_kᵀ + e_k uᵀ.

    Attributes
    ----------
    k : int
        The row and column.
    u : array, shape (d,)
        H_jk for j ≠ k, and half of H_kk.
    """

    k: int
    u: Array

    @classmethod
    def from_column(cls, k: int, column: Array) -> Self:
        """Return the direction with this column k (and this row k)."""
        u = np.array(column, dtype=real_type(column))
        u[k] *= 0.5
        return cls(k, u)

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.u), len(self.u)

    @property
    def T(self) -> Self:
        return self

    @property
    def column(self) -> Array:
        """Column k of H."""
        column = self.u.copy()
        column[self.k] *= 2.0
        return column

    def __matmul__(self, other: Array) -> Array:
        other = np.asarray(other)
        result = np.multiply.outer(self.u, other[self.k])
        result[self.k] += self.u @ other
        return result

    def _times(self, scalar: float) -> "RowColumn":
        return RowColumn(self.k, scalar * self.u)

    def toarray(self) -> Array:
        """Return H as an array."""
        H = np.zeros(self.shape, self.u.dtype)
        H[:, self.k] += self.u
        H[self.k] += self.u
        return H


def dense(ambient: Any, like: Any = None) -> Array:
    """Return an ambient matrix as an n × m array, for small matrices and flat manifolds.

    Parameters
    ----------
    ambient : Ambient
    like : array, optional
        A point, whose precision, field and library the numbers are converted to.

    Raises
    ------
    InvalidInputError
        If it is not a matrix, for example a number or a list.
    """
    if like is not None:
        if type(ambient) is type(like) and ambient.dtype == like.dtype:
            return ambient
        return matched(dense(ambient), like, stays=True)
    if is_array(ambient):
        return ambient
    if isinstance(ambient, Sum):
        return reduce(add, map(dense, ambient.terms))
    if isinstance(ambient, Factored):
        product = ambient.left @ ambient.right.T
        return product if is_array(product) else product.toarray()
    if hasattr(ambient, "toarray"):
        return ambient.toarray()
    if hasattr(ambient, "__array__"):
        return np.asarray(ambient)
    if not hasattr(ambient, "shape"):
        raise InvalidInputError(
            f"{shown(ambient)} is not an ambient matrix, for example a gradient; return an array, or an operator "
            "with `shape`, `T` and `@`."
        )
    return np.asarray(ambient @ np.eye(ambient.shape[1]))


def images(ambient: Any, right: Array, left: Array) -> tuple[Array, Array]:
    """Return Z X and Zᴴ Y of an ambient matrix Z, in the precision of X and Y."""
    if left.dtype is not F8 and is_complex(left):
        # The transposed matrix is known by its action alone.
        return applied(ambient, right), conj(applied(ambient.T, conj(left)))
    return applied(ambient, right), applied(ambient.T, left)


def _array(thing: Any) -> Array:
    return thing if type(thing) is np.ndarray or is_array(thing) else np.asarray(thing)


def applied(ambient: Any, block: Array) -> Array:
    """Return the product of an ambient matrix and an array, in the array's precision."""
    if type(block) is not np.ndarray and is_array(ambient):
        # Other libraries do not multiply arrays of different types.
        ambient = matched(ambient, block, stays=True)
    return matched(_array(ambient @ block), block, stays=True)
