"""Tensors of low multilinear rank: points, tangent vectors, and tensors known by what factors make of them."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np

from rmopt import namespaces as ns
from rmopt.core.ambient import Array, Linear, Operator, Sum, dense
from rmopt.errors import InvalidInputError, MissingCapabilityError
from rmopt.kernels import entries as kernel
from rmopt.precision import matched


def unfolding(tensor: Array, axis: int) -> Array:
    """Return a tensor as a matrix whose rows are along one axis."""
    xp = ns.namespace(tensor)
    return xp.reshape(xp.moveaxis(tensor, axis, 0), (tensor.shape[axis], -1))


def multiplied(tensor: Array, matrices: Sequence[Array | None]) -> Array:
    """Return a tensor with each of its axes multiplied by a matrix, or left as it is where that is None."""
    xp = ns.namespace(tensor)
    # The first axis becomes the last one, each time: all are where they were in the end.
    for matrix in matrices:
        if matrix is None:
            tensor = xp.moveaxis(tensor, 0, -1)
            continue
        flat = xp.reshape(tensor, (tensor.shape[0], -1)).T @ matrix.T
        tensor = xp.reshape(flat, (*tensor.shape[1:], matrix.shape[0]))
    return tensor


@dataclass(frozen=True, eq=False)
class TensorTangent(Linear):
    """A tangent vector at a tensor: how each array of the point moves.

    Attributes
    ----------
    parts : tuple of arrays
    """

    parts: tuple[Array, ...]

    def __add__(self, other: Any) -> "TensorTangent":
        if not isinstance(other, TensorTangent):
            return NotImplemented
        return TensorTangent(tuple(a + b for a, b in zip(self.parts, other.parts, strict=True)))

    def __mul__(self, scalar: float) -> "TensorTangent":
        return TensorTangent(tuple(part * scalar for part in self.parts))


@dataclass(frozen=True, eq=False)
class TuckerPoint:
    """The tensor C ×₁ U₁ … ×_d U_d: a core, each axis of which is multiplied by a matrix.

    Attributes
    ----------
    core : array, shape (r₁, …, r_d)
        Its unfolding along each axis has full row rank.
    factors : tuple of arrays, shapes (nᵢ, rᵢ)
        Orthonormal columns.
    """

    core: Array
    factors: tuple[Array, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes of the axes of the tensor."""
        return tuple(factor.shape[0] for factor in self.factors)

    @property
    def ranks(self) -> tuple[int, ...]:
        """Ranks along the axes."""
        return tuple(self.core.shape)

    @property
    def parts(self) -> tuple[Array, ...]:
        """The core and the factors, of which automatic costs are functions."""
        return self.core, *self.factors

    def as_ambient(self) -> "Tucker":
        """Return the tensor as an operator."""
        return Tucker(self.core, self.factors)

    def entries(self, indices: Any) -> Array:
        """Return the entries at some places, given by rows of an (N, d) array."""
        order, entries = in_order(indices, self.shape)
        found = np.empty(len(entries))
        found[order] = scores(self.core, self.factors, entries)
        return matched(found, self.core)


class Tensor(Operator):
    """A tensor known by its products with factors; a subclass has `shape`, `toarray` and `partials`."""

    @property
    def T(self) -> Any:
        raise MissingCapabilityError("tensors have no transposes; take `toarray` of a small one.")

    def __matmul__(self, other: Array) -> Array:
        return self.toarray() @ other

    def toarray(self) -> Array:
        """Return all entries."""
        raise NotImplementedError

    def partials(self, core: Array, factors: Sequence[Array]) -> list[Array]:
        """Return the derivatives of ⟨this, core ×₁ factor₁ … ×_d factor_d⟩ by the core and the factors."""
        raise NotImplementedError


class Tucker(Tensor):
    """The tensor with a core and any factors."""

    def __init__(self, core: Array, factors: Sequence[Array]) -> None:
        self.core, self.factors = core, tuple(factors)

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(factor.shape[0] for factor in self.factors)

    def toarray(self) -> Array:
        return multiplied(self.core, self.factors)

    def partials(self, core: Array, factors: Sequence[Array]) -> list[Array]:
        turns = [factor.T @ own for factor, own in zip(factors, self.factors, strict=True)]
        first, *others = _partials(self.core, turns, core)
        return [first, *(own @ other for own, other in zip(self.factors, others, strict=True))]

    def _times(self, scalar: float) -> "Tucker":
        return Tucker(self.core * scalar, self.factors)


class TuckerMove(Tucker):
    """A tangent vector as a tensor: a core of doubled ranks between the factors and how they move.

    Attributes
    ----------
    point : TuckerPoint
    tangent : TensorTangent
    """

    def __init__(self, point: TuckerPoint, tangent: TensorTangent) -> None:
        self.point, self.tangent, (move, *moves) = point, tangent, tangent.parts
        concat = ns.namespace(move).concat
        factors = [concat(pair, axis=1) for pair in zip(point.factors, moves, strict=True)]
        super().__init__(doubled(point.core, move), factors)

    def _times(self, scalar: float) -> "TuckerMove":
        return TuckerMove(self.point, self.tangent * scalar)


class Entries(Tensor):
    """The sparse tensor with some entries, in lexicographic order.

    Attributes
    ----------
    shape : tuple of int
    indices : int64 array, shape (N, d)
    weights : array, shape (N,)
    """

    def __init__(self, shape: Sequence[int], indices: Array, weights: Array) -> None:
        self._shape, self.indices, self.weights = tuple(shape), indices, weights

    @property
    def shape(self) -> tuple[int, ...]:
        return self._shape

    def toarray(self) -> Array:
        whole = np.zeros(self.shape)
        np.add.at(whole, tuple(self.indices.T), self.weights)
        return whole

    def partials(self, core: Array, factors: Sequence[Array]) -> list[Array]:
        flat = _flat(core, factors)
        by_core, by_factors = np.zeros(core.size), np.zeros(flat[1].size)
        kernel.slopes(*flat, self.indices, self.weights, by_core, by_factors)
        starts = flat[2]
        parts = [by_factors[start : start + u.size] for start, u in zip(starts, factors, strict=True)]
        shaped = zip([by_core, *parts], [core, *factors], strict=True)
        return [matched(part.reshape(like.shape), like) for part, like in shaped]

    def _times(self, scalar: float) -> "Entries":
        return Entries(self.shape, self.indices, self.weights * scalar)


class Partials(Tensor):
    """A tensor known by the derivatives of a function of core and factors at one point, and along its tangent space.

    Attributes
    ----------
    point : TuckerPoint
    parts : tuple of arrays
        Derivatives by the core and by each factor; of Hessians the changes of these along a tangent vector.
    """

    def __init__(self, point: TuckerPoint, parts: Sequence[Array]) -> None:
        self.point = point
        shapes = [tuple(part.shape) for part in parts]
        if shapes != [tuple(part.shape) for part in point.parts]:
            raise InvalidInputError(
                f"parts of shapes {shapes} are no derivatives by a core and factors of shapes "
                f"{[tuple(part.shape) for part in point.parts]}; give one for each."
            )
        self.parts = tuple(matched(part, point.core) for part in parts)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.point.shape

    def toarray(self) -> Array:
        # What there is to see of it: the part in the tangent space.
        return TuckerMove(self.point, gradient_by(self.point, list(self.parts))).toarray()

    def _times(self, scalar: float) -> "Partials":
        return Partials(self.point, [part * scalar for part in self.parts])


def partials_at(point: TuckerPoint, ambient: Any) -> list[Array]:
    """Return the derivatives of ⟨G, C ×₁ U₁ … ×_d U_d⟩ by the core and the factors of a point."""
    if isinstance(ambient, Partials):
        return list(ambient.parts)
    if isinstance(ambient, Sum):
        found = [partials_at(point, term) for term in ambient.terms]
        return [sum(parts[1:], start=parts[0]) for parts in zip(*found, strict=True)]
    return _of_tensor(ambient, point.core, point.factors)


def bent_at(point: TuckerPoint, ambient: Any, move: TuckerMove) -> list[Array]:
    """Return how `partials_at` of a fixed tensor change along a tangent vector.

    Of `Partials` the change is part of what costs give as their Hessian, so here it is zero.
    """
    if isinstance(ambient, Partials):
        return [ns.zeros(part.shape, part) for part in point.parts]
    if isinstance(ambient, Sum):
        found = [bent_at(point, term, move) for term in ambient.terms]
        return [sum(parts[1:], start=parts[0]) for parts in zip(*found, strict=True)]
    ranks = point.ranks
    first, *others = _of_tensor(ambient, move.core, move.factors)
    by_core = ns.zeros(ranks, point.core)
    for i in range(len(ranks)):
        by_core = by_core + first[_block(ranks, i)]
    return [by_core, *(other[:, :k] for other, k in zip(others, ranks, strict=True))]


def gradient_by(point: TuckerPoint, partials: list[Array]) -> TensorTangent:
    """Return the tangent vector that has with others the inner products of a tensor with these derivatives."""
    by_core, *by_factors = partials
    moves = []
    for i, (U, D) in enumerate(zip(point.factors, by_factors, strict=True)):
        gram = (C := unfolding(point.core, i)) @ C.T
        moves.append(ns.namespace(D).linalg.solve(gram, (D - U @ (U.T @ D)).T).T)
    return TensorTangent((by_core, *moves))


def doubled(core: Array, move: Array) -> Array:
    """Return the core of doubled ranks of a tangent vector: its move first, the core where one factor moves."""
    xp, zero = ns.namespace(core), ns.zeros(core.shape, core)
    # By how many factors move there.
    known = {0: move, 1: core}
    blocks = [known.get(sum(place), zero) for place in np.ndindex(*[2] * core.ndim)]
    for axis in range(core.ndim - 1, -1, -1):
        blocks = [xp.concat(blocks[j : j + 2], axis=axis) for j in range(0, len(blocks), 2)]
    return blocks[0]


def _block(ranks: tuple[int, ...], i: int) -> tuple[slice, ...]:
    """Return where the core of doubled ranks goes with the move of one factor."""
    return tuple(slice(k, 2 * k) if j == i else slice(0, k) for j, k in enumerate(ranks))


def _of_tensor(ambient: Any, core: Array, factors: Sequence[Array]) -> list[Array]:
    if isinstance(ambient, Tensor):
        return ambient.partials(core, factors)
    return _partials(matched(dense(ambient), core), [factor.T for factor in factors], core)


def _partials(tensor: Array, turns: Sequence[Array], core: Array) -> list[Array]:
    """Return the derivatives of ⟨T, core ×₁ turnᵀ₁ …⟩ by the core and the transposed matrices."""
    found = [multiplied(tensor, turns)]
    for i in range(core.ndim):
        others = [None if j == i else turn for j, turn in enumerate(turns)]
        found.append(unfolding(multiplied(tensor, others), i) @ unfolding(core, i).T)
    return found


def in_order(indices: Any, shape: Sequence[int]) -> tuple[Array, Array]:
    """Return the lexicographic order of some places of a tensor, and the places in it; refuse those outside."""
    found = np.asarray(indices)
    wanted = f"whole numbers of shape (N, {len(shape)}), each below the size of its axis in {tuple(shape)}"
    if found.ndim != 2 or found.shape[1] != len(shape) or found.dtype.kind not in "iu" or not len(found):
        raise InvalidInputError(f"indices must be {wanted}, got {found.dtype} of shape {found.shape}.")
    if (found < 0).any() or (found >= np.array(shape)).any():
        raise InvalidInputError(f"indices must be {wanted}; some are outside.")
    order = np.lexsort(found.T[::-1])
    return order, np.ascontiguousarray(found[order], dtype=np.int64)


def scores(core: Array, factors: Sequence[Array], entries: Array) -> Array:
    """Return the entries of a tensor at places in lexicographic order, in double precision."""
    out = np.empty(len(entries))
    kernel.scores(*_flat(core, factors), entries, out)
    return out


def _flat(core: Array, factors: Sequence[Array]) -> tuple[Array, Array, Array, Array]:
    """Return core and factors as the kernels take them."""
    rows = [np.asarray(factor, float).ravel() for factor in factors]
    starts = np.array([0, *accumulate(map(len, rows[:-1]))], np.int64)
    flat = np.ascontiguousarray(core, dtype=float).ravel()
    return flat, np.concatenate(rows), starts, np.array(core.shape, np.int64)
