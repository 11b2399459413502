"""Names that were elsewhere in version 0.1 and still work there."""

import warnings
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def moved(module: str, names: Mapping[str, str]) -> Callable[[str], Any]:
    """Return the ``__getattr__`` of a module whose names are now elsewhere, each as ``module:name``."""

    def found(name: str) -> Any:
        if name not in names:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        home, _, new = names[name].partition(":")
        warnings.warn(f"{module}.{name} is now {home}.{new}.", FutureWarning, stacklevel=2)
        return getattr(import_module(home), new)

    return found
