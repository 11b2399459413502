"""The exceptions of rmopt: each carries one sentence that names the cause and the remedy; and its warnings."""

import sys
import warnings
from typing import Any

# Whose lines no warning is about: those of these packages, and of what calls them on behalf of a user.
BETWEEN = ("rmopt", "problems", "contextlib", "sklearn")


def warn(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn at the line of the user, however deep inside of a call something is found."""
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
    """Return whether linear algebra, that of any library, says that a matrix is singular or not finite."""
    return "LinAlgError" in type(error).__name__ or "infs or NaNs" in str(error)


class InvalidInputError(RmoptError, ValueError):
    """An argument or a data set cannot be used; the message names it, its value and the remedy."""


class MissingCapabilityError(RmoptError, TypeError):
    """Two objects do not fit together; the message names what is missing and who has it."""


class DivergedError(RmoptError, ArithmeticError):
    """A run left the finite numbers.

    Parameters
    ----------
    message : str
    step : int
        Also an attribute: the number of the step, from 0, at which the first value that is not finite appeared; 0
        where it is not told.
    point : object, optional
        Also an attribute: where the run stood, as far as it is known. At a kink, where there is no gradient, it may
        be what was looked for.
    """

    def __init__(self, message: str, step: int = 0, point: Any = None) -> None:
        super().__init__(message)
        self.step, self.point = step, point


class StorageError(RmoptError, OSError):
    """A file could not be read or written; what was saved before is untouched."""
