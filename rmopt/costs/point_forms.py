"""What points are made of, as automatic derivatives see them: arrays, and matrices by pairs of factors.

A matrix W = A Bᵀ is written with more columns, [A 0 Y] [B X 0]ᵀ. The derivatives by the two factors are G and Gᵀ
times the other one, so that their last columns are G X and Gᵀ Y.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from rmopt.core.ambient import Actions, Array, Factored, dense
from rmopt.core.low_rank import LowRankPoint
from rmopt.core.product import Parts, diagonal_blocks, matrix_shape
from rmopt.precision import real_type

# What a point is made of: an array, a matrix by factors, or parts.
ARRAY, MATRIX = "array", "matrix"
Form = Any


def form_of(point: Any) -> Form:
    """Return what a point is made of."""
    if isinstance(point, Parts):
        return tuple(form_of(part) for part in point)
    return ARRAY if isinstance(point, np.ndarray) else MATRIX


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


def bases_of(leaf: Any) -> tuple[Array, Array]:
    """Return what spans the row space and the column space of a matrix; of an array itself."""
    if isinstance(leaf, np.ndarray):
        return leaf, leaf
    return (leaf.V, leaf.U) if isinstance(leaf, LowRankPoint) else (leaf.Q, leaf.Q)


def widened(leaf: Any) -> list[Array]:
    """Return the arrays by which is differentiated: of a matrix wide factors."""
    return [leaf] if isinstance(leaf, np.ndarray) else pair_of(leaf, *bases_of(leaf))


def pair_of(leaf: Any, right: Array, left: Array, more: Array | None = None) -> list[Array]:
    """Return wide factors of a matrix that end in X and Y; and with columns of B that a direction moves."""
    A, B = arrays_of(leaf)
    hidden = [] if more is None else [more]
    zeros = [np.zeros((len(A), block.shape[1]), A.dtype) for block in (*hidden, right)]
    return [
        np.hstack([A, *zeros, left]),
        np.hstack([B, *hidden, right, np.zeros((len(B), left.shape[1]), B.dtype)]),
    ]


def turned(leaf: Any) -> list[Array]:
    """Return an array, or a wider pair of factors of the same matrix."""
    if isinstance(leaf, np.ndarray):
        return [leaf]
    (A, B), k = arrays_of(leaf), leaf.rank
    M = (np.eye(k) + 0.5 * np.random.default_rng(0).uniform(size=(k, k)) / k).astype(A.dtype)
    ones = np.ones((len(B), 1), B.dtype)
    return [np.hstack([A @ M, 0.0 * A[:, :1]]), np.hstack([np.linalg.solve(M, B.T).T, ones])]


def images_of(slopes: Sequence[Array], right: Array, left: Array) -> tuple[Array, Array]:
    """Return G X and Gᵀ Y from the derivatives by wide factors."""
    end = slopes[0].shape[1] - left.shape[1]
    return slopes[0][:, end - right.shape[1] : end], slopes[1][:, end:]


def derivative(leaf: Any, act: Callable[..., Any], images: tuple[Array, Array]) -> Actions:
    """Return the derivative G by a matrix: its images of the bases are known, others are found when asked for."""
    bases = bases_of(leaf)

    def action(side: int) -> Callable[[Array], Array]:
        def apply(block: Array) -> Array:
            if block is bases[side]:
                return images[side]
            blocks = [base[:, :0] for base in bases]
            blocks[side] = np.asarray(block, real_type(*images))
            return act(*blocks)[side]

        return apply

    return Actions(leaf.shape, action(0), action(1))


def moved(leaf: Any, block: Any, right: Array, left: Array) -> tuple[list[Array], list[Array]]:
    """Return an array, or wide factors that end in X and Y, and how a direction moves them.

    Of L Rᵀ the right factor stands in the second one.
    """
    dtype = real_type(*arrays_of(leaf))
    if isinstance(leaf, np.ndarray):
        move = np.zeros(leaf.shape) if block is None else dense(block).reshape(leaf.shape)
        return [leaf], [move.astype(dtype, copy=False)]
    if block is None:
        block = Factored(*(side[:, :0] for side in arrays_of(leaf)))
    known = hasattr(block, "left")
    L, R = (dense(block.left), dense(block.right)) if known else (dense(block), np.eye(leaf.shape[1]))
    wide = pair_of(leaf, right, left, R.astype(dtype, copy=False))
    moves = [np.zeros_like(side) for side in wide]
    moves[0][:, leaf.rank : leaf.rank + L.shape[1]] = L
    return wide, moves


def tangent_move(leaf: Any, block: Any) -> list[Array] | None:
    """Return how a direction moves the arrays of `widened`, where it is tangent, [E U] [V F]ᵀ; None elsewhere."""
    if isinstance(leaf, np.ndarray):
        return moved(leaf, block, leaf, leaf)[1]
    k, (V, U), moves = leaf.rank, bases_of(leaf), [np.zeros_like(side) for side in widened(leaf)]
    if block is None:
        return moves
    if not hasattr(block, "left") or block.left.shape[1] != 2 * k:
        return None
    left, right = dense(block.left), dense(block.right)
    if not (np.array_equal(left[:, k:], U) and np.array_equal(right[:, :k], V)):
        return None
    moves[0][:, k : 2 * k], moves[1][:, 2 * k :] = left[:, :k], right[:, k:]
    return moves


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
