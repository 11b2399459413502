"""A method of a comparison: an estimator with a label and a grid; the experiment's own, or one that a user brings.

A user's method is named on the command line, ``--method module:Estimator`` or ``--method file.py:Estimator``, or
registered by a package under the entry-point group ``rmopt.methods`` with a name ``experiment.method``. It is a class
made without arguments, an unfitted estimator, or a `Method`. Where it has parameters ``rank`` or ``random_state``, or
steps whose ``random_state`` is None, the experiment sets them, and it is trained for each rank and each seed. What it
returns is checked, by `rows_of` where it is a table.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
import zlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import joblib
import numpy as np
from scipy.sparse import csr_array, issparse
from sklearn.base import clone

from problems.options import chosen_from
from rmopt.core import InvalidInputError
from rmopt.core.arguments import array, shown

# What a result depends on, and what was measured.
Settings = dict[str, Any]
Cell = dict[str, Any]

GROUP = "rmopt.methods"
# Parameters that experiments set.
SET = ("rank", "random_state")


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
        The parameters that cross-validation chooses among; empty: nothing. Where the best of three numbers or more is
        at the edge, it goes on past that.
    file : str
        What tells the file of a user's method from an edited one.

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
    file: str = ""

    def made(self, parameters: Mapping[str, Any] | None = None, /, **given: Any) -> Any:
        """Return a new estimator with some parameters, and with those of `given` that it has."""
        known = self.estimator.get_params()
        taken = {name: value for name, value in given.items() if name in known}
        if "random_state" in given:
            # The steps of a pipeline have their own.
            inner = [name for name in known if name.endswith("__random_state") and known[name] is None]
            taken |= dict.fromkeys(inner, given["random_state"])
        return clone(self.estimator).set_params(**taken, **(parameters or {}))

    @property
    def code(self) -> str:
        """What results depend on beside settings: the file of a user's method, and parameters of an estimator."""
        plain = {
            name: value
            for name, value in self.estimator.get_params().items()
            if isinstance(value, str | int | float)
        }
        return str(joblib.hash([self.file, plain]))

    @property
    def defaults(self) -> Settings:
        """The parameters without cross-validation, of those that this would choose."""
        known = self.estimator.get_params()
        return {name: known[name] for name in (self.grid[0] if self.grid else {})}

    @property
    def full_rank(self) -> bool:
        """Whether it learns a whole matrix."""
        return bool(getattr(self.estimator, "full_rank", False))

    @property
    def ranked(self) -> bool:
        """Whether the experiment sets the rank."""
        return "rank" in self.estimator.get_params() and not self.full_rank


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
    found = [entry for entry in entry_points(group=GROUP) if entry.name.startswith(f"{experiment}.")]
    registered = {entry.name.removeprefix(f"{experiment}."): entry.value for entry in found}
    chosen: dict[str, Any] = chosen_from({**registered, **table}, names, "--methods")
    times = Counter([*(entry.name.removeprefix(f"{experiment}.") for entry in found), *table])
    for name in chosen:
        if times[name] > 1:
            raise InvalidInputError(
                f"--methods {name!r}: an installed package registers a method {experiment}.{name} under {GROUP!r}, "
                "and there is one already; uninstall it, or leave the method out."
            )
    asked = [(name, one, f"the registered method {name!r}", name) for name, one in chosen.items()]
    asked += [
        (text, text, f"--method {text!r}", text.rpartition(":")[2].rpartition(".")[2]) for text in own or ()
    ]
    methods: dict[str, Method] = {}
    for name, one, what, label in asked:
        method = one if isinstance(one, Method) else _brought(what, one, label, can)
        if name in methods or method.label in {other.label for other in methods.values()}:
            raise InvalidInputError(f"{what}: there is a method {method.label!r} already; rename it.")
        methods[name] = method
    return methods


def brought(what: str, text: str, wanted: str, make: bool = True) -> tuple[Any, str]:
    """Import ``MODULE:NAME`` or ``FILE.py:NAME``.

    Parameters
    ----------
    what : str
        How an error calls it.
    text : str
    wanted : str
        What it must name.
    make : bool
        Whether an object is made of a class, without arguments.

    Returns
    -------
    tuple of object and str
        What is there, and what tells the file from an edited one.
    """
    place, colon, path = text.rpartition(":")
    if not (place and colon and path):
        raise InvalidInputError(f"{what} must be MODULE:NAME or FILE.py:NAME, where NAME is {wanted}.")
    before = set(sys.modules)
    try:
        thing = module = _module(place)
        for attribute in path.split("."):
            thing = getattr(thing, attribute)
        thing = thing() if make and isinstance(thing, type) else thing
    except Exception as error:
        # Whatever a stranger's module raises, it is the cause.
        raise InvalidInputError(
            f"{what} cannot be made ({type(error).__name__}: {error}); it must name {wanted} in a module that can be "
            "imported from here."
        ) from error
    for name in {module.__name__} | (sys.modules.keys() - before):
        if "site-packages" not in (file := getattr(sys.modules[name], "__file__", None) or "site-packages"):
            _travels(sys.modules[name])
    file = getattr(module, "__file__", None)
    return thing, str(joblib.hash(Path(file).read_bytes())) if file else ""


def _brought(what: str, text: str, label: str, can: Sequence[str]) -> Method:
    """Import a method that a user wrote."""
    wanted = "a class that needs no arguments, an estimator or a problems.methods.Method"
    thing, file = brought(what, text, wanted)
    method = replace(thing, file=file) if isinstance(thing, Method) else Method(label, thing, file=file)
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
    known = estimator.get_params().keys() - {*SET}
    if not all(isinstance(one, dict) and known >= one.keys() for one in method.grid):
        raise InvalidInputError(
            f"{what}: its grid {shown(method.grid)} must be a list of dicts from parameters of "
            f"{type(estimator).__name__} ({', '.join(sorted(known)) or 'it has none'}) to values, without those that "
            f"the experiment sets ({', '.join(SET)})."
        )
    return method


def _module(place: str) -> Any:
    """Import a module by its name, the current folder first, or by the path of its file, its folder too."""
    path = Path(place).expanduser().resolve()
    by_name = not place.endswith(".py")
    if (home := str(Path.cwd() if by_name else path.parent)) not in sys.path:
        sys.path.insert(0, home)
    if by_name:
        return importlib.import_module(place)
    # No other module has such a name, whatever the file is called.
    name = f"{path.stem}_{zlib.crc32(str(path).encode()):08x}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise FileNotFoundError(f"there is no file {place}")
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _travels(module: Any) -> None:
    """Let what a module of the user defines be pickled as a whole, for processes that cannot import it."""
    for pickler in ("cloudpickle", "joblib.externals.cloudpickle"):
        # joblib's processes use the second one, dask's the first, where it is installed.
        if importlib.util.find_spec(pickler):
            importlib.import_module(pickler).register_pickle_by_value(module)


def rows_of(name: str, values: Any, n_rows: int, *, columns: int | None = None) -> Any:
    """Return what a method gave, a row of finite numbers for each row that it was given, or refuse it.

    Parameters
    ----------
    name : str
        Of what it is, such as ``transform(X)``.
    values : array or sparse array
    n_rows : int
    columns : int, optional
        How many there must be; at least one unless given.
    """
    rows: Any = csr_array(values) if issparse(values) else array(name, values)
    numbers: Any = rows.data if issparse(rows) else rows
    fits = rows.ndim == 2 and rows.shape == (n_rows, columns or max(1, rows.shape[1]))
    if not fits or numbers.dtype.kind not in "biuf" or not np.isfinite(numbers).all():
        wanted = f"{n_rows} rows" + f" and {columns} columns" * (columns is not None)
        flaw = f"{rows.dtype} of shape {rows.shape}" + ", with NaN or infinity" * fits
        raise InvalidInputError(f"{name} must be a table of finite numbers with {wanted}, got {flaw}.")
    # Products of narrow integers would overflow.
    return rows if numbers.dtype.kind == "f" else rows.astype(float)
