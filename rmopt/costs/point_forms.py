"""What points are made of, as automatic derivatives see them: arrays, and matrices by pairs of factors.

A matrix W = A Bᵀ is written with more columns, [A 0 Y] [B X 0]ᵀ. The derivatives by the two factors are G and Gᵀ
times the other one, so that their last columns are G X and Gᵀ Y.
"""

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


def leaves_of(point: Any) -> list[Any]:
    """Return the arrays and the matrices of a point, in a flat list."""
    return [leaf for part in point for leaf in leaves_of(part)] if isinstance(point, Parts) else [point]


def arrays_of(leaf: Any) -> list[Array]:
    """Return an array, or the factors A and B of a matrix."""
    if isinstance(leaf, np.ndarray):
        return [leaf]
    W = leaf.as_ambient()
    return [W.left, W.right]


def flat_of(point: Any) -> list[Array]:
    """Return the arrays of a point, those of matrices by their factors, in a flat list."""
    return [array for leaf in leaves_of(point) for array in arrays_of(leaf)]


def bases_of(leaf: LowRankPoint | PSDPoint) -> tuple[Array, Array]:
    """Return what spans the row space and the column space."""
    return (leaf.V, leaf.U) if isinstance(leaf, LowRankPoint) else (leaf.Q, leaf.Q)


def widened(leaf: Any) -> list[Array]:
    """Return the arrays by which is differentiated: of a matrix wide factors, or W itself beside an identity."""
    if form_of(leaf) == WHOLE:
        W = dense(leaf.as_ambient())
        one = np.eye(min(W.shape), dtype=W.dtype)
        return [W, one] if W.shape[1] == len(one) else [one, W.T]
    return arrays_of(leaf) if isinstance(leaf, np.ndarray) else pair_of(leaf, *bases_of(leaf))


def pair_of(leaf: Any, right: Array, left: Array, more: Array | None = None) -> list[Array]:
    """Return wide factors of a matrix that end in X and Y; and with columns of B that a direction moves."""
    A, B = arrays_of(leaf)
    hidden = [] if more is None else [more]
    zeros = [np.zeros((len(A), block.shape[1]), A.dtype) for block in (*hidden, right)]
    return [
        np.hstack([A, *zeros, left]),
        np.hstack([B, *hidden, right, np.zeros((len(B), left.shape[1]), B.dtype)]),
    ]


def images_of(slopes: list[Array], right: Array, left: Array) -> tuple[Array, Array]:
    """Return G X and Gᵀ Y from the derivatives by wide factors."""
    end = slopes[0].shape[1] - left.shape[1]
    return slopes[0][:, end - right.shape[1] : end], slopes[1][:, end:]


def whole_of(leaf: Any, slopes: list[Array]) -> Array:
    """Return the derivative by a small matrix from those by itself and an identity."""
    return np.asarray(slopes[0]) if leaf.shape[1] <= leaf.shape[0] else np.asarray(slopes[1]).T


def move_of(leaf: Any, block: Any) -> list[Array] | None:
    """Return a direction as a move of what `widened` gives; None for a matrix by factors: `moved_pair` has it."""
    if form_of(leaf) == MATRIX:
        return None
    move = np.zeros(leaf.shape) if block is None else dense(block).reshape(leaf.shape)
    move = move.astype(real_type(*arrays_of(leaf)), copy=False)
    if isinstance(leaf, np.ndarray):
        return [move]
    none = np.zeros((min(leaf.shape),) * 2, move.dtype)
    return [move, none] if leaf.shape[1] <= leaf.shape[0] else [none, move.T]


def moved_pair(leaf: Any, block: Any, right: Array, left: Array) -> tuple[list[Array], list[Array]]:
    """Return wide factors that end in X and Y, and how a direction L Rᵀ moves them: R stands in the second one."""
    L, R = [side[:, :0] for side in arrays_of(leaf)] if block is None else factors_of(leaf, block)
    wide = pair_of(leaf, right, left, R)
    moves = [np.zeros_like(side) for side in wide]
    moves[0][:, leaf.rank : leaf.rank + L.shape[1]] = L
    return wide, moves


def factors_of(leaf: Any, block: Any) -> list[Array]:
    """Return L and R of a direction L Rᵀ, in the precision of the matrix."""
    known = hasattr(block, "left")
    pair = (dense(block.left), dense(block.right)) if known else (dense(block), np.eye(leaf.shape[1]))
    return [part.astype(real_type(*arrays_of(leaf)), copy=False) for part in pair]


def with_blocks(point: Any, direction: Any) -> list[Any]:
    """Return the blocks of a direction for the arrays and matrices of a point; None where it is zero."""
    if not isinstance(point, Parts):
        return [direction]
    if direction is None:
        return [None] * len(leaves_of(point))
    blocks = diagonal_blocks(direction, [matrix_shape(ambient_shape(part)) for part in point])
    return [block for i, part in enumerate(point) for block in with_blocks(part, blocks.get(i))]


def ambient_shape(point: Any) -> tuple[int, ...]:
    """Return the shape of a point as an ambient matrix."""
    if not isinstance(point, Parts):
        return tuple(point.shape)
    shapes = np.array([matrix_shape(ambient_shape(part)) for part in point])
    return tuple(shapes.sum(axis=0).tolist())


def gathered(form: Form, parts: Iterator[Any]) -> Any:
    """Return a point of a form out of arrays and matrices."""
    return next(parts) if isinstance(form, str) else Parts([gathered(part, parts) for part in form])
