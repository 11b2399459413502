"""A method of a comparison: an estimator with a label and a grid; the experiment's own, or one that a user brings.

A user's method is named on the command line, ``--method module:Estimator`` or ``--method file.py:Estimator``, or
registered by a package under the entry-point group ``rmopt.methods`` with a name ``experiment.method``. It is a class
that is made without arguments, an unfitted estimator, or a `Method`. Where it has parameters ``rank`` or
``random_state`` the experiment sets them, and it is trained for each rank and each seed.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from sklearn.base import clone

from problems.cells import Settings
from problems.options import chosen_from
from rmopt.core import InvalidInputError
from rmopt.core.arguments import shown

GROUP = "rmopt.methods"


@dataclass(frozen=True)
class Method:
    """A method of a comparison.

    Attributes
    ----------
    label : str
        Its name in tables and pictures.
    estimator : estimator
        Unfitted, with the parameters that it has without cross-validation.
    grid : list of dict
        The parameters that cross-validation chooses among; empty: nothing.

    Examples
    --------
    >>> from sklearn.linear_model import Ridge
    >>> method = Method("ridge", Ridge(), [{"alpha": 0.1}, {"alpha": 1.0}])
    >>> method.made({"alpha": 0.1}, random_state=3, rank=5)
    Ridge(alpha=0.1, random_state=3)
    """

    label: str
    estimator: Any
    grid: Sequence[Settings] = field(default=())

    def made(self, parameters: Mapping[str, Any] | None = None, /, **given: Any) -> Any:
        """Return a new estimator with some parameters, and with those of `given` that it has."""
        known = self.estimator.get_params()
        own = {name: value for name, value in given.items() if name in known}
        return clone(self.estimator).set_params(**own, **parameters or {})

    @property
    def defaults(self) -> Settings:
        """The parameters without cross-validation, of those that this would choose."""
        known = self.estimator.get_params()
        return {name: known[name] for name in (self.grid[0] if self.grid else {})}

    @property
    def ranked(self) -> bool:
        """Whether the experiment sets the rank."""
        return "rank" in self.estimator.get_params() and not getattr(self.estimator, "full_rank", False)


def chosen_methods(
    table: Mapping[str, Method], names: str, own: Iterable[str] | None, experiment: str, can: Sequence[str]
) -> dict[str, Method]:
    """Return the methods of ``--methods``, by name, and after them those of ``--method``.

    Parameters
    ----------
    table : mapping
        The experiment's methods by name; registered ones of this experiment are added.
    names : str
        With commas between.
    own : list of str, optional
        ``module:Estimator`` or ``file.py:Estimator``.
    experiment : str
    can : sequence of str
        What an estimator needs beside ``fit``: any of these methods.

    Raises
    ------
    InvalidInputError
        When a name is not known, or names something that cannot take part.
    """
    registered: dict[str, Any] = {
        entry.name.removeprefix(f"{experiment}."): entry.value
        for entry in entry_points(group=GROUP)
        if entry.name.startswith(f"{experiment}.")
    }
    chosen = chosen_from({**registered, **table}, names, "--methods")
    made = {
        name: one if isinstance(one, Method) else _brought(f"the registered method {name!r}", one, name, can)
        for name, one in chosen.items()
    }
    for text in own or ():
        method = _brought(f"--method {text!r}", text, text.rpartition(":")[2].rpartition(".")[2], can)
        if text in made or method.label in {one.label for one in made.values()}:
            raise InvalidInputError(
                f"--method {text!r}: there is a method {method.label!r} already; rename it."
            )
        made[text] = method
    return made


def _brought(what: str, text: str, label: str, can: Sequence[str]) -> Method:
    """Import a method that somebody else wrote."""
    place, colon, path = text.partition(":")
    if not (place and colon and path):
        raise InvalidInputError(f"{what} must be MODULE:ESTIMATOR or FILE.py:ESTIMATOR.")
    try:
        found = _module(place)
        for attribute in path.split("."):
            found = getattr(found, attribute)
        if isinstance(found, type):
            found = found()
    except Exception as error:
        # Whatever a stranger's module raises, it is the cause.
        raise InvalidInputError(
            f"{what} cannot be made ({type(error).__name__}: {error}); it must name a class that needs no "
            f"arguments, an estimator or a problems.methods.Method in a module that can be imported from here."
        ) from error
    method = found if isinstance(found, Method) else Method(label, found)
    estimator = method.estimator
    if not all(hasattr(estimator, name) for name in ("fit", "get_params", "set_params")):
        raise InvalidInputError(
            f"{what} is {shown(estimator)}, which is no estimator of scikit-learn's kind; derive it from "
            "sklearn.base.BaseEstimator and give it fit."
        )
    if not any(hasattr(estimator, name) for name in can):
        raise InvalidInputError(
            f"{what}: {type(estimator).__name__} has none of {', '.join(can)}; it is measured by one of them."
        )
    return method


def _module(place: str) -> Any:
    """Import a module by its name, the current folder first, or by the path of its file."""
    if not place.endswith(".py"):
        if (here := str(Path.cwd())) not in sys.path:
            sys.path.insert(0, here)
        return importlib.import_module(place)
    path = Path(place).expanduser().resolve()
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise FileNotFoundError(f"there is no file {place}")
    # Known by its name, so that what is pickled for another process is found.
    module = sys.modules[path.stem] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
