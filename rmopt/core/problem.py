"""A problem: a cost to minimise on a manifold."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from rmopt import namespaces as ns
from rmopt.core.ambient import Ambient
from rmopt.core.arguments import shown
from rmopt.core.cost import Cost
from rmopt.core.manifold import Manifold
from rmopt.core.points import arrays_of, coarseness_of
from rmopt.core.product import BlockDiagonal, Parts, diagonal_blocks
from rmopt.core.tensors import Partials, TensorPoint
from rmopt.errors import DivergedError, InvalidInputError, MissingCapabilityError


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
        If one is not a manifold or not a cost, the cost takes other points, or their shapes differ.

    Examples
    --------
    >>> import numpy as np
    >>> import rmopt
    >>> from rmopt.manifolds import Sphere
    >>> @rmopt.autograd_cost
    ... def first(x):
    ...     return x[0]
    >>> problem = rmopt.Problem(Sphere(3), first)
    >>> problem.riemannian_gradient(np.array([0.0, 1.0, 0.0]))
    array([1., 0., 0.])
    """

    manifold: Manifold
    cost: Cost
    # How a solver of the cost alone treats other parts, empty if there are none.
    beyond: ClassVar[str] = ""

    @property
    def constraints(self) -> tuple[Any, ...]:
        """Further constraints: none, except for `rmopt.costs.ConstrainedProblem`."""
        return ()

    def hold_to_cost(self, who: str) -> None:
        """Refuse a problem with parts outside its cost, on behalf of `who`, which uses the cost alone."""
        if self.beyond:
            raise MissingCapabilityError(f"{who} {self.beyond}.")

    def __post_init__(self) -> None:
        manifold, cost = self.manifold, self.cost
        if not isinstance(manifold, Manifold):
            raise InvalidInputError(
                f"manifold = {shown(manifold)} is not an rmopt manifold; write Problem(manifold, cost), with one of "
                "rmopt.manifolds, or one of pymanopt's that is wrapped: rmopt.interop.from_pymanopt(manifold)."
            )
        if not isinstance(cost, Cost):
            raise InvalidInputError(
                f"cost = {shown(cost)} is not a cost; make one of a function by rmopt.autograd_cost(function), or an "
                "object of a subclass of rmopt.core.Cost."
            )
        reason = None if manifold.point_type is object else cost.refuses(manifold.point_type)
        if reason is not None:
            raise InvalidInputError(f"{manifold}: {reason}")
        # If points are factors of matrices, `sizes` are those of the matrices.
        held = getattr(manifold, "sizes", getattr(manifold, "shape", None))
        scored = getattr(cost, "shape", None)
        if scored is not None and held is not None and tuple(scored) != tuple(held):
            sizes, room = (" × ".join(map(str, shape)) for shape in (scored, held))
            raise InvalidInputError(
                f"{type(self.cost).__name__} scores {sizes} matrices, and {self.manifold} holds "
                f"{room} ones; make the manifold as large as the data are wide."
            )

    def riemannian_gradient(self, point: Any) -> Any:
        """Return the Riemannian gradient of the cost at a point: a tangent vector."""
        return self.manifold.euclidean_to_riemannian_gradient(point, self.gradient(point))

    def value(self, point: Any) -> float:
        """Return the cost at a point, and refuse a value that is not a real number."""
        return self.real(self.cost.value(point))

    def real(self, found: Any) -> float:
        """Return a value of the cost as a float, and refuse anything but a real number."""
        return self.cost._real(found)

    def gradient(self, point: Any) -> Ambient:
        """Return the Euclidean gradient of the cost at a point.

        Raises
        ------
        InvalidInputError
            If it is not an ambient matrix of the shape of the points.
        """
        return ambient_at(self.manifold, point, self.cost.gradient(point), self.cost)

    def probe(self, point: Any) -> tuple[float, Ambient, Any]:
        """Return cost, Euclidean and Riemannian gradient at a point, and refuse values that no solver can use.

        Raises
        ------
        InvalidInputError
            If the cost is not a number or changes the point, or the gradient does not fit the points or is so short
            that its square is zero.
        DivergedError
            If one of them is not finite.
        """
        with np.errstate(all="ignore"):
            found, ambient = unchanged(
                self.cost, point, lambda: self.cost.value_and_gradient(point), "value and gradient"
            )
            value = self.real(found)
            ambient = ambient_at(self.manifold, point, ambient, self.cost)
            gradient = self.manifold.euclidean_to_riemannian_gradient(point, ambient)
            length = self.manifold.norm(point, gradient)
        if not (np.isfinite(value) and np.isfinite(length)):
            raise DivergedError(
                f"the value of {type(self.cost).__name__} at the initial point is {value}, and its gradient has "
                f"length {length}; start elsewhere, or check that the cost is finite on the manifold.",
                0,
            )
        # In single precision squares vanish at 1e-19.
        if 0.0 < length < (1e-140 if coarseness_of(point) == 1.0 else 1e-16):
            raise InvalidInputError(
                f"the gradient of {type(self.cost).__name__} at the initial point has length {length:.1e}, whose "
                "square is zero in floating point; multiply the cost by a large constant."
            )
        return value, ambient, gradient

    def lacks_hessian(self) -> str | None:
        """Return why the problem has no second derivatives, or None."""
        if not self.manifold.knows_hessians:
            return f"{self.manifold} has no `euclidean_to_riemannian_hessian`; use a first-order solver."
        if not hasattr(self.cost, "hessian"):
            return (
                f"{self.cost._name} has no `hessian(point, direction)`; add it, or use a first-order solver."
            )
        return None

    def riemannian_hessian(self, point: Any, tangent: Any) -> Any:
        """Return the Riemannian Hessian of the cost along a tangent vector: a tangent vector.

        Raises
        ------
        MissingCapabilityError
            If the manifold or the cost has no second derivatives.
        InvalidInputError
            If the cost does not return an ambient matrix of the shape of the points.
        """
        reason = self.lacks_hessian()
        if reason is not None:
            raise MissingCapabilityError(reason)
        manifold: Any = self.manifold
        cost: Any = self.cost
        bent = ambient_at(
            manifold, point, cost.hessian(point, manifold.embedding(point, tangent)), cost, "hessian"
        )
        return manifold.euclidean_to_riemannian_hessian(point, self.gradient(point), bent, tangent)


def unchanged(cost: Cost, given: Any, call: Callable[[], Any], what: str) -> Any:
    """Evaluate a cost at a point or a tangent vector, and refuse a cost that writes into it."""
    parts = arrays_of(given)
    before = [ns.copied(part) for part in parts]
    try:
        found = call()
    except (AttributeError, TypeError) as error:
        library = ns.namespace(parts[0]).__name__.removeprefix("array_api_compat.")
        if library == "numpy":
            raise
        raise InvalidInputError(
            f"the {what} of {cost._name} failed at an array of {library} ({error}); if it is written for "
            f"numpy, write it with functions of {library}, or begin with an array of numpy."
        ) from error
    if not all(map(ns.same, parts, before)):
        for part, was in zip(parts, before, strict=True):
            part[...] = was
        raise InvalidInputError(
            f"{type(cost).__name__} changed the point that it was given, or the tangent vector; let its {what} work "
            "on a copy."
        )
    return found


def ambient_at(
    manifold: Manifold, point: Any, ambient: Any, cost: Cost, what: str = "gradient", shape: Any = None
) -> Ambient:
    """Return the gradient or Hessian product of a cost at a point, and refuse one that does not fit the point.

    Arrays are copied, because the cost may overwrite its own. At complex points a complex array is the derivative by
    the real part plus i times that by the imaginary part. Sparse arrays and operators are used as they are, and not
    checked again if one of this `shape` fitted before.
    """
    copied = isinstance(ambient, np.ndarray | Parts | list | tuple | BlockDiagonal) or ns.is_array(ambient)
    if shape is not None and not copied and hasattr(ambient, "shape"):
        return ambient
    if isinstance(ambient, Parts | list | tuple | BlockDiagonal) and isinstance(point, Parts):
        shapes = manifold.embed_point(point).shapes  # type: ignore[attr-defined]
        blocks = diagonal_blocks(ambient, shapes)
        return BlockDiagonal(shapes, {i: _own(block, cost, what, point) for i, block in blocks.items()})
    if isinstance(ambient, Parts | list | tuple) and isinstance(point, TensorPoint):
        ambient = Partials(point, [_own(part, cost, what, point) for part in ambient])
    ambient = _own(ambient, cost, what, point)
    found, wanted = getattr(ambient, "shape", None), tuple(manifold.embed_point(point).shape)
    if found is None or tuple(found) != wanted:
        described = f"{shown(ambient)}, no array or operator" if found is None else f"of shape {tuple(found)}"
        raise InvalidInputError(
            f"the {what} of {cost._name} is {described}, and points of {manifold} have shape {wanted}; return the "
            "derivative by each entry of the point."
        )
    return ambient


def _own(ambient: Any, cost: Cost, what: str, point: Any) -> Any:
    """Return a copy of an array in the point's field, or the object itself if it is not an array."""
    kind = ns.numbers_of(ambient).kind if getattr(ambient, "dtype", None) is not None else "f"
    if kind not in "fiuc" or (kind == "c" and not any(map(ns.is_complex, arrays_of(point)))):
        raise InvalidInputError(
            f"the {what} of {cost._name} is of type {ambient.dtype}; return an array of real numbers, or on a "
            "manifold with field='complex' the derivative by the real part plus i times that by the imaginary part."
        )
    if isinstance(ambient, BlockDiagonal):
        blocks = {i: _own(block, cost, what, point) for i, block in ambient.blocks.items()}
        return BlockDiagonal(ambient.shapes, blocks)
    if isinstance(ambient, np.ndarray):
        return np.array(ambient, dtype=None if kind in "fc" else float)
    return ns.copied(ambient) if ns.is_array(ambient) else ambient
