"""Convex costs of the inner products of embedded objects: Z = F Y for the rows F of a feature matrix."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np

from rmopt.core.ambient import Actions, Ambient, Array
from rmopt.core.errors import MissingCapabilityError
from rmopt.costs.convex import ConvexCost, LocalModel, Mixture


class EmbeddedCost(ConvexCost):
    """A cost ℓ(m) of measurements m that are linear in F W Fᵀ, with F the features of some objects.

    At a factor, F W Fᵀ = Z Zᵀ with Z = F Y the objects' embeddings. A subclass says how embeddings are measured
    (`measure`, and its adjoint `spread`) and what the measurements cost (`loss`).

    Attributes
    ----------
    features : array, sparse array or operator, shape (n_objects, p)
        F.
    """

    features: Any

    @abstractmethod
    def measure(self, A: Array, B: Array) -> Array:
        """Return the measurements of the symmetric part of ABᵀ for embeddings A and B, shape (n_objects, d).

        A is B at a point; it saves work to notice that.
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
        """Return f as a function of weights (see `ConvexCost.mixture`): the features are not touched again."""
        measured = []
        for Y in factors:
            Z = self.features @ Y
            measured.append(self.measure(Z, Z))

        def value_and_slopes(weights: Array) -> tuple[float, Array]:
            mixed = sum(weight * part for weight, part in zip(weights, measured, strict=True))
            value, slopes = self.loss(np.asarray(mixed))
            return value, np.array([np.vdot(slopes, part) for part in measured])

        return value_and_slopes


class EmbeddedModel(LocalModel):
    """An `EmbeddedCost` around YYᵀ; the embeddings are computed once."""

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
