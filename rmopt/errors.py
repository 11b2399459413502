"""The exceptions and warnings of rmopt, whose messages name the cause and the remedy in one sentence."""

import sys
import warnings
from typing import Any

# A warning never points at lines of these packages, nor of those that call them on behalf of a user.
BETWEEN = ("rmopt", "problems", "contextlib", "sklearn")


def warn(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn at the user's line, however deep inside a call the cause is found."""
    level, frame = 2, sys._getframe(1)
    while frame.f_back and frame.f_globals.get("__name__", "").partition(".")[0] in BETWEEN:
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)


class RmoptError(Exception):
    """Base class of every error that rmopt raises on purpose.

    Examples
    --------
    >>> from rmopt import RmoptError
    >>> from rmopt.manifolds import Grassmann
    >>> try:
    ...     Grassmann(3, 5)
    ... except RmoptError as error:
    ...     print(type(error).__name__)
    InvalidInputError
    """


def broke_down(error: Exception) -> bool:
    """Return whether an error of any library's linear algebra means a singular matrix or one that is not finite."""
    return "LinAlgError" in type(error).__name__ or "infs or NaNs" in str(error)


class InvalidInputError(RmoptError, ValueError):
    """An argument or a data set cannot be used: the message names it, its value and the remedy."""


class MissingCapabilityError(RmoptError, TypeError):
    """Two objects do not fit together: the message names the missing part and an object that has it."""


class DivergedError(RmoptError, ArithmeticError):
    """A run left the finite numbers.

    Parameters
    ----------
    message : str
    step : int
        Also an attribute: the number of the step, from 0, at which the first value that is not finite appeared, or 0
        if it is unknown.
    point : object, optional
        Also an attribute: the last point of the run, if known. At a kink, which has no gradient, it may be the
        minimum.
    """

    def __init__(self, message: str, step: int = 0, point: Any = None) -> None:
        super().__init__(message)
        self.step, self.point = step, point


class StorageError(RmoptError, OSError):
    """A file could not be read or written. Earlier saves are untouched."""
