"""Methods of a comparison, of the experiment or of a user: estimators with labels and grids.

A user's method is named on the command line, ``--method module:Estimator`` or ``--method file.py:Estimator``, or
registered by a package under the entry-point group ``rmopt.methods`` with a name ``experiment.method``. It is a class
that needs no arguments, an unfitted estimator, or a `Method`. If it has parameters ``rank`` or ``random_state``, or
steps whose ``random_state`` is None, the experiment sets them and trains it for each rank and each seed. Its results
are checked, by `rows_of` if they are tables.
"""

import importlib
import importlib.util
import sys
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.metadata import entry_points
from operator import attrgetter
from pathlib import Path
from typing import Any

import joblib
import numpy as np
from scipy.sparse import csr_array, issparse
from sklearn.base import clone

from problems.options import chosen_from
from rmopt.core import InvalidInputError
from rmopt.core.arguments import array, shown

# The settings of a result, and its measurements.
Settings = dict[str, Any]
Cell = dict[str, Any]

GROUP = "rmopt.methods"


@dataclass(frozen=True)
class Method:
    """A method of a comparison.

    Attributes
    ----------
    label : str
        Its name in tables and pictures.
    estimator : estimator
        Unfitted, with its parameters without cross-validation.
    grid : list of dict
        The parameters for cross-validation, empty for none. It grows if the best of three or more is at its edge.
    file : str
        Identifies the version of the file of a user's method.

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
        """Return a new estimator with some parameters, and with those of `given` that it accepts."""
        known = self.estimator.get_params()
        taken = {name: value for name, value in given.items() if name in known}
        if "random_state" in given:
            # The steps of a pipeline have their own.
            inner = [name for name in known if name.endswith("__random_state") and known[name] is None]
            taken |= dict.fromkeys(inner, given["random_state"])
        return clone(self.estimator).set_params(**taken, **(parameters or {}))

    @property
    def code(self) -> str:
        """The dependence of results beyond settings: the file of a user's method, and parameters of an estimator."""
        known = self.estimator.get_params()
        plain = {name: known[name] for name in known if isinstance(known[name], str | int | float)}
        return str(joblib.hash([self.file, plain]))

    @property
    def defaults(self) -> Settings:
        """The default values of the parameters for cross-validation."""
        known = self.estimator.get_params()
        return {name: known[name] for name in (self.grid[0] if self.grid else {})}

    @property
    def ranked(self) -> bool:
        """Whether the experiment sets the rank, which learners of a full matrix do not have."""
        return "rank" in self.estimator.get_params() and not getattr(self.estimator, "full_rank", False)


def chosen_methods(
    table: Mapping[str, Method], names: str, own: Iterable[str] | None, experiment: str, can: Sequence[str]
) -> dict[str, Method]:
    """Return the methods of ``--methods``, by name, and after them those of ``--method``.

    Parameters
    ----------
    table : mapping
        The experiment's methods by name, to which its registered ones are added.
    names : str
        With commas between.
    own : list of str, optional
        ``module:Estimator`` or ``file.py:Estimator``.
    experiment : str
    can : sequence of str
        An estimator needs ``fit`` and any of these methods.

    Raises
    ------
    InvalidInputError
        If a name is not known, or its object cannot take part.
    """
    ours = f"{experiment}."
    found = [entry for entry in entry_points(group=GROUP) if entry.name.startswith(ours)]
    registered = {entry.name.removeprefix(ours): entry.value for entry in found}
    chosen: dict[str, Any] = chosen_from({**registered, **table}, names, "--methods")
    methods: dict[str, Method] = {}
    for name, value in [*chosen.items(), *((text, text) for text in own or ())]:
        method = value if isinstance(value, Method) else _brought(name, value, can)
        if method.label in {other.label for other in methods.values()}:
            raise InvalidInputError(f"{name!r}: there is a method {method.label!r} already; rename it.")
        methods[name] = method
    return methods


def brought(what: str, text: str, wanted: str, make: bool = True) -> tuple[Any, str]:
    """Import ``MODULE:NAME`` or ``FILE.py:NAME``.

    Parameters
    ----------
    what : str
        Its name in errors.
    text : str
    wanted : str
        The kind of object that it must name.
    make : bool
        Whether a class is called without arguments.

    Returns
    -------
    tuple of object and str
        The object, and the version of its file.
    """
    place, _, name = text.rpartition(":")
    if not place:
        raise InvalidInputError(f"{what} must be MODULE:NAME or FILE.py:NAME for {wanted}.")
    before = set(sys.modules)
    try:
        module = _module(place)
        thing = attrgetter(name)(module)
        thing = thing() if make and isinstance(thing, type) else thing
    except Exception as error:
        # Any error of a user's module is the cause.
        raise InvalidInputError(
            f"{what} cannot be made ({type(error).__name__}: {error}); it must name {wanted} in a module that can be "
            "imported from here."
        ) from error
    for new in {module.__name__} | (sys.modules.keys() - before):
        if "site-packages" not in (getattr(sys.modules[new], "__file__", None) or "site-packages"):
            _travels(sys.modules[new])
    file = getattr(module, "__file__", None)
    return thing, str(joblib.hash(Path(file).read_bytes())) if file else ""


def _brought(name: str, text: str, can: Sequence[str]) -> Method:
    """Import a user's method, with the last part of its name as default label."""
    what = f"the method {name!r}"
    wanted = "a class that needs no arguments, an estimator or a problems.methods.Method"
    thing, file = brought(what, text, wanted)
    label = name.rpartition(":")[2].rpartition(".")[2]
    method = replace(thing, file=file) if isinstance(thing, Method) else Method(label, thing, file=file)
    lacks = [one for one in ("fit", "get_params", "set_params") if not hasattr(method.estimator, one)]
    if lacks or not any(hasattr(method.estimator, one) for one in can):
        raise InvalidInputError(
            f"{what} is {shown(method.estimator)}, without {', '.join(lacks) or ' and '.join(can)}; derive it from "
            f"sklearn.base.BaseEstimator, with fit and one of {', '.join(can)}, by which it is measured."
        )
    return method


def _module(place: str) -> Any:
    """Import a module by its name, the current folder first, or by the path of its file, with its folder."""
    path = Path(place).expanduser().resolve()
    by_name = not place.endswith(".py")
    if (home := str(Path.cwd() if by_name else path.parent)) not in sys.path:
        sys.path.insert(0, home)
    if by_name:
        return importlib.import_module(place)
    # No other module has such a name, for any file name.
    name = f"{path.stem}_{zlib.crc32(str(path).encode()):08x}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise FileNotFoundError(f"there is no file {place}")
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _travels(module: Any) -> None:
    """Let definitions in a user's module be pickled by value, for processes that cannot import it."""
    for pickler in ("cloudpickle", "joblib.externals.cloudpickle"):
        # joblib's processes use the second one, dask's the first, if it is installed.
        if importlib.util.find_spec(pickler):
            importlib.import_module(pickler).register_pickle_by_value(module)


def rows_of(name: str, values: Any, n_rows: int, columns: int | None = None) -> Any:
    """Return the result of a method, checked to have a row of finite numbers for each input row.

    Parameters
    ----------
    name : str
        The name of the result, such as ``transform(X)``.
    values : array or sparse array
    n_rows : int
    columns : int, optional
        The required number, by default at least one.
    """
    rows: Any = csr_array(values) if issparse(values) else array(name, values)
    stored: Any = rows.data if issparse(rows) else rows
    fits = rows.ndim == 2 and rows.shape == (n_rows, columns or max(1, rows.shape[1]))
    if not fits or stored.dtype.kind not in "biuf" or not np.isfinite(stored).all():
        raise InvalidInputError(
            f"{name} must be a table of finite numbers with {n_rows} rows" + f" and {columns} columns" * bool(columns)
            + f"; it is {rows.dtype} of shape {rows.shape}" + ", with NaN or infinity" * fits + "."
        )  # fmt: skip
    # Products of narrow integers would overflow.
    return rows if stored.dtype.kind == "f" else rows.astype(float)
