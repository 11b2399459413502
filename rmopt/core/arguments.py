"""Checks of arguments: each error is one sentence with the given value, the requirement and the remedy.

A check takes a name and a value, and returns the value in the type that the code computes with, or raises
`InvalidInputError`. `check_parameters` runs the checks that a class declares, as scikit-learn's
``_parameter_constraints`` do.
"""

import difflib
import inspect
import operator
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import wraps
from numbers import Integral, Real
from typing import Any, ClassVar, ParamSpec, TypeVar, cast, dataclass_transform

import numpy as np

from rmopt import namespaces as ns
from rmopt.errors import InvalidInputError

# More than an array could hold: only a message about a larger value names it.
LARGEST = 2**62
# How similar a name is to the one that was probably meant.
CLOSE = 0.7
POSITIVE = {"a number above 0": "a positive number", "an integer of at least 1": "a positive integer"}

Check = Callable[..., Any]
T = TypeVar("T")
P = ParamSpec("P")


def number(
    name: str,
    value: Any,
    *,
    least: float | None = None,
    above: float | None = None,
    most: float | None = None,
    below: float | None = None,
) -> float:
    """Return a finite real number within bounds as a float, with `least` and `most` included.

    Anything else is refused: a string, a boolean, a complex number, NaN, infinity, a number out of bounds:
    ``lam = 'x' must be a number of at least 0.``
    """
    found = float(value) if isinstance(value, Real) and not isinstance(value, bool) else np.nan
    limits = ((least, operator.ge), (above, operator.gt), (most, operator.le), (below, operator.lt))
    if not np.isfinite(found) or not all(bound is None or holds(found, bound) for bound, holds in limits):
        raise InvalidInputError(
            f"{name} = {shown(value)} must be {_wanted('number', least, above, most, below)}."
        )
    return found


def integer(name: str, value: Any, least: int = 0, most: float = LARGEST) -> int:
    """Return an integer within bounds as an int. Numpy's integers are accepted, booleans and 2.0 are not."""
    inside = isinstance(value, Integral) and not isinstance(value, bool)
    if not inside or not least <= value <= most:
        named = most if most < LARGEST or (inside and value > most) else None
        wanted = _wanted("integer", least, None, named, None)
        raise InvalidInputError(f"{name} = {shown(value)} must be {wanted}.")
    return int(value)


def numbers(name: str, value: Any, shape: tuple[int, ...] | None = None, field: str = "real") -> np.ndarray:
    """Return a numpy array of finite numbers of a field, as floats, with the given shape if there is one."""
    found = array(name, ns.to_numpy(value) if ns.is_array(value) else value)
    real = found.dtype.kind in ("biuf" if field == "real" else "biufc")
    with np.errstate(over="ignore"):
        found = found.astype(float if field == "real" else complex) if real else found
    if not real or not np.isfinite(found).all() or found.shape != (found.shape if shape is None else shape):
        wanted = "finite numbers" if shape is None else f"finite numbers and shape {shape}"
        flaw = shown(value)
        if real:
            flaw = f"shape {found.shape}" if np.isfinite(found).all() else "NaN or infinity"
        raise InvalidInputError(f"{name} must be an array of {wanted}, got {flaw}.")
    return found


def real_only(what: str, values: np.ndarray) -> np.ndarray:
    """Return numbers of a cost that takes no complex points, and refuse complex ones."""
    if np.iscomplexobj(values):
        raise InvalidInputError(
            f"{what} takes real points; take a manifold of them, or a cost by a function."
        )
    return values


def flag(name: str, value: Any) -> bool:
    """Return True or False, and refuse a string such as "no"."""
    if not isinstance(value, bool | np.bool_):
        raise InvalidInputError(f"{name} = {shown(value)} must be True or False.")
    return bool(value)


def one_of(name: str, value: Any, known: Iterable[str]) -> str:
    """Return a known name, or raise an error that lists the known names and suggests a similar one."""
    known = tuple(known)
    if not isinstance(value, str) or value not in known:
        near = difflib.get_close_matches(value, known, 1) if isinstance(value, str) else []
        hint = f" (did you mean {near[0]!r}?)" if near else ""
        raise InvalidInputError(
            f"{name} = {shown(value)} is unknown; choose one of {', '.join(known)}{hint}."
        )
    return value


def named(name: str, value: Any, known: Mapping[str, T], kind: Any) -> T:
    """Return the object with this name, or the object itself if one was given."""
    if isinstance(value, type) and issubclass(value, kind):
        raise InvalidInputError(f"{name} = {shown(value)} is a class; give an object of it.")
    return value if isinstance(value, kind) else known[one_of(name, value, known)]


def instance(name: str, value: Any, wanted: type | tuple[type, ...], example: str) -> Any:
    """Return an object of a class. `example` describes in words what to give."""
    if not isinstance(value, wanted):
        raise InvalidInputError(f"{name} = {shown(value)} must be {example}.")
    return value


def callable_of(name: str, value: Any) -> Callable[..., Any]:
    """Return a function or another callable object, and refuse a class."""
    if not callable(value) or isinstance(value, type):
        raise InvalidInputError(f"{name} = {shown(value)} must be a function.")
    return value


def sequence(name: str, value: Any) -> list[Any]:
    """Return the items of a sequence as a list, and refuse a string."""
    try:
        if isinstance(value, str | bytes):
            raise TypeError
        return list(value)
    except TypeError:
        raise InvalidInputError(f"{name} = {shown(value)} must be a sequence, such as a list.") from None


def array(name: str, value: Any) -> np.ndarray:
    """Return anything that can be read as an array, of entries of any kind."""
    whole(name, value)
    try:
        found = np.asarray(value)
        if found.dtype.kind == "T":
            # Text of any length with missing values: few libraries support this type.
            found = found.astype(object)
            return found.astype(str) if all(isinstance(one, str) for one in found.flat) else found
        if found.dtype.kind == "f" and isinstance(value, list | tuple) and np.any(np.abs(found) >= 2.0**63):
            # numpy reads lists of large and small integers as floats, which hold 53 bits of them.
            exact = np.asarray(value, dtype=object)
            if all(type(one) is int for one in exact.flat):
                return exact.astype(np.uint64)
        return found
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidInputError(
            f"{name} cannot be read as an array ({str(error).split('. ')[0]}); give rows of one length."
        ) from None


def optional(check: Check, *bounds: Any, **keywords: Any) -> Check:
    """Return a check that accepts None and applies `check` with the given bounds to everything else."""
    held = bounded(check, *bounds, **keywords)
    return lambda name, value: None if value is None else held(name, value)


def bounded(check: Check, *bounds: Any, **keywords: Any) -> Check:
    """Return a check with its bounds: ``bounded(integer, 1)``, ``bounded(number, above=0)``."""
    return lambda name, value: check(name, value, *bounds, **keywords)


def check_parameters(owner: Any, checks: dict[str, Check]) -> None:
    """Check the attributes of an object by the checks with their names."""
    for name, check in checks.items():
        check(name, getattr(owner, name))


class Checked:
    """Declares the parameters of a dataclass as fields, ``name: Annotated[type, check] = default``."""

    _parameters: ClassVar[dict[str, Check]] = {}

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        own = inspect.get_annotations(cls, eval_str=True).items()
        fields = {name: kind for name, kind in own if hasattr(kind, "__metadata__")}
        cls._parameters = cls._parameters | {name: kind.__metadata__[0] for name, kind in fields.items()}
        # Signatures show the types alone.
        cls.__annotations__ |= {name: kind.__origin__ for name, kind in fields.items()}


class CheckedValue(Checked):
    """A frozen dataclass that checks its fields on construction and stores the values that the checks return."""

    def __post_init__(self) -> None:
        for name, check in self._parameters.items():
            object.__setattr__(self, name, check(name, getattr(self, name)))


@dataclass_transform(kw_only_default=True, frozen_default=True, eq_default=False, field_specifiers=(field,))
def by_keyword(kind: type[T]) -> type[T]:
    """Make a class a frozen dataclass with keyword-only fields and clear errors for wrong arguments."""
    made = dataclass(frozen=True, kw_only=True, repr=False, eq=False)(kind)
    setattr(made, "__init__", explained(made.__init__))  # noqa: B010
    return made


class Explained:
    """Explains in one sentence which arguments its constructor takes, instead of raising a TypeError.

    `elsewhere` names the right place for arguments that people know from other libraries or methods.
    """

    elsewhere: ClassVar[dict[str, str]] = {}

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "__init__" in vars(cls):
            setattr(cls, "__init__", explained(vars(cls)["__init__"]))  # noqa: B010


def explained(method: Callable[P, T]) -> Callable[P, T]:
    """Wrap a method of an `Explained`, so that its errors explain in one sentence which arguments it takes."""

    @wraps(method)
    def call(*arguments: P.args, **named: P.kwargs) -> T:
        try:
            return method(*arguments, **named)
        except TypeError:
            signature, self, given = inspect.signature(method), cast(Explained, arguments[0]), arguments[1:]
            try:
                signature.bind(*arguments, **named)
            except TypeError as reason:
                kind, name = type(self), method.__name__
                # A class passes the shared arguments to its base.
                taken = [*signature.parameters][1 if getattr(kind, name) is call else 1 + len(given) :]
                cure = next((self.elsewhere[word] for word in named if word in self.elsewhere), None)
                near = [one for word in named for one in difflib.get_close_matches(word, taken, 1, CLOSE)]
                # Methods are no parameters.
                own = [word for word in named if not callable(getattr(self, word, len))]
                if name != "__init__" and own:
                    cure = f"{own[0]} is a parameter of {kind.__name__}"
                if near:
                    cure = f"give {near[0]}="
                cure = cure or f"it takes {', '.join(taken)}"
                if given and isinstance(given[0], tuple):
                    cure = f"give the entries of {shown(given[0])} one by one"
                owner = kind.__name__ + f".{name}" * (name != "__init__")
                raise InvalidInputError(f"{owner} {reason}; {cure}.") from None
            # The error comes from inside the method.
            raise

    return call


def shown(value: Any) -> str:
    """Return a value as an error message shows it: short and on one line."""
    text = " ".join(repr(value).split())
    return text if len(text) <= 80 else f"{text[:60]} … of type {type(value).__name__}"


def whole(name: str, value: Any) -> Any:
    """Return a value, and refuse an array with masked entries."""
    if np.ma.is_masked(value):
        raise InvalidInputError(f"{name} has masked entries; fill them, or leave their rows out.")
    return value


def _wanted(
    kind: str, least: float | None, above: float | None, most: float | None, below: float | None
) -> str:
    bounds = [
        f"{words} {bound:g}" if isinstance(bound, float) else f"{words} {bound}"
        for words, bound in (("of at least", least), ("above", above), ("at most", most), ("below", below))
        if bound is not None
    ]
    article = "an" if kind == "integer" else "a finite" if not bounds else "a"
    text = " ".join([article, kind, " and ".join(bounds)]).strip()
    return POSITIVE.get(text, text)
