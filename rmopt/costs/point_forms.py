"""The components of points for automatic derivatives: arrays, and matrices as pairs of factors.

A matrix W = A Bᵀ is written with more columns, [A 0 Y] [B X 0]ᵀ. The derivatives by the two factors are G and Gᵀ
times the other one, so that their last columns are G X and Gᵀ Y. With complex numbers, where G is the derivative by
the real part plus i times that by the imaginary part, they are G X̄ and Gᵀ Ȳ.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from rmopt import namespaces as ns
from rmopt.core.ambient import Actions, Array, Factored, dense
from rmopt.core.product import Parts, diagonal_blocks, matrix_shape
from rmopt.core.tensors import TensorPoint

# The form of a point: an array, a matrix by factors, or parts.
ARRAY, MATRIX = "array", "matrix"
Form = Any


def form_of(point: Any) -> Form:
    """Return the form of a point."""
    if isinstance(point, Parts | TensorPoint):
        return tuple(form_of(part) for part in point.parts)
    return ARRAY if ns.is_array(point) else MATRIX


def kinds_in(form: Form) -> list[str]:
    """Return the components of a form in a flat list."""
    return [form] if isinstance(form, str) else [leaf for part in form for leaf in kinds_in(part)]


def leaves_of(point: Any) -> list[Any]:
    """Return the arrays and the matrices of a point, in a flat list."""
    if not isinstance(point, Parts | TensorPoint):
        return [point]
    return [leaf for part in point.parts for leaf in leaves_of(part)]


def arrays_of(leaf: Any) -> list[Array]:
    """Return an array, or the factors A and B of a matrix."""
    if ns.is_array(leaf):
        return [leaf]
    W = leaf.as_ambient()
    return [W.left, W.right]


def flat_of(point: Any) -> list[Array]:
    """Return the arrays of a point, those of matrices by their factors, in a flat list."""
    return [array for leaf in leaves_of(point) for array in arrays_of(leaf)]


def bases_of(leaf: Any) -> tuple[Array, Array]:
    """Return bases of the columns of Wᵀ and of W, or an array itself."""
    if ns.is_array(leaf):
        return leaf, leaf
    return ns.conj(leaf.V), leaf.U


def widened(leaf: Any) -> list[Array]:
    """Return the arrays to differentiate by: wide factors for a matrix."""
    return [leaf] if ns.is_array(leaf) else pair_of(leaf, *bases_of(leaf))


def pair_of(leaf: Any, right: Array, left: Array, more: Array | None = None) -> list[Array]:
    """Return wide factors of a matrix that end in X and Y, with columns of B that a direction moves."""
    A, B = arrays_of(leaf)
    concat = ns.namespace(A).concat
    hidden = [] if more is None else [more]
    zeros = [ns.zeros((A.shape[0], block.shape[1]), A) for block in (*hidden, right)]
    return [
        concat([A, *zeros, left], axis=1),
        concat([B, *hidden, right, ns.zeros((B.shape[0], left.shape[1]), B)], axis=1),
    ]


def turned(leaf: Any) -> list[Array]:
    """Return an array, or a wider pair of factors of the same matrix."""
    if ns.is_array(leaf):
        return [leaf]
    (A, B), k = arrays_of(leaf), leaf.rank
    xp, twist = ns.namespace(A), 0.5 * np.random.default_rng(0).uniform(size=(2, k, k)) / k
    M = np.eye(k) + (twist[0] + 1j * twist[1] if ns.is_complex(A) else twist[0])
    M = ns.asarray(M, A, ns.numbers_of(A))
    ones = ns.zeros((B.shape[0], 1), B) + 1.0
    return [
        xp.concat([A @ M, 0.0 * A[:, :1]], axis=1),
        xp.concat([xp.linalg.solve(M, B.T).T, ones], axis=1),
    ]


def images_of(slopes: Sequence[Array], right: Array, left: Array) -> tuple[Array, Array]:
    """Return G X̄ and Gᵀ Ȳ from the derivatives by wide factors."""
    end = slopes[0].shape[1] - left.shape[1]
    return slopes[0][:, end - right.shape[1] : end], slopes[1][:, end:]


def derivative(leaf: Any, act: Callable[..., Any], images: tuple[Array, Array]) -> Actions:
    """Return the derivative G by a matrix: its images of the bases are known, and others are computed on request."""
    bases = bases_of(leaf)
    known = leaf.V, ns.conj(bases[1])

    def action(side: int) -> Callable[[Array], Array]:
        def apply(block: Array) -> Array:
            base = known[side]
            # Conjugates are new arrays every time.
            if block is base or (ns.is_complex(block) and block.shape == base.shape and ns.same(block, base)):
                return images[side]
            blocks = [base[:, :0] for base in bases]
            blocks[side] = ns.conj(ns.matched(block, images[side]))
            return act(*blocks)[side]

        return apply

    return Actions(leaf.shape, action(0), action(1))


def moved(leaf: Any, block: Any, right: Array, left: Array) -> tuple[list[Array], list[Array]]:
    """Return an array, or wide factors that end in X and Y, and how a direction moves them.

    For L Rᵀ the right factor is in the second one.
    """
    if ns.is_array(leaf):
        if block is None:
            return [leaf], [ns.zeros(leaf.shape, leaf)]
        move = dense(block, leaf)
        return [leaf], [ns.namespace(move).reshape(move, leaf.shape)]
    A, B = arrays_of(leaf)
    if block is None:
        block = Factored(A[:, :0], B[:, :0])
    known = hasattr(block, "left")
    L, R = (
        (dense(block.left, A), dense(block.right, A))
        if known
        else (dense(block, A), ns.eye(leaf.shape[1], A))
    )
    wide = pair_of(leaf, right, left, R)
    return wide, [_amid(L, leaf.rank, wide[0].shape[1]), ns.zeros(wide[1].shape, B)]


def tangent_move(leaf: Any, block: Any) -> list[Array] | None:
    """Return the moves of the arrays of `widened` along a tangent direction [E U] [V F]ᵀ, or None for others."""
    if ns.is_array(leaf):
        return moved(leaf, block, leaf, leaf)[1]
    k, (V, U) = leaf.rank, bases_of(leaf)
    if block is None:
        return [ns.zeros((base.shape[0], 3 * k), base) for base in (U, V)]
    if not hasattr(block, "left") or block.left.shape[1] != 2 * k:
        return None
    left, right = dense(block.left, U), dense(block.right, V)
    if not (ns.same(left[:, k:], U) and ns.same(right[:, :k], V)):
        return None
    return [_amid(left[:, :k], k, 3 * k), _amid(right[:, k:], 2 * k, 3 * k)]


def _amid(block: Array, start: int, width: int) -> Array:
    """Return a block padded by columns of zeros."""
    before, after = (
        ns.zeros((block.shape[0], count), block) for count in (start, width - start - block.shape[1])
    )
    return ns.namespace(block).concat([before, block, after], axis=1)


def with_blocks(point: Any, direction: Any) -> list[Any]:
    """Return the blocks of a direction for the arrays and matrices of a point, or None for zero blocks."""
    if isinstance(point, TensorPoint):
        return list(direction.tangent.parts)
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
    """Build a point of a form from arrays and matrices."""
    return next(parts) if isinstance(form, str) else Parts([gathered(part, parts) for part in form])
