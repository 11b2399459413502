"""Batch solvers that move the factor Y of W = YYᵀ: what they share, and scipy's L-BFGS."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np

from rmopt.core.ambient import Array
from rmopt.core.arguments import Check, bounded, check_parameters, integer, number, optional
from rmopt.core.errors import DivergedError, InvalidInputError, MissingCapabilityError
from rmopt.core.problem import Problem
from rmopt.core.streams import Stream, generator, seed_of
from rmopt.costs.convex import ConvexCost
from rmopt.engines.rank_incremental import point_of, shrunk
from rmopt.engines.threads import one_blas_thread
from rmopt.manifolds.psd_fixed_rank import PSDMatrices
from rmopt.solvers.base import Result, finite_numbers


def check_finite(iteration: int, *numbers: Any) -> None:
    """Refuse to go on from numbers that are not finite."""
    if not all(np.isfinite(one).all() for one in numbers):
        raise DivergedError(
            f"the cost or a derivative of it is not finite after {iteration} iterations; check the data and their "
            "scale, or start elsewhere.",
            iteration,
        )


@dataclass(frozen=True)
class FactorSolver(ABC):
    """A solver of min f(YYᵀ) over p × d factors Y: the form of Burer and Monteiro (2003).

    The end may have a smaller rank than the manifold of the problem, for factors can lose rank.

    Parameters
    ----------
    max_iterations : int
    tol : float
        Stop when the factor's gradient is at most this long, relative to the first one.
    gradient_norm : float, optional
        Stop when it is at most this long; in place of `tol`.

    Raises
    ------
    InvalidInputError
        For a parameter out of range.
    """

    checks: ClassVar[dict[str, Check]] = {
        "max_iterations": integer,
        "tol": bounded(number, least=0),
        "gradient_norm": optional(number, least=0),
    }

    max_iterations: int = 1000
    tol: float = 1e-6
    gradient_norm: float | None = None

    def __post_init__(self) -> None:
        check_parameters(self, self.checks)

    @abstractmethod
    def minimise(self, cost: ConvexCost, Y: Array) -> tuple[Array, int, str]:
        """Return a better factor, the number of iterations and why they ended."""

    def with_gradient_norm(self, norm: float) -> Self:
        """Return the solver that stops at a gradient of this length."""
        return replace(self, gradient_norm=norm)

    @one_blas_thread()
    def run(
        self,
        problem: Problem,
        initial_point: Any = None,
        *,
        random_state: int | np.random.Generator | None = None,
    ) -> Result:
        """Minimise the cost; `steps` and `updates` count iterations, and the history is empty.

        Raises
        ------
        MissingCapabilityError
            When the problem is not of a `ConvexCost` on positive semidefinite matrices.
        InvalidInputError
            When the initial point is not on the manifold, or for a wrong `random_state`.
        DivergedError
            When the cost or one of its derivatives is not finite.
        """
        cost, manifold, seed = problem.cost, problem.manifold, seed_of(random_state)
        if not isinstance(cost, ConvexCost) or not isinstance(manifold, PSDMatrices):
            raise MissingCapabilityError(
                f"{type(self).__name__} moves factors of positive semidefinite matrices: it needs a ConvexCost on "
                f"PSDFixedRank or PolarPSD, not {type(cost).__name__} on {manifold}."
            )
        if initial_point is None:
            initial_point = manifold.random_point(generator(seed, Stream.START))
        reason = manifold.check_point(initial_point)
        if reason is not None:
            raise InvalidInputError(f"the initial point is not on {manifold}: {reason}.")
        begun = time.perf_counter()
        with finite_numbers(0):
            Y, iterations, reason = self.minimise(cost, initial_point.factor())
            check_finite(iterations, Y, cost.at(Y).value)
        return Result(
            point=point_of(shrunk(Y)),
            steps=iterations,
            updates=iterations,
            seconds=time.perf_counter() - begun,
            stopped_by=reason,
            seed=seed,
            history=[],
        )

    def _target(self, gradient: Array) -> float:
        """Return the length at which the gradient is short enough."""
        check_finite(0, gradient)
        length = float(np.linalg.norm(gradient))
        return self.tol * length if self.gradient_norm is None else self.gradient_norm


@dataclass(frozen=True)
class LBFGS(FactorSolver):
    """The L-BFGS-B of scipy on the factor.

    Parameters
    ----------
    max_iterations : int
        As in `FactorSolver`.
    tol, gradient_norm : float
        As in `FactorSolver`.
    memory : int
        Pairs of steps and gradients that are kept.
    """

    checks = FactorSolver.checks | {"memory": bounded(integer, 1)}

    memory: int = 20

    def minimise(self, cost: ConvexCost, Y: Array) -> tuple[Array, int, str]:
        from scipy.optimize import minimize

        shape = Y.shape
        target, length = self._target(cost.at(Y).factor_gradient()), np.inf

        def value_and_gradient(y: Array) -> tuple[float, Array]:
            nonlocal length
            local = cost.at(y.reshape(shape))
            gradient = local.factor_gradient().ravel()
            length = float(np.linalg.norm(gradient))
            return local.value, gradient

        def stop_when_short(intermediate_result: Any) -> None:
            # scipy itself would look at the largest entry.
            if length <= target:
                raise StopIteration

        options = {
            "maxcor": self.memory, "maxiter": self.max_iterations, "maxfun": 10 * self.max_iterations + 10,
            "ftol": 1e-15, "gtol": target / np.sqrt(Y.size) if Y.size else 0.0,
        }  # fmt: skip
        found = minimize(
            value_and_gradient,
            Y.ravel(),
            jac=True,
            method="L-BFGS-B",
            options=options,
            callback=stop_when_short,
        )
        check_finite(int(found.nit), found.fun, found.jac)
        reason = f"a gradient of length {length:.1e}" if length <= target else str(found.message)
        return found.x.reshape(shape), int(found.nit), reason
