"""The laws of `rmopt.checks` as tests for pytest, in the test suite of your own package."""

from collections.abc import Iterable
from typing import Any

from rmopt.checks import checks_of
from rmopt.checks.catalogue import Instance
from rmopt.core.arguments import sequence
from rmopt.core.problem import Problem
from rmopt.engines.base import Engine
from rmopt.solvers.run import Solver

__all__ = ["parametrize_with_laws"]


def parametrize_with_laws(parts: Iterable[Any], seeds: Iterable[int] = (0, 1, 2), dtype: Any = None) -> Any:
    """Return a pytest decorator that calls a test with a ``check`` for each part and seed.

    Parameters
    ----------
    parts : iterable
        As in `rmopt.checks.checks_of`.
    seeds : iterable of int
        One seed suffices for a part without random numbers. Several seeds find more.
    dtype : dtype, optional
        As in `rmopt.checks.checks_of`.

    Returns
    -------
    pytest.MarkDecorator
        The ``check`` of a test raises an AssertionError that lists the broken laws.

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

    def check_of(part: Any, seed: int) -> Any:
        def check() -> None:
            checks = checks_of(part, seed, dtype)
            broken = [str(check) for check in checks if not check]
            assert checks, f"no law applies to {_named(part)}"
            assert not broken, f"{len(broken)} of {len(checks)} laws are broken:\n" + "\n".join(broken)

        return pytest.param(check, id=f"{_named(part)} seed {seed}")

    numbers = sequence("seeds", seeds)
    tests = [check_of(part, seed) for part in sequence("parts", parts) for seed in numbers]
    return pytest.mark.parametrize("check", tests)


def _named(part: Any) -> str:
    if isinstance(part, tuple):
        return " on ".join(map(_named, part))
    if isinstance(part, Solver | Engine):
        return type(part).__name__
    if isinstance(part, Problem):
        return f"{type(part.cost).__name__} on {part.manifold}"
    return part.name if isinstance(part, Instance) else str(part)
