"""Strategies for hypothesis: points of a manifold, also ill-conditioned ones, and tangent vectors."""

from typing import Any

import numpy as np

from rmopt.checks.catalogue import with_spectrum
from rmopt.core.low_rank import LowRankPoint
from rmopt.core.manifold import Manifold
from rmopt.core.product import Parts
from rmopt.core.psd import PSDPoint
from rmopt.errors import MissingCapabilityError
from rmopt.manifolds import PositiveDefinite, Product

try:
    from hypothesis import strategies as st
except ImportError as error:
    raise MissingCapabilityError(
        f"rmopt.testing.strategies needs hypothesis, which cannot be imported ({error}); install it: "
        "pip install hypothesis"
    ) from error

__all__ = ["ill_conditioned_points", "points", "tangents"]

# What shrinks and is shown is the number from which all others are drawn.
_SEEDS = st.integers(0, 2**32 - 1)


def points(manifold: Manifold) -> st.SearchStrategy[Any]:
    """Return random points of a manifold.

    Parameters
    ----------
    manifold : Manifold

    References
    ----------
    MacIver, Hatfield-Dodds et al., Hypothesis: a new approach to property-based testing, Journal of Open Source
    Software 4 (2019), https://doi.org/10.21105/joss.01891.

    Examples
    --------
    >>> from hypothesis import given, settings
    >>> from rmopt.manifolds import Sphere
    >>> from rmopt.testing.strategies import points
    >>> @settings(max_examples=5, database=None, derandomize=True, deadline=None)
    ... @given(points(Sphere(3)))
    ... def test_lengths(x):
    ...     assert abs((x**2).sum() - 1.0) < 1e-12
    >>> print(test_lengths())
    None
    """
    return _SEEDS.map(lambda seed: manifold.random_point(np.random.default_rng(seed)))


def ill_conditioned_points(manifold: Manifold, worst: float = 1e8) -> st.SearchStrategy[Any]:
    """Return points whose singular values or eigenvalues spread over some orders of magnitude, or are tied.

    On products they do so in each part; where points have none, they are random points.

    Parameters
    ----------
    manifold : Manifold
    worst : float
        The largest condition number.
    """
    spread = st.floats(0.0, float(np.log10(worst)))
    return st.builds(lambda seed, digits: _ill(manifold, np.random.default_rng(seed), digits), _SEEDS, spread)


def tangents(manifold: Manifold, harsh: bool = False) -> st.SearchStrategy[tuple[Any, Any]]:
    """Return pairs of a point and a tangent vector there, of length 1e-3 to 1e3.

    Parameters
    ----------
    manifold : Manifold
    harsh : bool
        At ill-conditioned points.
    """

    def at(point: Any) -> st.SearchStrategy[tuple[Any, Any]]:
        def vector(seed: int, digits: float) -> tuple[Any, Any]:
            # A stream of its own: a point and a vector from the same numbers may be parallel.
            rng = np.random.default_rng([seed, 1])
            return point, manifold.random_tangent_vector(point, rng) * 10.0**digits

        return st.builds(vector, _SEEDS, st.floats(-3.0, 3.0))

    return (ill_conditioned_points(manifold) if harsh else points(manifold)).flatmap(at)


def _ill(manifold: Manifold, rng: np.random.Generator, digits: float) -> Any:
    if isinstance(manifold, Product):
        return Parts([_ill(factor, rng, digits) for factor in manifold.factors])
    point = manifold.random_point(rng)
    if not isinstance(point, LowRankPoint | PSDPoint) and not isinstance(manifold, PositiveDefinite):
        return point
    # No digits: all values are tied.
    k = len(point) if isinstance(point, np.ndarray) else point.rank
    return with_spectrum(manifold, np.geomspace(1.0, 10.0**-digits, k), rng)
