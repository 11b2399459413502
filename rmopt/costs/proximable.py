"""Nonsmooth terms: functions of arrays with a proximal map in closed form."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from math import inf, prod
from typing import Annotated, Any, ClassVar

import numpy as np

from rmopt import namespaces as ns
from rmopt.core.ambient import Ambient, Array
from rmopt.core.arguments import CheckedValue, bounded, integer, number, optional, sequence, shown
from rmopt.core.cost import Cost, total
from rmopt.core.points import normal_like, size_of
from rmopt.costs.residuals import ResidualSum, residuals_at
from rmopt.errors import InvalidInputError

__all__ = ["L1", "Box", "Envelope", "GroupL2", "NonNegative", "Nuclear", "Proximable"]

# The relative rounding error allowed in the least value.
LEAST = 1e-11
# Smaller lengths count as zero.
TINY = 1e-300


class Proximable(ABC):
    """A convex function h of an array, which may have kinks, by its proximal map.

    The map takes z to the minimiser p of h(p) + ‖p − z‖²/2t. `rmopt.checks.check_proximable` tests your own class.

    Attributes
    ----------
    is_finite : bool
        Whether h is finite everywhere, unlike a constraint such as `Box`.

    References
    ----------
    Parikh and Boyd, Proximal algorithms, Foundations and Trends in Optimization 1 (2014),
    https://doi.org/10.1561/2400000003.

    Examples
    --------
    >>> import numpy as np
    >>> from rmopt.costs import L1
    >>> h = L1(2.0)
    >>> h.value(np.array([3.0, -0.5])), h.prox(np.array([3.0, -0.5]), t=0.5)
    (7.0, array([2., 0.]))
    """

    is_finite: ClassVar[bool] = True

    @abstractmethod
    def value(self, z: Array) -> float:
        """Return h(z)."""

    @abstractmethod
    def prox(self, z: Array, t: float) -> Array:
        """Return the minimiser p of h(p) + ‖p − z‖²/2t."""

    @abstractmethod
    def prox_slope(self, z: Array, t: float) -> Callable[[Array], Array]:
        """Return the derivative of `prox` by z, at a kink one of the adjacent ones, as a linear map of arrays.

        It is symmetric, and its eigenvalues are from 0 to 1.
        """

    def smoothed(self, eps: float, of: ResidualSum | None = None) -> "Envelope":
        """Return a smooth cost slightly below h: its Moreau envelope min h(p) + ‖p − z‖²/2ε.

        Parameters
        ----------
        eps : float
            ε, a positive number. The cost equals h where h is 0, and its curvature is up to 1/ε.
        of : ResidualSum, optional
            Residuals c: the cost is the envelope at c(x), or by default at x.
        """
        return Envelope(self, of, 1.0 / number("eps", eps, above=0))


class Envelope(Cost):
    """The least h(p) + ρ/2 ‖c(x) + λ/ρ − p‖² over all p: smooth, with a force ρ(c + λ/ρ − p) on c.

    Without λ it is h, smoothed. With λ it is the term of the augmented Lagrangian. The force is the next λ.

    Parameters
    ----------
    h : Proximable
    of : Cost or None
        c: residuals, another cost with one number, or the point.
    penalty : float
        ρ.
    multipliers : array, optional
        λ, by default 0.
    """

    def __init__(
        self, h: Proximable, of: Cost | None, penalty: float, multipliers: Array | None = None
    ) -> None:
        if not (of is None or isinstance(of, Cost)):
            raise InvalidInputError(
                f"of = {shown(of)} must be residuals: rmopt.autograd_residuals(function), or a ResidualSum."
            )
        self.h, self.of, self.penalty, self.multipliers = h, of, penalty, multipliers

    def refuses(self, point_type: type) -> str | None:
        if self.of is not None:
            return self.of.refuses(point_type)
        if issubclass(point_type, np.ndarray):
            return None
        return (
            f"{type(self.h).__name__} is a function of arrays, and a point is of type {point_type.__name__}; choose "
            "an array of the point by `of`, such as rmopt.autograd_residuals(function)."
        )

    def parts(self, point: Any) -> tuple[Array, Array, Array]:
        """Return c, p and the force at a point."""
        inner = inner_at(self.of, point)
        if self.multipliers is None:
            shifted = inner
        elif self.multipliers.shape == inner.shape:
            shifted = inner + self.multipliers / self.penalty
        else:
            raise InvalidInputError(
                f"there are {inner.shape[0]} residuals at a point, and {self.multipliers.shape[0]} at another; "
                "return as many residuals everywhere."
            )
        nearest = self.h.prox(shifted, 1.0 / self.penalty)
        return inner, nearest, self.penalty * (shifted - nearest)

    def value(self, point: Any) -> float:
        return self.paid(*self.parts(point))

    def value_and_gradient(self, point: Any) -> tuple[float, Ambient]:
        """Return cost and gradient by one proximal map."""
        parts = self.parts(point)
        return self.paid(*parts), total([self.pull(point, parts[2])])

    def paid(self, inner: Array, nearest: Array, force: Array) -> float:
        """Return the value, from `parts`."""
        value = self.h.value(nearest) if self.h.is_finite else 0.0
        return value + 0.5 * float(ns.real_dot(force, force)) / self.penalty

    def pull(self, point: Any, force: Array) -> tuple[float, Any]:
        """Return an ambient gradient at a point which, times this weight, is that of ⟨force, c⟩."""
        if self.of is None:
            return 1.0, force
        if isinstance(self.of, ResidualSum):
            return 1.0, self.of.linearised(point)[1](force)
        return float(force[0]), self.of.gradient(point)


def inner_at(of: Cost | None, point: Any) -> Array:
    """Return c at a point, which is the point for None, and refuse values that are not real numbers."""
    if isinstance(of, ResidualSum):
        return residuals_at(of, point)
    return point if of is None else np.array([of._real(of.value(point))])


@dataclass(frozen=True)
class GroupL2(CheckedValue, Proximable):
    """The sum of the lengths of groups of numbers, times a weight, which sets entire groups to zero.

    Parameters
    ----------
    weight : float
    size : int, optional
        The size of consecutive groups of numbers. Defaults to the rows of a matrix.

    Examples
    --------
    >>> import numpy as np
    >>> from rmopt.costs import GroupL2
    >>> GroupL2(1.0).prox(np.array([[3.0, 4.0], [0.3, 0.4]]), t=1.0)
    array([[2.4, 3.2],
           [0. , 0. ]])
    """

    weight: Annotated[float, bounded(number, above=0)]
    size: Annotated[int | None, optional(integer, 1)] = None

    def _lengths(self, z: Array) -> tuple[Array, Array]:
        """Return the groups as rows, and their lengths."""
        size = self.size or (1, *z.shape)[-1]
        if not size or prod(z.shape) % size:
            raise InvalidInputError(
                f"{prod(z.shape)} numbers are no groups of {size}; choose a `size` that divides them."
            )
        xp = ns.namespace(z)
        groups = z if z.ndim == 2 and z.shape[1] == size else xp.reshape(z, (-1, size))
        return groups, xp.sqrt(ns.real_dots(groups, groups, 1))

    def value(self, z: Array) -> float:
        lengths = self._lengths(z)[1]
        return self.weight * float(ns.namespace(z).sum(lengths))

    def prox(self, z: Array, t: float) -> Array:
        groups, lengths = self._lengths(z)
        moved = groups * (1.0 - t * self.weight / ns.at_least(lengths, t * self.weight or TINY))
        return moved if groups is z else ns.namespace(z).reshape(moved, z.shape)

    def prox_slope(self, z: Array, t: float) -> Callable[[Array], Array]:
        xp, (groups, lengths) = ns.namespace(z), self._lengths(z)
        lengths = ns.at_least(lengths, t * self.weight or TINY)
        share, unit = t * self.weight / lengths, groups / lengths
        across, along = 1.0 - share, xp.astype(share < 1.0, lengths.dtype) * share * unit

        def slope(direction: Array) -> Array:
            several = direction if groups is z else xp.reshape(direction, groups.shape)
            bent = across * several + along * ns.real_dots(unit, several, 1)
            return bent if groups is z else xp.reshape(bent, z.shape)

        return slope


@dataclass(frozen=True)
class L1(GroupL2):
    """The sum of the absolute values of all numbers, times a weight, which sets single numbers to zero.

    Parameters
    ----------
    weight : float

    Examples
    --------
    >>> import numpy as np
    >>> from rmopt.costs import L1
    >>> L1(1.0).prox(np.array([3.0, -0.5, 2j]), t=1.0) + 0.0
    array([2.+0.j, 0.+0.j, 0.+1.j])
    """

    size: ClassVar[int] = 1  # type: ignore[misc]

    def value(self, z: Array) -> float:
        xp = ns.namespace(z)
        return self.weight * float(xp.sum(xp.abs(z)))

    def prox(self, z: Array, t: float) -> Array:
        most = t * self.weight
        return super().prox(z, t) if ns.is_complex(z) else z - ns.namespace(z).clip(z, -most, most)

    def prox_slope(self, z: Array, t: float) -> Callable[[Array], Array]:
        if ns.is_complex(z):
            return super().prox_slope(z, t)
        xp = ns.namespace(z)
        on = xp.astype(xp.abs(z) > t * self.weight, z.dtype)
        return lambda direction: on * direction


def _sizes(name: str, value: Any) -> tuple[int, ...]:
    return tuple(integer(f"a size in {name}", n, 1) for n in sequence(name, value))


def _bound(name: str, value: Any) -> float:
    return value if isinstance(value, float) and abs(value) == inf else number(name, value)


@dataclass(frozen=True)
class Nuclear(CheckedValue, Proximable):
    """The sum of the singular values of matrices, times a weight, which lowers the rank.

    Parameters
    ----------
    weight : float
    shape : (int, int), optional
        The shape of the matrix whose rows a vector holds. Defaults to the last two axes.

    Examples
    --------
    >>> import numpy as np
    >>> from rmopt.costs import Nuclear
    >>> Nuclear(1.0).prox(np.diag([3.0, 0.5]), t=1.0)
    array([[2., 0.],
           [0., 0.]])
    """

    weight: Annotated[float, bounded(number, above=0)]
    shape: Annotated[tuple[int, ...] | None, optional(_sizes)] = None

    def _matrix(self, z: Array) -> Array:
        shape = self.shape or tuple(z.shape)
        if len(shape) < 2 or prod(shape) != prod(z.shape):
            raise InvalidInputError(
                f"{self} takes matrices, and numbers of shape {tuple(z.shape)} are not one; choose its `shape`."
            )
        return ns.namespace(z).reshape(z, shape)

    def _svd(self, z: Array) -> Any:
        return ns.namespace(z).linalg.svd(self._matrix(z), full_matrices=False)

    def value(self, z: Array) -> float:
        return self.weight * float(ns.namespace(z).sum(self._svd(z)[1]))

    def prox(self, z: Array, t: float) -> Array:
        left, sizes, right = self._svd(z)
        shrunk = ns.at_least(sizes - t * self.weight, 0.0)
        return ns.namespace(z).reshape((left * shrunk[..., None, :]) @ right, z.shape)

    def prox_slope(self, z: Array, t: float) -> Callable[[Array], Array]:
        xp, (left, sizes, right) = ns.namespace(z), self._svd(z)
        shrunk = ns.at_least(sizes - t * self.weight, 0.0)
        on = xp.astype(shrunk > 0.0, sizes.dtype)
        rows, columns = sizes[..., :, None], sizes[..., None, :]
        # Divided differences of s ↦ max(s − tλ, 0), of its odd extension, and its quotient by s.
        apart, both, share = rows - columns, rows + columns, (shrunk / ns.at_least(sizes, TINY))[..., None, :]
        near = xp.abs(apart) <= 1e-12 * both
        differ = (shrunk[..., :, None] - shrunk[..., None, :]) / xp.where(near, 1.0 + 0.0 * apart, apart)
        differ = xp.where(near, 0.5 * (on[..., :, None] + on[..., None, :]), differ)
        add = (shrunk[..., :, None] + shrunk[..., None, :]) / ns.at_least(both, TINY)

        def slope(direction: Array) -> Array:
            matrix = self._matrix(direction)
            core = ns.adjoint(left) @ matrix @ ns.adjoint(right)
            even, odd = 0.5 * (core + ns.adjoint(core)), 0.5 * (core - ns.adjoint(core))
            bent = left @ (differ * even + add * odd) @ right
            # The parts outside the columns of either side, which for the smaller side are zero.
            beside = (matrix @ ns.adjoint(right) - left @ core) * share @ right
            below = (left * share) @ (ns.adjoint(left) @ matrix - core @ right)
            return xp.reshape(bent + beside + below, z.shape)

        return slope


@dataclass(frozen=True)
class Box(CheckedValue, Proximable):
    """The constraint that all numbers lie between two bounds: 0 inside, and infinity elsewhere.

    Parameters
    ----------
    lower, upper : float
        They may be infinite.

    Examples
    --------
    >>> import numpy as np
    >>> from rmopt.costs import Box
    >>> Box(0.0, 1.0).prox(np.array([-0.5, 0.5, 1.5]), t=1.0)
    array([0. , 0.5, 1. ])
    """

    is_finite = False
    lower: Annotated[float, _bound] = -inf
    upper: Annotated[float, _bound] = inf

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.lower > self.upper or self.lower == inf or self.upper == -inf:
            raise InvalidInputError(
                f"no number is from lower = {self.lower} to upper = {self.upper}; exchange them."
            )

    def _real(self, z: Array) -> Array:
        if ns.is_complex(z):
            raise InvalidInputError(
                f"{type(self).__name__} bounds real numbers, and these are complex; bound their parts by `of`."
            )
        return z

    def value(self, z: Array) -> float:
        xp = ns.namespace(self._real(z))
        return 0.0 if bool(xp.all((z >= self.lower) & (z <= self.upper))) else inf

    def prox(self, z: Array, t: float) -> Array:
        return ns.namespace(self._real(z)).clip(z, self.lower, self.upper)

    def prox_slope(self, z: Array, t: float) -> Callable[[Array], Array]:
        inside = (z > self.lower) & (z < self.upper)
        inside = ns.namespace(self._real(z)).astype(inside, z.dtype)
        return lambda direction: inside * direction


@dataclass(frozen=True)
class NonNegative(Box):
    """The constraint that no number is negative.

    Examples
    --------
    >>> import numpy as np
    >>> from rmopt.costs import NonNegative
    >>> NonNegative().prox(np.array([-0.5, 0.5]), t=1.0)
    array([0. , 0.5])
    """

    lower: ClassVar[float] = 0.0  # type: ignore[misc]
    upper: ClassVar[float] = inf  # type: ignore[misc]


def hold_to_shape(h: Proximable, z: Array) -> None:
    """Refuse a term whose value is not a number, or whose maps do not return arrays like their arguments."""
    value, slope, shape = h.value(z), h.prox_slope(z, 1.0), tuple(z.shape)
    maps = {"prox": h.prox(z, 1.0), "prox_slope": slope(z) if callable(slope) else None}
    wrong = {name: one for name, one in maps.items() if tuple(getattr(one, "shape", ())) != shape}
    if not isinstance(value, float | int | np.number):
        wrong = {"value": value}
    for name, one in wrong.items():
        wanted = "a number" if name == "value" else f"an array of shape {shape}"
        raise InvalidInputError(
            f"`{name}` of {type(h).__name__} returns {shown(one)}; let it return {wanted}, and try "
            "rmopt.checks.check_proximable."
        )


def excess(h: Proximable, z: Array, t: float, rng: np.random.Generator) -> float:
    """Return the relative amount by which h(p) + ‖p − z‖²/2t is lower at other points than at prox(z, t)."""
    xp, nearest = ns.namespace(z), h.prox(z, t)

    def paid(p: Array) -> float:
        return h.value(p) + float(ns.real_dot(p - z, p - z)) / (2.0 * t)

    drawn = normal_like(z, rng)
    drawn = drawn * (size_of(z) / size_of(drawn))
    # Also along directions that change no zeros.
    within = xp.where(nearest == 0.0, 0.0 * drawn, drawn)
    least, lengths = paid(nearest), (s * sign for s in (1e-1, 1e-2, 1e-3, 1e-4) for sign in (1.0, -1.0))
    others = [paid(nearest + s * way) for s in lengths for way in (drawn, within, z - nearest, nearest)]
    return (least - min(others)) / max(abs(least), TINY)
