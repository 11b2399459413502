"""The exceptions of rmopt: each carries one sentence that names the cause and the cure."""


class RmoptError(Exception):
    """Base class of every error that rmopt raises on purpose."""


class InvalidInputError(RmoptError, ValueError):
    """An argument or a data set cannot be used; the message names it, its value and the cure."""


class MissingCapabilityError(RmoptError, TypeError):
    """Two objects do not fit together; the message names what is missing and who has it."""


class DivergedError(RmoptError, ArithmeticError):
    """A run left the finite numbers.

    Parameters
    ----------
    message : str
    step : int
        Also an attribute: the number of the step (from 0) at which the first value that is not finite appeared.
    """

    def __init__(self, message: str, step: int) -> None:
        super().__init__(message)
        self.step = step


class StorageError(RmoptError, OSError):
    """A file could not be read or written; what was saved before is untouched."""
