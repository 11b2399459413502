"""The laws of `rmopt.checks` for the test suite of your own package: for pytest, and for hypothesis.

`parametrize_with_laws` makes tests of manifolds, retractions, problems, solvers, engines, samplers and step sizes;
`rmopt.testing.strategies` draws points, tangent vectors and problems.
"""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from rmopt.checks import (
    Check,
    check_cost,
    check_engine,
    check_hessian,
    check_instance,
    check_manifold,
    check_retraction,
    check_sampler,
    check_solver,
    check_step_size,
)
from rmopt.checks.catalogue import Instance
from rmopt.core.arguments import sequence, shown
from rmopt.core.manifold import Manifold
from rmopt.core.problem import Problem
from rmopt.core.retraction import Retraction
from rmopt.engines.base import Engine
from rmopt.errors import InvalidInputError
from rmopt.solvers.run import Solver
from rmopt.solvers.stochastic.samplers import Sampler
from rmopt.solvers.stochastic.step_sizes import StepSize

__all__ = ["checks_of", "parametrize_with_laws"]


def checks_of(part: Any, seed: int = 0, dtype: Any = None) -> list[Check]:
    """Return the checks of all laws that a part must obey.

    Parameters
    ----------
    part : object
        A manifold, with its default retraction and those that it names; a problem, for the laws of its cost; a
        sampler or a rule of step sizes; an `Instance`, with all that belongs to it; or a pair: a retraction and a
        manifold, a solver and a problem, an engine and a problem.
    seed : int
        For points and directions.
    dtype : dtype, optional
        np.float32 for the laws in single precision, of manifolds, retractions, problems and instances.

    Returns
    -------
    list of Check

    Raises
    ------
    InvalidInputError
        For anything else, and for solvers, engines, samplers and step sizes in single precision.

    References
    ----------
    Claessen and Hughes, QuickCheck: a lightweight tool for random testing of Haskell programs, ICFP (2000),
    https://doi.org/10.1145/351240.351266.
    """
    return _laws_of(part, dtype)(seed)


def _laws_of(part: Any, dtype: Any) -> Callable[[int], list[Check]]:
    """Return what holds a part against its laws, by a seed."""
    match part:
        case Manifold():
            return partial(_of_manifold, part, dtype)
        case Problem():
            return partial(_of_problem, part, dtype)
        case Instance():
            return lambda seed: list(check_instance(part, seed, dtype))
        case (Retraction() as retraction, Manifold() as manifold):
            return lambda seed: check_retraction(retraction, manifold, seed, dtype=dtype)
        case Sampler() if dtype is None:
            return lambda seed: check_sampler(part, rng=seed)
        case StepSize() if dtype is None:
            return lambda seed: check_step_size(part)
        case (Solver() as solver, Problem() as problem) if dtype is None:
            return lambda seed: check_solver(solver, problem, seed)
        case (Engine() as engine, Problem() as problem) if dtype is None:
            return lambda seed: check_engine(problem, rng=seed, engine=engine)
    precision = "" if dtype is None else " in another precision than double"
    raise InvalidInputError(
        f"there are no laws for {shown(part)}{precision}; give a manifold, a problem, an Instance or (retraction, "
        "manifold); in double precision also a sampler, a rule of step sizes, (solver, problem) or (engine, problem)."
    )


def _of_manifold(manifold: Manifold, dtype: Any, seed: int) -> list[Check]:
    retractions = {repr(one): one for one in (manifold.default_retraction, *manifold.retractions.values())}
    curves = (check_retraction(one, manifold, seed, dtype=dtype) for one in retractions.values())
    return sum(curves, check_manifold(manifold, seed, dtype=dtype))


def _of_problem(problem: Problem, dtype: Any, seed: int) -> list[Check]:
    second = check_hessian(problem, seed, dtype=dtype) if problem.lacks_hessian() is None else []
    return check_cost(problem, seed, dtype=dtype) + second


def _test(part: Any, seed: int, dtype: Any) -> tuple[str, Callable[[], None]]:
    """Return the name of a test, and the test: it raises an AssertionError that lists each law that is broken."""
    laws, parts = _laws_of(part, dtype), part if isinstance(part, tuple) else (part,)
    name = f"{' on '.join(map(_named, parts))} seed {seed}"

    def check() -> None:
        checks = laws(seed)
        broken = [str(check) for check in checks if not check]
        assert checks, f"no law applies to {name}"
        assert not broken, f"{len(broken)} of {len(checks)} laws are broken:\n" + "\n".join(broken)

    return name, check


def parametrize_with_laws(parts: Iterable[Any], seeds: Iterable[int] = (0, 1, 2), dtype: Any = None) -> Any:
    """Return a pytest decorator that calls a test with each of some parts and seeds, as ``check``.

    Parameters
    ----------
    parts : iterable
        As in `checks_of`.
    seeds : iterable of int
        One seed is enough for a part without random numbers; laws at several points find more.
    dtype : dtype, optional
        As in `checks_of`.

    Returns
    -------
    pytest.MarkDecorator

    Raises
    ------
    InvalidInputError
        For a part that has no laws, when the tests are collected.

    Examples
    --------
    >>> from rmopt.manifolds import Grassmann
    >>> from rmopt.testing import parametrize_with_laws
    >>> @parametrize_with_laws([Grassmann(7, 2)])
    ... def test_laws(check):
    ...     check()
    >>> [mark.name for mark in test_laws.pytestmark]
    ['parametrize']
    """
    import pytest

    numbers = sequence("seeds", seeds)
    tests = [_test(part, seed, dtype) for part in sequence("parts", parts) for seed in numbers]
    return pytest.mark.parametrize("check", [test for _, test in tests], ids=[name for name, _ in tests])


def _named(part: Any) -> str:
    if isinstance(part, Solver | Engine):
        return type(part).__name__
    if isinstance(part, Instance):
        return part.name
    if isinstance(part, Problem):
        return f"{type(part.cost).__name__} on {part.manifold}"
    return str(part)
