"""Vector transports, which carry a tangent vector to the tangent space at another point."""

from abc import ABC, abstractmethod
from typing import Any

from rmopt.core.arguments import named
from rmopt.core.points import coarseness_of
from rmopt.core.values import Value


class Transport(Value, ABC):
    """A linear map between the tangent spaces at two points, exchangeable as retractions are.

    Transports are values: two of the same class and parameters are equal.

    Examples
    --------
    >>> import numpy as np
    >>> from rmopt import Problem, autograd_cost
    >>> from rmopt.core.transport import Transport
    >>> from rmopt.manifolds import Sphere
    >>> from rmopt.solvers import ConjugateGradient
    >>> class Forgetful(Transport):
    ...     def __call__(self, manifold, start, end, vector):
    ...         return manifold.zero_vector(end)
    >>> problem = Problem(Sphere(5), autograd_cost(lambda x: (x * x * np.arange(5)).sum()))
    >>> ConjugateGradient(transport=Forgetful()).run(problem, random_state=0).converged
    True
    """

    @abstractmethod
    def __call__(self, manifold: Any, start: Any, end: Any, vector: Any) -> Any:
        """Return a tangent vector at `start` as one at `end`."""


class ByManifold(Transport):
    """The manifold's own `transport`: parallel if that is known in closed form."""

    def __call__(self, manifold: Any, start: Any, end: Any, vector: Any) -> Any:
        return manifold.transport(start, end, vector)


class ByProjection(Transport):
    """The orthogonal projection of the embedded vector onto the tangent space at the end.

    It is the cheapest, and no first-order solver needed more iterations with it in our tests.
    """

    def __call__(self, manifold: Any, start: Any, end: Any, vector: Any) -> Any:
        return manifold.projection(end, manifold.embedding(start, vector))


class Isometric(ByProjection):
    """The projection, scaled so that each vector keeps its length.

    It is not linear: the transport of a sum is not the sum of the transports.

    References
    ----------
    Sato and Iwai, A new, globally convergent Riemannian conjugate gradient method, Optimization 64 (2015),
    https://doi.org/10.1080/02331934.2013.836650.
    """

    def __call__(self, manifold: Any, start: Any, end: Any, vector: Any) -> Any:
        moved = super().__call__(manifold, start, end, vector)
        length = manifold.norm(end, moved)
        return moved * (manifold.norm(start, vector) / length) if length > 0.0 else moved


class OfRetraction(Transport):
    """The derivative of the manifold's default retraction, by central differences.

    The tangent vector that the retraction takes from the start to the end is found iteratively, from the logarithm if
    that is known. Between points too far apart for that, vectors are projected.

    See Also
    --------
    ByProjection : cheaper, and as good for solvers.
    """

    def __call__(self, manifold: Any, start: Any, end: Any, vector: Any) -> Any:
        length = manifold.norm(start, vector)
        if not length > 0.0:
            return manifold.zero_vector(end)
        along = _towards(manifold, start, end)
        if along is None:
            return ByProjection()(manifold, start, end, vector)
        # The best step between truncation and rounding goes with the third root of a rounding.
        h = 1e-5 * coarseness_of(start) ** (1.0 / 3.0) / length
        ahead, behind = (
            manifold.embed_point(manifold.retraction(start, along + vector * sign)) for sign in (h, -h)
        )
        return manifold.projection(end, (ahead - behind) * (0.5 / h))


def _towards(manifold: Any, start: Any, end: Any) -> Any:
    """Return the tangent vector that the default retraction takes to the end, or None: the points are far apart."""
    goal = manifold.embed_point(end)
    # The logarithm itself, if the retraction is the exponential.
    along = manifold.log(start, end) if manifold.knows("log") else manifold.zero_vector(start)
    for _ in range(100):
        missing = goal - manifold.embed_point(manifold.retraction(start, along))
        step = manifold.projection(start, missing)
        along = along + step
        length = manifold.norm(start, along)
        # As exact as the difference is.
        if manifold.norm(start, step) <= 1e-8 * coarseness_of(start) ** 0.5 * length:
            return along
        if not length < 100.0 * manifold.typical_dist:
            break
    return None


TRANSPORTS: dict[str, Transport] = {
    "manifold": ByManifold(), "projection": ByProjection(), "isometric": Isometric(), "retraction": OfRetraction(),
}  # fmt: skip


def as_transport(name: str, transport: Transport | str | None) -> Transport | None:
    """Return a transport, also by its name in `TRANSPORTS`, or None for None, with `name` in errors."""
    return None if transport is None else named(name, transport, TRANSPORTS, Transport)


__all__ = [
    "TRANSPORTS", "ByManifold", "ByProjection", "Isometric", "OfRetraction", "Transport",
]  # fmt: skip
