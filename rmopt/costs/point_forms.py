"""What points are made of, as automatic derivatives see them: arrays, and matrices by their factors."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from rmopt.core.ambient import Array, Operator, dense
from rmopt.core.low_rank import LowRankPoint
from rmopt.core.product import Parts, diagonal_blocks, matrix_shape
from rmopt.core.psd import PSDPoint
from rmopt.precision import real_type

# What a point is made of: an array, a matrix by factors, a small matrix that is differentiated as a whole, or parts.
ARRAY, MATRIX, WHOLE = "array", "matrix", "whole"
Form = Any
# Up to this many multiplications for W I, with the identity in place of a factor, the libraries' overhead is longer;
# functions of single entries, sum(A[i] * B[j]), take longer where the identity has many more columns than factors.
SMALL, NARROW = 10**6, 10

# How the arguments of a matrix W = A Bᵀ are written to be differentiated by E and F at 0: W + E Xᵀ + Y Fᵀ.
A, B, E, X, Y, F = range(6)
PAIRS = ((A, B), (E, X), (Y, F))


class Derivative(Operator):
    """The derivative G by a matrix: its actions on two blocks are known, those on others are found when asked for.

    Parameters
    ----------
    shape : (int, int)
    act : callable
        From two blocks X and Y to G X and Gᵀ Y.
    blocks : (array, array)
        X and Y whose images are known.
    images : (array, array)
    """

    def __init__(
        self, shape: tuple[int, int], act: Callable[..., Any], blocks: tuple[Array, Array], images: Any
    ) -> None:
        self._shape, self._act, self._blocks, self._images = shape, act, blocks, images

    @property
    def shape(self) -> tuple[int, int]:
        return self._shape

    @property
    def T(self) -> "Derivative":
        return Derivative(
            self._shape[::-1],
            lambda X, Y: self._act(Y, X)[::-1],
            self._blocks[::-1],
            tuple(self._images[::-1]),
        )

    def __matmul__(self, other: Array) -> Array:
        if other is self._blocks[0]:
            return self._images[0]
        return self.images(other, np.empty((self._shape[0], 0)))[0]

    def images(self, right: Array, left: Array) -> tuple[Array, Array]:
        if right is self._blocks[0] and left is self._blocks[1]:
            return self._images[0], self._images[1]
        dtype = real_type(*self._images)
        return self._act(np.asarray(right, dtype), np.asarray(left, dtype))


def form_of(point: Any) -> Form:
    """Return what a point is made of, and how it is differentiated: matrices by their factors, small ones whole."""
    if isinstance(point, Parts):
        return tuple(form_of(part) for part in point)
    if isinstance(point, np.ndarray):
        return ARRAY
    n, m = point.shape
    width = min(n, m)
    return WHOLE if n * m * width <= SMALL and width <= NARROW * point.rank else MATRIX


def kinds_in(form: Form) -> list[str]:
    """Return what a form is made of, in a flat list."""
    return [form] if isinstance(form, str) else [leaf for part in form for leaf in kinds_in(part)]


def starts_of(form: Form) -> list[int]:
    """Return where the arguments of each array and matrix begin in the flat list of `widened`."""
    widths = [{ARRAY: 1, WHOLE: 2, MATRIX: 6}[leaf] for leaf in kinds_in(form)]
    return [sum(widths[:i]) for i in range(len(widths))]


def places_of(form: Form) -> tuple[int, ...]:
    """Return the places in the list of `widened` by which is differentiated: arrays, and E and F of matrices."""
    pairs = zip(starts_of(form), kinds_in(form), strict=True)
    return tuple(i for start, leaf in pairs for i in ((start + E, start + F) if leaf == MATRIX else (start,)))


def leaves_of(point: Any) -> list[Any]:
    """Return the arrays and the matrices of a point, in a flat list."""
    return [leaf for part in point for leaf in leaves_of(part)] if isinstance(point, Parts) else [point]


def leaf_arrays(leaf: Any) -> list[Array]:
    """Return an array, or the factors A and B of a matrix."""
    if isinstance(leaf, np.ndarray):
        return [leaf]
    W = leaf.as_ambient()
    return [W.left, W.right]


def flat_of(point: Any) -> list[Array]:
    """Return the arrays of a point, those of matrices by their factors, in a flat list."""
    return [array for leaf in leaves_of(point) for array in leaf_arrays(leaf)]


def widened(point: Any) -> list[Array]:
    """Return the arrays of a point; of each matrix all six, to look at its row and column space, or W and I."""
    found: list[Array] = []
    for leaf in leaves_of(point):
        if form_of(leaf) == WHOLE:
            W = dense(leaf.as_ambient())
            found += [W, np.eye(min(W.shape), dtype=W.dtype)]
            continue
        found += leaf_arrays(leaf)
        if not isinstance(leaf, np.ndarray):
            found += [np.empty(0)] * 4
            look_at(found, len(found) - 6, *bases_of(leaf))
    return found


def look_at(arguments: list[Array], start: int, right: Array, left: Array) -> None:
    """Ask for the actions of the derivative by a matrix on a block X, and of its transposed on Y."""
    arguments[start + X], arguments[start + Y] = right, left
    arguments[start + E] = np.zeros((arguments[start + A].shape[0], right.shape[1]), right.dtype)
    arguments[start + F] = np.zeros((arguments[start + B].shape[0], left.shape[1]), left.dtype)


def with_blocks(point: Any, direction: Any) -> list[tuple[Any, Any]]:
    """Return the arrays and matrices of a point with their blocks of a direction; None where it is zero."""
    if not isinstance(point, Parts):
        return [(point, direction)]
    if direction is None:
        return [(leaf, None) for leaf in leaves_of(point)]
    blocks = diagonal_blocks(direction, [matrix_shape(ambient_shape(part)) for part in point])
    return [pair for i, part in enumerate(point) for pair in with_blocks(part, blocks.get(i))]


def ambient_shape(point: Any) -> tuple[int, ...]:
    """Return the shape of a point as an ambient matrix."""
    if not isinstance(point, Parts):
        return tuple(point.shape)
    shapes = np.array([matrix_shape(ambient_shape(part)) for part in point])
    return tuple(shapes.sum(axis=0).tolist())


def move_of(leaf: Any, block: Any) -> list[Array]:
    """Return a direction as an array of the leaf's shape, or as L and R with L Rᵀ, in the leaf's precision."""
    if form_of(leaf) != MATRIX:
        found = [np.zeros(leaf.shape) if block is None else dense(block).reshape(leaf.shape)]
    elif block is None:
        found = [np.zeros((n, 0)) for n in leaf.shape]
    elif hasattr(block, "left"):
        found = [dense(block.left), dense(block.right)]
    else:
        found = [dense(block), np.eye(leaf.shape[1])]
    dtype = real_type(*leaf_arrays(leaf))
    return [part.astype(dtype, copy=False) for part in found]


def as_tangent(leaf: Any, move: list[Array]) -> list[Array]:
    """Return a direction that is tangent, [E U] [V F]ᵀ, as E and F; nothing where it is another one."""
    if form_of(leaf) != MATRIX:
        return move
    (left, right), k = move, leaf.rank
    V, U = bases_of(leaf)
    if not left.shape[1]:
        return [np.zeros_like(U), np.zeros_like(V)]
    if left.shape[1] == 2 * k and np.array_equal(right[:, :k], V) and np.array_equal(left[:, k:], U):
        return [left[:, :k], right[:, k:]]
    return []


def bases_of(leaf: LowRankPoint | PSDPoint) -> tuple[Array, Array]:
    """Return what spans the row space and the column space."""
    return (leaf.V, leaf.U) if isinstance(leaf, LowRankPoint) else (leaf.Q, leaf.Q)


def gathered(form: Form, made: Iterator[Any]) -> Any:
    """Return a point of a form out of arrays and matrices."""
    return next(made) if isinstance(form, str) else Parts([gathered(part, made) for part in form])


def with_column(block: Array, value: float) -> Array:
    """Return a block with one more column, of one value."""
    return np.hstack([block, np.full((block.shape[0], 1), value, block.dtype)])
