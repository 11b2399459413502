"""Fitted estimators and matrices in files, without pickle, with one sentence for each error."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from rmopt.core import LowRankPoint, PSDPoint
from rmopt.core.ambient import Array
from rmopt.core.arguments import Check, check_parameters, integer, shown
from rmopt.errors import InvalidInputError, StorageError
from rmopt.files import Layout, conforming, load_arrays, reading, save_arrays

# The tolerance for the orthonormality of a stored model's factors.
ORTHONORMAL = 1e-8


class Saved:
    """An estimator that `save` writes as an ``.npz`` file, and `load` reads.

    A subclass lists the attributes that `fit` sets: arrays with their types and shapes, arrays of names, text or
    numbers, with their shapes, optional ones, and single numbers with their checks. The sizes "features" and "rank"
    are those of `n_features_in_` and `rank`.
    """

    _arrays: ClassVar[Layout] = {}
    _names: ClassVar[dict[str, tuple[str, ...]]] = {}
    _optional: ClassVar[dict[str, tuple[Any, ...]]] = {"feature_names_in_": ("features",)}
    _numbers: ClassVar[dict[str, Check]] = {"n_features_in_": integer}

    def save(self, path: Path | str) -> None:
        """Write the parameters and the learned state as an ``.npz`` file, without pickle. `load` reads it.

        Parameters
        ----------
        path : path
            A missing folder is created. The file is either complete or unchanged.

        Raises
        ------
        NotFittedError
            Before `fit`.
        InvalidInputError
            If a parameter, such as a RandomState, or a name is neither a number nor text.
        StorageError
            If it cannot be written.
        """
        check_is_fitted(self)
        parameters: dict[str, Any] = self.get_params(deep=False)  # type: ignore[attr-defined]
        names = [name for name in (*self._names, *self._optional) if hasattr(self, name)]
        arrays = self._stored() | {name: names_to_store(name, getattr(self, name)) for name in names}
        about = {
            "kind": type(self).__name__,
            "parameters": {name: plain(name, value) for name, value in parameters.items()},
            "numbers": {name: plain(name, getattr(self, name)) for name in self._numbers},
        }
        try:
            self._made(arrays, about)
        except ValueError as error:
            raise InvalidInputError(
                f"the parameters are not those with which it was fitted ({error}); fit it again, or restore them, "
                "before it is saved."
            ) from None
        save_arrays(path, arrays, about)

    @classmethod
    def load(cls, path: Path | str) -> Self:
        """Return a fitted estimator with the parameters and attributes that `save` wrote.

        Parameters
        ----------
        path : path

        Raises
        ------
        InvalidInputError
            If the file holds another estimator.
        StorageError
            If it is missing or damaged.
        """
        arrays, about = load_arrays(path)
        if about.get("kind") != cls.__name__:
            raise InvalidInputError(
                f"{path} holds {shown(about.get('kind', 'another thing'))} and no {cls.__name__}; load it by its own "
                "class."
            )
        with reading(path):
            return cls._made(arrays, about)

    @classmethod
    def _made(cls, arrays: dict[str, Array], about: dict[str, Any]) -> Self:
        """Return the fitted estimator of arrays and numbers, or raise a ValueError if they do not agree."""
        # JSON has no tuples.
        given = {k: tuple(v) if isinstance(v, list) else v for k, v in about["parameters"].items()}
        try:
            model: Any = cls(**given)
        except TypeError as error:
            raise StorageError(
                f"a saved {cls.__name__} has other parameters ({error}); load it by its own class."
            ) from None
        check_parameters(model, model._parameters)
        for name, check in cls._numbers.items():
            setattr(model, name, check(name, about["numbers"][name]))
        shapes = cls._names | cls._optional
        names = {name: (_kind(arrays[name]), shapes[name]) for name in shapes if name in arrays}
        layout = {**cls._layout(arrays), **names}
        if set(arrays) != set(layout) or not set(cls._names) <= set(names):
            raise ValueError(f"it holds {', '.join(arrays)} instead of {', '.join({*layout, *cls._names})}")
        sides = {"features": model.n_features_in_, "rank": about["parameters"].get("rank")}
        model._restore(conforming(arrays, layout, **sides))
        return model

    @classmethod
    def _layout(cls, arrays: dict[str, Array]) -> Layout:
        """Return the types and shapes of the arrays other than names."""
        return cls._arrays

    def _stored(self) -> dict[str, Array]:
        return {name: getattr(self, name) for name in self._arrays}

    def _restore(self, arrays: dict[str, Array]) -> None:
        """Set the attributes, or raise a ValueError if the arrays do not match."""
        for name, array in arrays.items():
            setattr(self, name, array.astype(object) if name.endswith("names_in_") else array)


def plain(name: str, value: Any) -> Any:
    """Return a parameter in JSON's form, or raise an `InvalidInputError` if it has none."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, (tuple, list)):
        return [plain(name, one) for one in value]
    if value is not None and not isinstance(value, (bool, int, float, str)):
        raise InvalidInputError(
            f"{name} = {shown(value)} cannot be written to a file; give numbers, text or None, an integer as "
            "random_state."
        )
    return value


def names_to_store(name: str, values: Array) -> Array:
    """Return names as text or numbers, which need no pickle, and refuse others."""
    found = values if values.dtype.kind in "biufU" else np.array(values.tolist())
    if found.dtype.kind not in "biufU" or found.shape != values.shape:
        raise InvalidInputError(
            f"{name} must be text or numbers to be written to a file, got {shown(values)}."
        )
    return found


def _kind(array: Array) -> type:
    return {"U": str, "f": float, "b": bool, "u": np.uint64}.get(array.dtype.kind, int)


def layout_of(names: Any, rows: str) -> Layout:
    """Return the layout of a low-rank matrix over features, symmetric if there is a "Q"."""
    square = (float, ("rank", "rank"))
    if "Q" in names:
        return {"Q": (float, ("features", "rank")), "S": square}
    return {"U": (float, (rows, "rank")), "S": square, "V": (float, ("features", "rank"))}


def point_of(arrays: Mapping[str, Array]) -> LowRankPoint | PSDPoint:
    """Return the matrix of these arrays, or raise a ValueError if they are not a point."""
    for name in {"U", "V", "Q"} & set(arrays):
        factor = arrays[name]
        if not np.abs(factor.T @ factor - np.eye(factor.shape[1])).max(initial=0.0) < ORTHONORMAL:
            raise ValueError(f"{name} is not orthonormal")
    if "Q" in arrays and not np.allclose(arrays["S"], arrays["S"].T):
        raise ValueError("S is not symmetric")
    return (PSDPoint if "Q" in arrays else LowRankPoint)(**arrays)
