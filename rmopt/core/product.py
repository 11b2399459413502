"""Points, tangent vectors and gradients of product manifolds: one part per factor."""

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from itertools import accumulate, pairwise
from typing import Any, Self

import numpy as np

from rmopt import namespaces as ns
from rmopt.core.ambient import Array, Linear, Operator, Sum, dense
from rmopt.core.arguments import shown
from rmopt.errors import InvalidInputError


class Parts(Linear):
    """A point or tangent vector of a product manifold, with the arithmetic of its parts.

    Parameters
    ----------
    parts : sequence
        One per factor.
    """

    def __init__(self, parts: Sequence[Any]) -> None:
        self.parts = tuple(parts)

    def __len__(self) -> int:
        return len(self.parts)

    def __getitem__(self, index: int) -> Any:
        return self.parts[index]

    def __iter__(self) -> Iterator[Any]:
        return iter(self.parts)

    def __add__(self, other: Self) -> Self:
        if not isinstance(other, type(self)):
            return NotImplemented
        return type(self)([a + b for a, b in zip(self.parts, other.parts, strict=True)])

    def __mul__(self, scalar: float) -> Self:
        return type(self)([part * scalar for part in self.parts])

    def __repr__(self) -> str:
        return f"Parts of {len(self)} factors"


class LowRankFactors(Parts):
    """Parts A and B that represent W = ABᵀ, as the point type of costs. Any two parts are accepted."""


class BlockDiagonal(Operator):
    """The ambient matrix with these blocks on its diagonal. Blocks that are not given are zero.

    Parameters
    ----------
    shapes : sequence of (int, int)
        Shapes of all blocks.
    blocks : mapping from int to ambient operator
        The blocks that are not zero. A vector means one column.
    """

    def __init__(self, shapes: Sequence[tuple[int, int]], blocks: Mapping[int, Any]) -> None:
        self.shapes = tuple(shapes)
        self.blocks = {i: _as_matrix(block) for i, block in blocks.items()}
        for i, block in self.blocks.items():
            if not 0 <= i < len(self.shapes) or tuple(block.shape) != tuple(self.shapes[i]):
                raise InvalidInputError(
                    f"part {i} has shape {tuple(block.shape)}, which does not fit blocks of shapes "
                    f"{[*map(tuple, self.shapes)]}; make them agree."
                )
        self.arrays = {i: block for i, block in blocks.items() if ns.is_array(block)}

    def __getitem__(self, index: int) -> Any:
        index = range(len(self.shapes))[index]
        # A vector as it was given, not as a column.
        found = self.arrays.get(index, self.blocks.get(index))
        return np.zeros(self.shapes[index]) if found is None else found

    @property
    def shape(self) -> tuple[int, int]:
        return sum(n for n, _ in self.shapes), sum(m for _, m in self.shapes)

    @cached_property
    def T(self) -> "BlockDiagonal":
        # Stored, because scipy takes as long for the transpose of a sparse block as for a product with few columns.
        return BlockDiagonal(
            [(m, n) for n, m in self.shapes], {i: block.T for i, block in self.blocks.items()}
        )

    def __matmul__(self, other: Array) -> Array:
        rows, columns = offsets(self.shapes)
        parts = {i: block @ other[columns[i] : columns[i + 1]] for i, block in self.blocks.items()}
        xp, width = ns.namespace(other), tuple(other.shape[1:])
        if xp is not np:
            missing = (ns.zeros((end - start, *width), other) for start, end in pairwise(rows))
            return xp.concat([parts.get(i, zero) for i, zero in enumerate(missing)], axis=0)
        kind = np.result_type(ns.real_type(other, *parts.values()), *{part.dtype for part in parts.values()})
        result = np.zeros((self.shape[0], *width), kind)
        for i, part in parts.items():
            result[rows[i] : rows[i + 1]] = part
        return result

    def _times(self, scalar: float) -> "BlockDiagonal":
        return BlockDiagonal(self.shapes, {i: block * scalar for i, block in self.blocks.items()})

    def toarray(self) -> Array:
        """Return the matrix as an array."""
        parts = {i: dense(block) for i, block in self.blocks.items()}
        parts = {i: ns.to_numpy(part) for i, part in parts.items()}
        whole = np.zeros(self.shape, np.result_type(*parts.values()) if parts else float)
        rows, columns = offsets(self.shapes)
        for i, part in parts.items():
            whole[rows[i] : rows[i + 1], columns[i] : columns[i + 1]] = part
        return whole


def offsets(shapes: Sequence[tuple[int, int]]) -> tuple[list[int], list[int]]:
    """Return the first row and column of each block, and the ends of the last block."""
    rows, columns = zip(*shapes, strict=True)
    return [0, *accumulate(rows)], [0, *accumulate(columns)]


def diagonal_blocks(ambient: Any, shapes: Sequence[tuple[int, int]]) -> dict[int, Any]:
    """Return the blocks on the diagonal of an ambient matrix that are not zero, by their number.

    `Parts`, a list or a tuple hold the blocks themselves, in the order of the parts. A matrix of another shape, or
    another number of parts, is refused.
    """
    if isinstance(ambient, BlockDiagonal) and ambient.shapes == tuple(shapes):
        return ambient.blocks
    if isinstance(ambient, Sum):
        found: dict[int, Any] = {}
        for term in ambient.terms:
            for i, block in diagonal_blocks(term, shapes).items():
                found[i] = Sum(found[i], block) if i in found else block
        return found
    if isinstance(ambient, Parts | list | tuple):
        if len(ambient) != len(shapes):
            raise InvalidInputError(
                f"a gradient of {len(ambient)} parts does not fit points of {len(shapes)} parts; give one for each."
            )
        return BlockDiagonal(shapes, dict(enumerate(ambient))).blocks
    rows, columns = offsets(shapes)
    if tuple(getattr(ambient, "shape", ())) != (rows[-1], columns[-1]):
        raise InvalidInputError(
            f"{shown(ambient)} is not a gradient of a point with parts of shapes {[*map(tuple, shapes)]}; give "
            f"Parts, a BlockDiagonal of these shapes, or a matrix of shape {(int(rows[-1]), int(columns[-1]))}."
        )
    if not hasattr(ambient, "__getitem__"):
        ambient = dense(ambient)
    return {i: ambient[slice(*rows[i : i + 2]), slice(*columns[i : i + 2])] for i in range(len(shapes))}


def matrix_shape(shape: Sequence[int]) -> tuple[int, int]:
    """Return the shape of a matrix. Anything else, such as a vector, is one column."""
    n, m = shape if len(shape) == 2 else (int(np.prod(shape)), 1)
    return n, m


def _as_matrix(block: Any) -> Any:
    if isinstance(block, Parts | list | tuple):
        blocks = [_as_matrix(part) for part in block]
        return BlockDiagonal([part.shape for part in blocks], dict(enumerate(blocks)))
    block = block if hasattr(block, "shape") else np.asarray(block, dtype=float)
    return block if len(block.shape) == 2 else ns.namespace(block).reshape(block, (-1, 1))
