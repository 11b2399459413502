"""``result.json``: one object of one shape for every experiment."""

import json
import math
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from enum import Enum
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from rmopt.core.errors import InvalidInputError
from rmopt.experiments import Outcome

PACKAGES = ("rmopt", "numpy", "scipy", "numba", "scikit-learn")


def result_of(experiment: str, seed: int, outcome: Outcome) -> dict[str, Any]:
    """Return the object that ``result.json`` holds; what JSON cannot hold is refused."""
    result = {
        "experiment": experiment,
        "data": outcome.data,
        "parameters": plain(outcome.parameters, "parameters"),
        "seed": seed,
        "versions": versions(),
        "rows": [
            {key: plain(value, f"rows[{number}][{key!r}]") for key, value in row.items()}
            for number, row in enumerate(outcome.rows)
        ],
    }
    if outcome.claims:
        result["claims"] = [asdict(claim) for claim in outcome.claims]
    return result


def versions() -> dict[str, str | None]:
    """Return the versions that a result depends on; None for a package that is not installed."""
    found: dict[str, str | None] = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = None
    return found


def plain(value: Any, name: str) -> Any:
    """Return a value as JSON knows it: numpy numbers as numbers, paths as text, NaN and inf as None.

    What has no such form is an `InvalidInputError`, which calls it by the name.
    """
    if isinstance(value, Enum):
        return plain(value.value, name)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, Mapping):
        return {str(key): plain(item, f"{name}[{key!r}]") for key, item in value.items()}
    if hasattr(value, "tolist"):
        return plain(value.tolist(), name)
    if isinstance(value, Sequence) and not isinstance(value, bytes):
        return [plain(item, name) for item in value]
    raise InvalidInputError(
        f"the outcome's {name} is a {type(value).__name__}; use text, numbers, None, or lists of them."
    )


def as_json(content: Mapping[str, Any]) -> str:
    """Return the text that ``--json`` prints."""
    return json.dumps(content, indent=2, allow_nan=False)
