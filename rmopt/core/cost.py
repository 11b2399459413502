"""Costs: what is minimised. A cost knows values and ambient gradients, nothing of the manifold's metric."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Protocol, runtime_checkable

import numpy as np

from rmopt.core.ambient import Ambient


class Cost(ABC):
    """A real function of a point, with its gradient as an ambient operator."""

    @abstractmethod
    def value(self, point: Any) -> float:
        """Return the cost at a point."""

    @abstractmethod
    def gradient(self, point: Any) -> Ambient:
        """Return the Euclidean gradient at a point, as an operator on the ambient space."""


class FiniteSum(Cost):
    """A cost that is a sum of terms, for solvers that look at a few terms a step.

    A step's terms are one row of integers: `term_width` integers for each term. An enumerated
    cost has width 1 (the number of the term); a triplet cost has width 3.
    """

    term_width: int = 1

    @property
    @abstractmethod
    def n_terms(self) -> int | None:
        """Number of terms, or None when the terms are not enumerated (a stream)."""

    @abstractmethod
    def term_gradient(self, point: Any, terms: np.ndarray) -> Ambient:
        """Return the Euclidean gradient of the sum over some terms.

        Parameters
        ----------
        point : object
        terms : int array, shape (batch · term_width,)
        """


class BlockCost(Cost):
    """A cost whose gradient comes in blocks, for solvers that move one block a step.

    A cost without this runs under such solvers too, through its whole gradient.
    """

    @property
    @abstractmethod
    def n_blocks(self) -> int:
        """Number of blocks."""

    @abstractmethod
    def block_gradient(self, point: Any, block: int) -> Any:
        """Return the part of the Euclidean gradient in a block, as `HasBlocks.block_of` would."""

    @abstractmethod
    def block_scale(self, point: Any, block: int) -> float:
        """Return how long the gradient in a block would be if its parts did not cancel."""


@runtime_checkable
class HasProximalStep(Protocol):
    """A cost with a part that is not smooth, whose proximal map along a block is known."""

    def proximal_step(self, point: Any, block: int, step: float) -> Any:
        """Return the point to which the proximal map of step · (the part that is not smooth) takes a block."""


@runtime_checkable
class HasHessianAction(Protocol):
    """A cost that knows its second derivative."""

    def hessian(self, point: Any, direction: Ambient) -> Ambient:
        """Return the derivative of the Euclidean gradient along an ambient direction, as an operator."""
