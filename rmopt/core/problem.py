"""A problem: a cost to minimise on a manifold."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rmopt.core.cost import Cost, HasHessianAction
from rmopt.core.errors import InvalidInputError, MissingCapabilityError
from rmopt.core.manifold import HasHessian, Manifold


@dataclass(frozen=True)
class Problem:
    """Minimise `cost` on `manifold`.

    Attributes
    ----------
    manifold : Manifold
    cost : Cost

    Raises
    ------
    InvalidInputError
        When both have a shape, and the shapes differ.
    """

    manifold: Manifold
    cost: Cost

    def __post_init__(self) -> None:
        scored, held = (getattr(part, "shape", None) for part in (self.cost, self.manifold))
        if scored is not None and held is not None and tuple(scored) != tuple(held):
            (n, m), (rows, columns) = scored, held
            raise InvalidInputError(
                f"{type(self.cost).__name__} scores {n} × {m} matrices, and {self.manifold} holds "
                f"{rows} × {columns} ones; make the manifold as large as the data are wide."
            )

    def riemannian_gradient(self, point: Any) -> Any:
        """Return the Riemannian gradient of the cost at a point: a tangent vector."""
        return self.manifold.euclidean_to_riemannian_gradient(point, self.cost.gradient(point))

    def riemannian_hessian(self, point: Any, tangent: Any) -> Any:
        """Return the Riemannian Hessian of the cost along a tangent vector: a tangent vector.

        Raises
        ------
        MissingCapabilityError
            When the manifold or the cost has no second derivatives.
        """
        if not isinstance(self.manifold, HasHessian):
            raise MissingCapabilityError(
                f"{self.manifold} has no `euclidean_to_riemannian_hessian`; use a first-order solver."
            )
        if not isinstance(self.cost, HasHessianAction):
            raise MissingCapabilityError(
                f"{type(self.cost).__name__} has no `hessian(point, direction)`; "
                "add it, or use a first-order solver."
            )
        direction = self.manifold.embedding(point, tangent)
        return self.manifold.euclidean_to_riemannian_hessian(
            point, self.cost.gradient(point), self.cost.hessian(point, direction), tangent
        )
