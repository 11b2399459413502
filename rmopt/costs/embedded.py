"""Convex costs of inner products and distances of embedded objects Z = F Y, for a feature matrix F."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp

from rmopt.core.ambient import Actions, Ambient, Array
from rmopt.core.arguments import array, integer, shown
from rmopt.core.matrices import index_rows
from rmopt.costs.convex import ConvexCost, LocalModel, Mixture
from rmopt.errors import InvalidInputError, MissingCapabilityError


class EmbeddedCost(ConvexCost):
    """A cost ℓ(m) of measurements m that are linear in F W Fᵀ, with F the features of some objects.

    At a factor, F W Fᵀ = Z Zᵀ with Z = F Y the objects' embeddings. A subclass defines the measurements (`measure`,
    and its adjoint `spread`) and their cost (`loss`).

    Attributes
    ----------
    features : array, sparse array or operator, shape (n_objects, p)
        F.

    See Also
    --------
    PairwiseDistance : squared distances as measurements.

    References
    ----------
    Mirzazadeh, White, György and Schuurmans, Scalable metric learning for co-embedding, ECML PKDD (2015),
    https://doi.org/10.1007/978-3-319-23528-8_39.

    Examples
    --------
    >>> import numpy as np
    >>> from rmopt.costs import EmbeddedCost
    >>> class Lengths(EmbeddedCost):
    ...     lower_bound = 0.0
    ...
    ...     def __init__(self, features):
    ...         self.features = features
    ...
    ...     def measure(self, A, B):
    ...         return np.sum(A * B, axis=1)
    ...
    ...     def spread(self, slopes, Z):
    ...         return slopes[:, None] * Z
    ...
    ...     def loss(self, lengths):
    ...         return 0.5 * float(np.sum((lengths - 1.0) ** 2)), lengths - 1.0
    >>> Lengths(np.eye(3)).value(np.zeros((3, 1)))
    1.5
    """

    features: Any

    @abstractmethod
    def measure(self, A: Array, B: Array) -> Array:
        """Return the measurements of the symmetric part of ABᵀ for embeddings A and B, shape (n_objects, d).

        At a point A is B, which can save work.
        """

    @abstractmethod
    def spread(self, slopes: Array, Z: Array) -> Array:
        """Return the adjoint of `measure` at some slopes, an n_objects × n_objects matrix, times Z."""

    @abstractmethod
    def loss(self, measurements: Array) -> tuple[float, Array]:
        """Return the convex loss of the measurements, and its slopes in their shape."""

    def curvature(self, measurements: Array, change: Array) -> Array:
        """Return the derivative of the slopes along a change of the measurements."""
        raise MissingCapabilityError(
            f"{type(self).__name__} has no `curvature(measurements, change)`; add it, or use a solver without "
            "second derivatives, for example LBFGS()."
        )

    @property
    def shape(self) -> tuple[int, int]:  # type: ignore[override]
        """Numbers of rows and columns of W, (p, p)."""
        return self.features.shape[1], self.features.shape[1]

    def at(self, Y: Array) -> LocalModel:
        return EmbeddedModel(self, Y)

    def mixture(self, factors: Sequence[Array]) -> Mixture:
        """Return f as a function of weights (see `ConvexCost.mixture`), which no longer needs the features."""
        measured = [self.measure(Z, Z) for Z in (self.features @ Y for Y in factors)]

        def value_and_slopes(weights: Array) -> tuple[float, Array]:
            mixed = sum(weight * part for weight, part in zip(weights, measured, strict=True))
            value, slopes = self.loss(np.asarray(mixed))
            return value, np.array([np.vdot(slopes, part) for part in measured])

        return value_and_slopes


class EmbeddedModel(LocalModel):
    """An `EmbeddedCost` around YYᵀ, with embeddings computed once."""

    def __init__(self, cost: EmbeddedCost, Y: Array) -> None:
        self.cost, self.factor = cost, Y
        self.Z = np.asarray(cost.features @ Y)
        self.measurements = cost.measure(self.Z, self.Z)
        self.value, self.slopes = cost.loss(self.measurements)

    def apply(self, V: Array) -> Array:
        return self._lifted(self.cost.spread(self.slopes, np.asarray(self.cost.features @ V)))

    def along(self, A: Array, B: Array) -> Ambient:
        cost, features = self.cost, self.cost.features
        change = 2.0 * cost.measure(np.asarray(features @ A), np.asarray(features @ B))
        bent = cost.curvature(self.measurements, change)

        def apply(V: Array) -> Array:
            return self._lifted(cost.spread(bent, np.asarray(features @ V)))

        return Actions(cost.shape, apply, apply)

    def factor_gradient(self) -> Array:
        return 2.0 * self._lifted(self.cost.spread(self.slopes, self.Z))

    def factor_hessian(self, D: Array) -> Array:
        """Return the derivative of the factor's gradient along D: one product with F, one with Fᵀ."""
        cost = self.cost
        moved = np.asarray(cost.features @ D)
        bent = cost.curvature(self.measurements, 2.0 * cost.measure(self.Z, moved))
        return 2.0 * self._lifted(cost.spread(bent, self.Z) + cost.spread(self.slopes, moved))

    def _lifted(self, Z: Array) -> Array:
        return np.asarray(self.cost.features.T @ Z)


class Pairs:
    """A list of pairs, with one distance each.

    Parameters
    ----------
    left, right : int array, shape (n_pairs,)
    n_objects : int

    Raises
    ------
    InvalidInputError
        If they are not numbers of objects.
    """

    def __init__(self, left: Any, right: Any, n_objects: int) -> None:
        n_objects = integer("n_objects", n_objects, 1)
        both = index_rows("pairs", array("pairs", [left, right]).T, (n_objects, n_objects))
        count = len(both)
        rows, signs = np.tile(np.arange(count), 2), np.repeat([1.0, -1.0], count)
        self.incidence = sp.csr_array((signs, (rows, both.T.ravel())), shape=(count, n_objects))

    def distances(self, A: Array, B: Array) -> Array:
        """Return ⟨aᵢ − aⱼ, bᵢ − bⱼ⟩ for every pair (i, j), shape (n_pairs,): squared distances when A is B."""
        apart = self.incidence @ A
        return np.einsum("ij,ij->i", apart, apart if B is A else self.incidence @ B)

    def laplacian(self, weights: Array, Z: Array) -> Array:
        """Return Σ w (eᵢ − eⱼ)(eᵢ − eⱼ)ᵀ Z over the pairs, shape (n_objects, d)."""
        return self.incidence.T @ (weights[:, None] * (self.incidence @ Z))


class Grid:
    """Every object of one range paired with every object of another, with a table of distances.

    Parameters
    ----------
    rows, columns : range
        Numbers of objects, in ranges that do not overlap.
    """

    def __init__(self, rows: range, columns: range) -> None:
        whole = all(isinstance(part, range) and part.step == 1 for part in (rows, columns))
        if not whole or max(rows.start, columns.start) < min(rows.stop, columns.stop):
            raise InvalidInputError(
                "a grid needs two ranges of objects that do not overlap, in steps of 1, got "
                f"{shown(rows)}, {shown(columns)}."
            )
        self.rows, self.columns = slice(rows.start, rows.stop), slice(columns.start, columns.stop)

    def distances(self, A: Array, B: Array) -> Array:
        """Return ⟨aᵢ − cⱼ, bᵢ − dⱼ⟩ for all rows and columns, shape (n_rows, n_columns)."""
        a, c, b, d = A[self.rows], A[self.columns], B[self.rows], B[self.columns]
        crossed = 2.0 * (a @ c.T) if B is A else a @ d.T + b @ c.T
        return np.einsum("ij,ij->i", a, b)[:, None] + np.einsum("ij,ij->i", c, d) - crossed

    def laplacian(self, weights: Array, Z: Array) -> Array:
        """Return Σ w (eᵢ − eⱼ)(eᵢ − eⱼ)ᵀ Z over the pairs, shape (n_objects, d)."""
        out = np.zeros_like(Z)
        a, c = Z[self.rows], Z[self.columns]
        out[self.rows] = weights.sum(axis=1)[:, None] * a - weights @ c
        out[self.columns] = weights.sum(axis=0)[:, None] * c - weights.T @ a
        return out


class PairwiseDistance(EmbeddedCost):
    """A convex loss of squared distances ‖(fᵢ − fⱼ)ᵀY‖² between embedded objects, for metrics and co-embeddings.

    A new loss is a subclass with `loss(distances) -> (value, slopes)`, and `curvature` for second derivatives.

    Parameters
    ----------
    features : array, sparse array or operator, shape (n_objects, p)
        One row for each object, or a `BlockDiagonal` for objects of several kinds.
    pairing : Pairs or Grid
        The measured pairs of objects, or a custom object with the methods `distances` and `laplacian`.

    Examples
    --------
    >>> import numpy as np
    >>> from rmopt.costs import Pairs, PairwiseDistance
    >>> class Stress(PairwiseDistance):
    ...     lower_bound = 0.0
    ...
    ...     def __init__(self, X, left, right, wanted):
    ...         super().__init__(X, Pairs(left, right, len(X)))
    ...         self.wanted = np.asarray(wanted)
    ...
    ...     def loss(self, distances):
    ...         gaps = distances - self.wanted
    ...         return 0.5 * float(gaps @ gaps), gaps
    >>> Stress(np.eye(3), [0, 1], [1, 2], [1.0, 4.0]).value(np.array([[0.0], [1.0], [2.0]]))
    4.5
    """

    def __init__(self, features: Any, pairing: Any) -> None:
        self.features, self.pairing = features, pairing

    def measure(self, A: Array, B: Array) -> Array:
        """Return the distances of all pairs."""
        return self.pairing.distances(A, B)

    def spread(self, slopes: Array, Z: Array) -> Array:
        """Return the Laplacian of the pairs, weighted by the slopes, times Z."""
        return self.pairing.laplacian(slopes, Z)
