"""Tensors of low multilinear rank: points, tangent vectors, and tensors known by their products with factors."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np

from rmopt import namespaces as ns
from rmopt.core.ambient import Array, Linear, Operator, Sum, dense
from rmopt.core.matrices import index_rows
from rmopt.errors import InvalidInputError, MissingCapabilityError
from rmopt.kernels import entries as kernel


def unfolding(tensor: Array, axis: int) -> Array:
    """Return a tensor as a matrix whose rows are along one axis."""
    xp = ns.namespace(tensor)
    return xp.reshape(xp.moveaxis(tensor, axis, 0), (tensor.shape[axis], -1))


def multiplied(tensor: Array, matrices: Sequence[Array | None]) -> Array:
    """Return a tensor with each axis multiplied by a matrix, or left unchanged if that is None."""
    xp = ns.namespace(tensor)
    # Each time the first axis becomes the last one, so that all return to their places.
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


class TensorPoint(ABC):
    """A tensor that is a multilinear function of some arrays, its `parts`, of which automatic costs are functions."""

    parts: tuple[Array, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes of the axes of the tensor."""
        return self.as_ambient().shape

    @abstractmethod
    def as_ambient(self) -> "Form":
        """Return the tensor as an operator."""

    @abstractmethod
    def move(self, tangent: TensorTangent) -> "Form":
        """Return a tangent vector as an operator."""

    @abstractmethod
    def tangent_by(self, partials: Sequence[Array]) -> TensorTangent:
        """Return the tangent vector whose inner products are those of a tensor with these derivatives."""

    def entries(self, indices: Any) -> Array:
        """Return the entries at some places, given by rows of an (N, d) array."""
        order, entries = in_order(indices, self.shape)
        found = np.empty(len(entries))
        found[order] = self.as_ambient().at(entries)
        return ns.matched(found, self.parts[0])


@dataclass(frozen=True, eq=False)
class TuckerPoint(TensorPoint):
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
    def ranks(self) -> tuple[int, ...]:
        """Ranks along the axes."""
        return tuple(self.core.shape)

    @property
    def parts(self) -> tuple[Array, ...]:  # type: ignore[override]
        """The core and the factors."""
        return self.core, *self.factors

    def as_ambient(self) -> "Tucker":
        return Tucker(self.core, self.factors)

    def move(self, tangent: TensorTangent) -> "Tucker":
        move, *moves = tangent.parts
        pairs = zip(self.factors, moves, strict=True)
        factors = [ns.namespace(move).concat(pair, axis=1) for pair in pairs]
        return Tucker(doubled(self.core, move), factors, tangent)

    def tangent_by(self, partials: Sequence[Array]) -> TensorTangent:
        by_core, *by_factors = partials
        moves = []
        for i, (U, D) in enumerate(zip(self.factors, by_factors, strict=True)):
            C = unfolding(self.core, i)
            moves.append(_divided(D - U @ (U.T @ D), C @ C.T))
        return TensorTangent((by_core, *moves))


@dataclass(frozen=True, eq=False)
class TrainPoint(TensorPoint):
    """The tensor with entries G₁[i₁] G₂[i₂] … G_d[i_d], products of matrices: a tensor train.

    Attributes
    ----------
    cores : tuple of arrays, shapes (rᵢ₋₁, nᵢ, rᵢ)
        With r₀ = r_d = 1. As (rᵢ₋₁ nᵢ) × rᵢ matrices all but the last have orthonormal columns.
    """

    cores: tuple[Array, ...]

    @property
    def parts(self) -> tuple[Array, ...]:  # type: ignore[override]
        """The cores."""
        return self.cores

    @property
    def ranks(self) -> tuple[int, ...]:
        """Ranks between the axes."""
        return tuple(core.shape[0] for core in self.cores[1:])

    def as_ambient(self) -> "Train":
        return Train(self.cores)

    def move(self, tangent: TensorTangent) -> "Train":
        moves = tangent.parts
        return Train(doubled_train(self.cores, moves, moves[-1]), tangent)

    def grams(self) -> list[Array]:
        """Return Gram matrices of the rows of the part behind each core."""
        found = [ns.eye(1, self.cores[0])]
        for core in self.cores[:0:-1]:
            found.append(_contracted(core, core, found[-1]))
        return found[::-1]

    def tangent_by(self, partials: Sequence[Array]) -> TensorTangent:
        moves = []
        for core, D, gram in zip(self.cores[:-1], partials[:-1], self.grams()[:-1], strict=True):
            U, D = tall(core), tall(D)
            moves.append(ns.namespace(D).reshape(_divided(D - U @ (U.T @ D), gram), core.shape))
        return TensorTangent((*moves, partials[-1]))


class Tensor(Operator):
    """A tensor known by its products with factors. A subclass has `shape`, `toarray` and `partials`."""

    @property
    def T(self) -> Any:
        raise MissingCapabilityError("tensors have no transposes; take `toarray` of a small one.")

    def __matmul__(self, other: Array) -> Array:
        return self.toarray() @ other

    @abstractmethod
    def toarray(self) -> Array:
        """Return all entries."""


class Form(Tensor):
    """A tensor that is a multilinear function of arrays.

    Attributes
    ----------
    tangent : TensorTangent or None
        The tangent vector that it is.
    """

    tangent: TensorTangent | None

    @abstractmethod
    def at(self, entries: Array) -> Array:
        """Return the entries at places in lexicographic order, in double precision."""

    @abstractmethod
    def partials(self, tensor: Any) -> list[Array]:
        """Return the derivatives of the inner product with a tensor by the arrays."""


class Tucker(Form):
    """The tensor with a core and any factors."""

    def __init__(self, core: Array, factors: Sequence[Array], tangent: TensorTangent | None = None) -> None:
        self.core, self.factors, self.tangent = core, tuple(factors), tangent

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(factor.shape[0] for factor in self.factors)

    def toarray(self) -> Array:
        return multiplied(self.core, self.factors)

    def at(self, entries: Array) -> Array:
        out = np.empty(len(entries))
        kernel.scores(*self._flat(), entries, out)
        return out

    def partials(self, tensor: Any) -> list[Array]:
        if isinstance(tensor, Entries):
            flat = self._flat()
            by_core, by_factors = np.zeros(self.core.size), np.zeros(flat[1].size)
            kernel.slopes(*flat, tensor.indices, tensor.weights, by_core, by_factors)
            return [*_split(by_core, [self.core]), *_split(by_factors, self.factors)]
        if not isinstance(tensor, Tucker):
            return self._of_array(ns.matched(dense(tensor), self.core), [factor.T for factor in self.factors])
        turns = [factor.T @ own for factor, own in zip(self.factors, tensor.factors, strict=True)]
        first, *others = self._of_array(tensor.core, turns)
        return [first, *(own @ other for own, other in zip(tensor.factors, others, strict=True))]

    def _of_array(self, tensor: Array, turns: Sequence[Array]) -> list[Array]:
        found = [multiplied(tensor, turns)]
        for i in range(self.core.ndim):
            others = [None if j == i else turn for j, turn in enumerate(turns)]
            found.append(unfolding(multiplied(tensor, others), i) @ unfolding(self.core, i).T)
        return found

    def _flat(self) -> tuple[Array, Array, Array, Array]:
        """Return core and factors as the kernels take them."""
        core = np.ascontiguousarray(self.core, dtype=float).ravel()
        return core, *_joined(self.factors), np.array(self.core.shape, np.int64)

    def _times(self, scalar: float) -> "Tucker":
        return Tucker(
            self.core * scalar, self.factors, None if self.tangent is None else self.tangent * scalar
        )


class Train(Form):
    """The tensor train with any cores."""

    def __init__(self, cores: Sequence[Array], tangent: TensorTangent | None = None) -> None:
        self.cores, self.tangent = tuple(cores), tangent

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(core.shape[1] for core in self.cores)

    def toarray(self) -> Array:
        whole, xp = self.cores[0], ns.namespace(self.cores[0])
        for core in self.cores[1:]:
            whole = xp.tensordot(whole, core, axes=1)
        return xp.reshape(whole, self.shape)

    def at(self, entries: Array) -> Array:
        out = np.empty(len(entries))
        kernel.train_scores(*self._flat(), entries, out)
        return out

    def partials(self, tensor: Any) -> list[Array]:
        if isinstance(tensor, Entries):
            flat = self._flat()
            slopes = np.zeros(flat[0].size)
            kernel.train_slopes(*flat, tensor.indices, tensor.weights, slopes)
            turned = [np.moveaxis(core, 1, 0) for core in self.cores]
            return [np.moveaxis(part, 0, 1) for part in _split(slopes, turned)]
        xp, one = ns.namespace(self.cores[0]), ns.eye(1, self.cores[0])
        right: list[Array] = [one]
        found: list[Array] = []
        if not isinstance(tensor, Train):
            for core in self.cores[:0:-1]:
                right.append(xp.reshape(xp.tensordot(core, right[-1], axes=1), (core.shape[0], -1)))
            ahead = ns.matched(dense(tensor), self.cores[0])
            for core, behind in zip(self.cores, right[::-1], strict=True):
                ahead = xp.reshape(ahead, (core.shape[0] * core.shape[1], -1))
                found.append(xp.reshape(ahead @ behind.T, core.shape))
                ahead = tall(core).T @ ahead
            return found
        for core, other in zip(self.cores[:0:-1], tensor.cores[:0:-1], strict=True):
            right.append(_contracted(core, other, right[-1]))
        left = one
        for core, other, behind in zip(self.cores, tensor.cores, right[::-1], strict=True):
            ahead = xp.tensordot(left, other, axes=1)
            found.append(xp.tensordot(ahead, behind.T, axes=1))
            left = tall(core).T @ tall(ahead)
        return found

    def _flat(self) -> tuple[Array, Array, Array]:
        """Return the cores as the kernels take them: a matrix for each place of an axis."""
        ranks = [1, *(core.shape[2] for core in self.cores)]
        return *_joined([np.moveaxis(core, 1, 0) for core in self.cores]), np.array(ranks, np.int64)

    def _times(self, scalar: float) -> "Train":
        tangent = None if self.tangent is None else self.tangent * scalar
        return Train((*self.cores[:-1], self.cores[-1] * scalar), tangent)


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

    def _times(self, scalar: float) -> "Entries":
        return Entries(self.shape, self.indices, self.weights * scalar)


class Partials(Tensor):
    """A tensor known by the derivatives of a function of a point's arrays, and along its tangent space.

    Attributes
    ----------
    point : TensorPoint
    parts : tuple of arrays
        Derivatives by each of its arrays; of Hessians the changes of these along a tangent vector.
    """

    def __init__(self, point: TensorPoint, parts: Sequence[Array]) -> None:
        self.point = point
        shapes = [tuple(part.shape) for part in parts]
        if shapes != [tuple(part.shape) for part in point.parts]:
            raise InvalidInputError(
                f"parts of shapes {shapes} are no derivatives by arrays of shapes "
                f"{[tuple(part.shape) for part in point.parts]}; give one for each."
            )
        self.parts = tuple(ns.matched(part, point.parts[0]) for part in parts)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.point.shape

    def toarray(self) -> Array:
        # The visible part: that in the tangent space.
        return self.point.move(self.point.tangent_by(self.parts)).toarray()

    def _times(self, scalar: float) -> "Partials":
        return Partials(self.point, [part * scalar for part in self.parts])


def partials_at(point: TensorPoint, ambient: Any) -> list[Array]:
    """Return the derivatives of the inner product of a tensor with a point by the arrays of the point."""
    if isinstance(ambient, Partials):
        return list(ambient.parts)
    if isinstance(ambient, Sum):
        found = [partials_at(point, term) for term in ambient.terms]
        return [sum(parts[1:], start=parts[0]) for parts in zip(*found, strict=True)]
    return point.as_ambient().partials(ambient)


def bent_at(point: TuckerPoint, ambient: Any, move: Tucker) -> list[Array]:
    """Return how `partials_at` of a fixed tensor change along a tangent vector.

    For `Partials` the Hessian of the cost contains the change, so here it is zero.
    """
    if isinstance(ambient, Partials):
        return [ns.zeros(part.shape, part) for part in point.parts]
    if isinstance(ambient, Sum):
        found = [bent_at(point, term, move) for term in ambient.terms]
        return [sum(parts[1:], start=parts[0]) for parts in zip(*found, strict=True)]
    ranks = point.ranks
    first, *others = move.partials(ambient)
    by_core = ns.zeros(ranks, point.core)
    for i in range(len(ranks)):
        by_core = by_core + first[_block(ranks, i)]
    return [by_core, *(other[:, :k] for other, k in zip(others, ranks, strict=True))]


def doubled(core: Array, move: Array) -> Array:
    """Return the core of doubled ranks of a tangent vector: its move first, then the core with one factor moving."""
    xp, zero = ns.namespace(core), ns.zeros(core.shape, core)
    # Indexed by the number of moving factors.
    known = {0: move, 1: core}
    blocks = [known.get(sum(place), zero) for place in np.ndindex(*[2] * core.ndim)]
    for axis in range(core.ndim - 1, -1, -1):
        blocks = [xp.concat(blocks[j : j + 2], axis=axis) for j in range(0, len(blocks), 2)]
    return blocks[0]


def _block(ranks: tuple[int, ...], i: int) -> tuple[slice, ...]:
    """Return the block of the core of doubled ranks that belongs to the move of one factor."""
    return tuple(slice(k, 2 * k) if j == i else slice(0, k) for j, k in enumerate(ranks))


def in_order(indices: Any, shape: Sequence[int]) -> tuple[Array, Array]:
    """Return the lexicographic order of places of a tensor, and the places so sorted; refuse places outside."""
    found = index_rows("indices", indices, tuple(shape))
    if not len(found):
        raise InvalidInputError("indices are empty; give the places of at least one entry.")
    order = np.lexsort(found.T[::-1])
    return order, found[order]


def tall(core: Array) -> Array:
    """Return a core of a train as a matrix whose columns belong to the next one."""
    return ns.namespace(core).reshape(core, (-1, core.shape[-1]))


def doubled_train(cores: Sequence[Array], moves: Sequence[Array], last: Array) -> list[Array]:
    """Return the cores of doubled ranks of a sum of trains in which one core has moved. `last` is for none."""
    xp, found = ns.namespace(last), []
    for i, (core, move) in enumerate(zip(cores[:-1], moves[:-1], strict=True)):
        rows = xp.concat([move, core], axis=2)
        found.append(rows if i == 0 else xp.concat([xp.concat([core, 0.0 * core], axis=2), rows], axis=0))
    return [*found, xp.concat([cores[-1], last], axis=0)]


def _contracted(core: Array, other: Array, behind: Array) -> Array:
    """Return Σ G[i] B H[i]ᵀ over the places of an axis."""
    xp = ns.namespace(core)
    ahead = xp.tensordot(core, behind, axes=1)
    return xp.reshape(ahead, (core.shape[0], -1)) @ xp.reshape(other, (other.shape[0], -1)).T


def _divided(rows: Array, gram: Array) -> Array:
    return ns.namespace(rows).linalg.solve(gram, rows.T).T


def _joined(arrays: Sequence[Array]) -> tuple[Array, Array]:
    """Return arrays in one flat array of doubles, and the start of each."""
    flat = [np.asarray(one, float).ravel() for one in arrays]
    return np.concatenate(flat), np.array([0, *accumulate(map(len, flat[:-1]))], np.int64)


def _split(flat: Array, like: Sequence[Array]) -> list[Array]:
    """Return a flat array as arrays of these shapes and their precision."""
    ends = [*accumulate(one.size for one in like)]
    parts = np.split(flat, ends[:-1])
    return [ns.matched(part.reshape(one.shape), one) for part, one in zip(parts, like, strict=True)]
