"""Convex costs of squared distances between embedded objects."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
import scipy.sparse as sp

from rmopt.core.ambient import Array
from rmopt.core.arguments import integer, shown
from rmopt.core.errors import InvalidInputError
from rmopt.costs.embedded import EmbeddedCost


class Pairing(ABC):
    """Which objects' distances are measured."""

    @abstractmethod
    def distances(self, A: Array, B: Array) -> Array:
        """Return ⟨aᵢ − aⱼ, bᵢ − bⱼ⟩ for every pair (i, j): squared distances when A is B."""

    @abstractmethod
    def laplacian(self, weights: Array, Z: Array) -> Array:
        """Return Σ w (eᵢ − eⱼ)(eᵢ − eⱼ)ᵀ Z over the pairs, shape (n_objects, d)."""


class Pairs(Pairing):
    """A list of pairs; distances have its length.

    Parameters
    ----------
    left, right : int array, shape (n_pairs,)
    n_objects : int

    Raises
    ------
    InvalidInputError
        When they are not equally many numbers of objects.
    """

    def __init__(self, left: Any, right: Any, n_objects: int) -> None:
        left, right, n_objects = np.asarray(left), np.asarray(right), integer("n_objects", n_objects, 1)
        if left.shape != right.shape or left.ndim != 1 or left.size == 0:
            raise InvalidInputError(
                f"pairs need two equally long lists of objects, got shapes {left.shape} and {right.shape}."
            )
        both = np.concatenate([left, right])
        if not np.issubdtype(both.dtype, np.integer) or both.min() < 0 or both.max() >= n_objects:
            raise InvalidInputError(
                f"pairs must hold integers from 0 to {n_objects - 1}: numbers of objects."
            )
        rows = np.tile(np.arange(left.size), 2)
        signs = np.repeat([1.0, -1.0], left.size)
        self.incidence = sp.csr_array((signs, (rows, both)), shape=(left.size, n_objects))

    def distances(self, A: Array, B: Array) -> Array:
        """Return the distances of all pairs, shape (n_pairs,)."""
        apart = self.incidence @ A
        return np.einsum("ij,ij->i", apart, apart if B is A else self.incidence @ B)

    def laplacian(self, weights: Array, Z: Array) -> Array:
        return self.incidence.T @ (weights[:, None] * (self.incidence @ Z))


class Grid(Pairing):
    """Every object of one range with every object of another; distances are a table.

    Parameters
    ----------
    rows, columns : range
        Numbers of objects; the two do not overlap.
    """

    def __init__(self, rows: range, columns: range) -> None:
        ranges = isinstance(rows, range) and isinstance(columns, range)
        if not ranges or not rows or not columns or set(rows) & set(columns):
            raise InvalidInputError(
                f"a grid needs two ranges of objects that do not overlap, got {shown(rows)}, {shown(columns)}."
            )
        self.rows, self.columns = slice(rows.start, rows.stop), slice(columns.start, columns.stop)

    def distances(self, A: Array, B: Array) -> Array:
        """Return the distances of all pairs, shape (n_rows, n_columns)."""
        a, c, b, d = A[self.rows], A[self.columns], B[self.rows], B[self.columns]
        crossed = 2.0 * (a @ c.T) if B is A else a @ d.T + b @ c.T
        return np.einsum("ij,ij->i", a, b)[:, None] + np.einsum("ij,ij->i", c, d) - crossed

    def laplacian(self, weights: Array, Z: Array) -> Array:
        out = np.zeros_like(Z)
        a, c = Z[self.rows], Z[self.columns]
        out[self.rows] = weights.sum(axis=1)[:, None] * a - weights @ c
        out[self.columns] = weights.sum(axis=0)[:, None] * c - weights.T @ a
        return out


class PairwiseDistance(EmbeddedCost):
    """A convex loss of squared distances ‖(fᵢ − fⱼ)ᵀY‖² between embedded objects, for metrics and co-embeddings.

    A new loss is a subclass with `loss(distances) -> (value, slopes)`, and with `curvature` where second derivatives
    are wanted. For example, distances between linked objects, and a margin for the others::

        class Contrastive(PairwiseDistance):
            lower_bound = 0.0  # A premise of certificates: the loss is never negative.
            def __init__(self, X, left, right, linked):
                super().__init__(X, Pairs(left, right, len(X)))
                self.linked = linked
            def loss(self, distances):
                short = np.maximum(1 - distances, 0) * ~self.linked
                return (distances * self.linked).sum() + short.sum(), self.linked - 1.0 * (short > 0)

    Parameters
    ----------
    features : array, sparse array or operator, shape (n_objects, p)
        One row for each object; `BlockDiagonal` for objects of several kinds.
    pairing : Pairing
        `Pairs` or `Grid`.
    """

    def __init__(self, features: Any, pairing: Pairing) -> None:
        self.features, self.pairing = features, pairing

    def measure(self, A: Array, B: Array) -> Array:
        """Return the distances of all pairs."""
        return self.pairing.distances(A, B)

    def spread(self, slopes: Array, Z: Array) -> Array:
        """Return the Laplacian of the pairs, weighted by the slopes, times Z."""
        return self.pairing.laplacian(slopes, Z)
