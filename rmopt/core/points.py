"""What points are made of, whatever their class: arrays, in a fixed order."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

from rmopt.core.ambient import Array
from rmopt.core.product import Parts


def arrays_of(point: Any) -> list[Array]:
    """Return the arrays of a point: a dataclass, `Parts` or a sequence of points, or one array."""
    if is_dataclass(point):
        return [array for field in fields(point) for array in arrays_of(getattr(point, field.name))]
    if isinstance(point, list | tuple | Parts):
        return [array for part in point for array in arrays_of(part)]
    return [np.asarray(point)]


def rebuilt(template: Any, arrays: list[Array]) -> Any:
    """Return a point of the class of `template` from what `arrays_of` gave."""
    return _rebuilt(template, iter(arrays))


def _rebuilt(template: Any, arrays: Iterator[Array]) -> Any:
    made = type(template)
    if is_dataclass(made):
        return made(*(_rebuilt(getattr(template, field.name), arrays) for field in fields(made)))
    if isinstance(template, list | tuple | Parts):
        return made([_rebuilt(part, arrays) for part in template])
    return next(arrays)
