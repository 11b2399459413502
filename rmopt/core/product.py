"""Points, tangent vectors and gradients of product manifolds: one part per factor."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from rmopt.core.ambient import Actions, Array, Sum, dense


class Parts:
    """A point or tangent vector of a product manifold, with the arithmetic of its parts.

    Parameters
    ----------
    parts : sequence
        One per factor.
    """

    __array_ufunc__ = None

    def __init__(self, parts: Sequence[Any]) -> None:
        self.parts = tuple(parts)

    def __len__(self) -> int:
        return len(self.parts)

    def __getitem__(self, index: int) -> Any:
        return self.parts[index]

    def __iter__(self) -> Iterator[Any]:
        return iter(self.parts)

    def __add__(self, other: Parts) -> Parts:
        return Parts([a + b for a, b in zip(self, other, strict=True)])

    def __sub__(self, other: Parts) -> Parts:
        return Parts([a - b for a, b in zip(self, other, strict=True)])

    def __mul__(self, scalar: float) -> Parts:
        return Parts([part * scalar for part in self])

    __rmul__ = __mul__

    def __truediv__(self, scalar: float) -> Parts:
        return Parts([part / scalar for part in self])

    def __neg__(self) -> Parts:
        return self * -1.0

    def __repr__(self) -> str:
        return f"Parts of {len(self)} factors"


class BlockDiagonal:
    """The ambient matrix with these blocks on its diagonal; those that are not given are zero.

    Parameters
    ----------
    shapes : sequence of (int, int)
        Shapes of all blocks.
    blocks : mapping from int to ambient operator
        The blocks that are not zero.
    """

    __array_ufunc__ = None

    def __init__(self, shapes: Sequence[tuple[int, int]], blocks: Mapping[int, Any]) -> None:
        self.shapes, self.blocks = tuple(shapes), dict(blocks)

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of rows and columns, the sums over the blocks."""
        return sum(n for n, _ in self.shapes), sum(m for _, m in self.shapes)

    @property
    def T(self) -> BlockDiagonal:
        """The transposed operator."""
        return BlockDiagonal(
            [(m, n) for n, m in self.shapes], {i: block.T for i, block in self.blocks.items()}
        )

    def __matmul__(self, other: Array) -> Array:
        result = np.zeros((self.shape[0], *np.shape(other)[1:]))
        rows, columns = offsets(self.shapes)
        for i, block in self.blocks.items():
            result[rows[i] : rows[i + 1]] = block @ other[columns[i] : columns[i + 1]]
        return result

    def __add__(self, other: Any) -> Sum:
        return Sum(self, other)

    def __mul__(self, scalar: float) -> BlockDiagonal:
        return BlockDiagonal(self.shapes, {i: block * scalar for i, block in self.blocks.items()})

    __rmul__ = __mul__

    def __neg__(self) -> BlockDiagonal:
        return self * -1.0

    def toarray(self) -> Array:
        """Return the matrix as an array."""
        whole = np.zeros(self.shape)
        rows, columns = offsets(self.shapes)
        for i, block in self.blocks.items():
            whole[rows[i] : rows[i + 1], columns[i] : columns[i + 1]] = dense(block)
        return whole


def offsets(shapes: Sequence[tuple[int, int]]) -> tuple[Array, Array]:
    """Return where the rows and the columns of each block begin, and where the last ones end."""
    sizes = np.array(shapes)
    rows, columns = (np.concatenate([[0], np.cumsum(sizes[:, axis])]) for axis in (0, 1))
    return rows, columns


def diagonal_blocks(ambient: Any, shapes: Sequence[tuple[int, int]]) -> dict[int, Any]:
    """Return the blocks on the diagonal of an ambient matrix that are not zero, by their number."""
    if isinstance(ambient, BlockDiagonal) and ambient.shapes == tuple(shapes):
        return ambient.blocks
    if isinstance(ambient, Sum):
        found: dict[int, Any] = {}
        for term in ambient.terms:
            for i, block in diagonal_blocks(term, shapes).items():
                found[i] = Sum(found[i], block) if i in found else block
        return found
    rows, columns = offsets(shapes)
    parts = [(slice(*rows[i : i + 2]), slice(*columns[i : i + 2])) for i in range(len(shapes))]
    if isinstance(ambient, np.ndarray):
        return {i: ambient[part] for i, part in enumerate(parts)}
    return {i: _block(ambient, *part) for i, part in enumerate(parts)}


def _block(ambient: Any, rows: slice, columns: slice) -> Actions:
    """Return a block of an operator of which only the actions are known."""
    n, m = ambient.shape

    def apply(X: Array) -> Array:
        wide = np.zeros((m, X.shape[1]))
        wide[columns] = X
        return (ambient @ wide)[rows]

    def apply_transposed(X: Array) -> Array:
        wide = np.zeros((n, X.shape[1]))
        wide[rows] = X
        return (ambient.T @ wide)[columns]

    return Actions((rows.stop - rows.start, columns.stop - columns.start), apply, apply_transposed)
