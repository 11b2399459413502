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

    See Also
    --------
    InvalidInputError : bad input; also a ``ValueError``.
    MissingCapabilityError : parts that do not fit; also a ``TypeError``.
    DivergedError : numbers that are not finite; also an ``ArithmeticError``.
    StorageError : files; also an ``OSError``.

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


class InvalidInputError(RmoptError, ValueError):
    """An argument or a data set cannot be used; the message names it, its value and the remedy.

    See Also
    --------
    MissingCapabilityError : each part is right, and they do not fit.

    Examples
    --------
    >>> from rmopt import InvalidInputError
    >>> from rmopt.manifolds import Sphere
    >>> try:
    ...     Sphere(1)
    ... except InvalidInputError as error:
    ...     print(error)
    Sphere(1) has no directions to go; let vectors have two or more entries.
    """


class MissingCapabilityError(RmoptError, TypeError):
    """Two objects do not fit together; the message names what is missing and who has it.

    See Also
    --------
    InvalidInputError : one value is wrong.

    Examples
    --------
    >>> from rmopt import MissingCapabilityError
    >>> from rmopt.manifolds import Elliptope
    >>> try:
    ...     Elliptope(4, 2).dist(None, None)
    ... except MissingCapabilityError as error:
    ...     print(error)
    Elliptope(4, 2) has no closed form of a geodesic distance (`dist`); compare the embedded points instead.
    """


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

    See Also
    --------
    rmopt.solvers.NotFinite : ends a run without an error.

    Examples
    --------
    >>> from rmopt import DivergedError, Problem
    >>> from rmopt.costs import BilinearSum, squared
    >>> from rmopt.manifolds import Euclidean
    >>> from rmopt.solvers import SGD
    >>> problem = Problem(Euclidean(1, 1), BilinearSum([[1.0]], [[1.0]], squared))
    >>> try:
    ...     SGD(100.0, max_iter=1000).run(problem, random_state=0)
    ... except DivergedError as error:
    ...     print(0 < error.step < 1000)
    True
    """

    def __init__(self, message: str, step: int = 0, point: Any = None) -> None:
        super().__init__(message)
        self.step, self.point = step, point


class StorageError(RmoptError, OSError):
    """A file could not be read or written; what was saved before is untouched.

    See Also
    --------
    InvalidInputError : the file is there, and holds something else.

    Examples
    --------
    >>> from rmopt import StorageError
    >>> from problems.ranking import LoretaLabelRanker
    >>> try:
    ...     LoretaLabelRanker.load("no/such/model.npz")
    ... except StorageError as error:
    ...     print(type(error).__name__)
    StorageError
    """
