"""Tables of cases that run as one test: all rows are tried, and those that fail are listed."""

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any

import pytest


def each_row(names: str | tuple[str, ...], rows: Iterable[Any]) -> Callable[[Callable], Callable]:
    """Do as `pytest.mark.parametrize` for cheap rows: fixtures are shared, and the test is one case."""
    keys = tuple(name.strip() for name in names.split(",")) if isinstance(names, str) else names
    cases = [row if len(keys) > 1 else (row,) for row in rows]
    assert cases, "the table has no rows"

    def over(test: Callable) -> Callable:
        @functools.wraps(test)
        def every_row(*arguments: Any, **fixtures: Any) -> None:
            failed = []
            for case in cases:
                try:
                    test(*arguments, **fixtures, **dict(zip(keys, case, strict=True)))
                except (Exception, pytest.fail.Exception) as error:
                    failed.append(f"{case!r}: {type(error).__name__}: {error}")
            assert not failed, f"{len(failed)} of {len(cases)} rows:\n" + "\n".join(failed)

        whole = inspect.signature(test)
        left = [one for name, one in whole.parameters.items() if name not in keys]
        every_row.__signature__ = whole.replace(parameters=left)  # type: ignore[attr-defined]
        return every_row

    return over
