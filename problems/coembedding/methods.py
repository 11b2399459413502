"""The methods that the co-embedding experiment compares, and what the paper printed for them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from problems.coembedding.rivals import rival

MEASURES = ("hamming", "micro_f1", "macro_f1")


@dataclass(frozen=True)
class Method:
    """A method of the comparison.

    Attributes
    ----------
    label : str
    make : callable, optional
        Makes a classifier from a seed; None: co-embedding, whose weight is chosen by cross-validation.
    column : str
        What the paper calls it.
    """

    label: str
    make: Callable[[int], Any] | None
    column: str


def _rival(scheme: str, base: str, column: str) -> Method:
    return Method(f"{scheme.upper()}, {base.upper()}", partial(_made, scheme, base), column)


def _made(scheme: str, base: str, seed: int) -> Any:
    return rival(scheme, base, seed)


METHODS: dict[str, Method] = {
    "ila": Method("ILA", None, "ILA"),
    "br-svm": _rival("br", "svm", "BR(SMO)"),
    "br-lr": _rival("br", "lr", "BR(LOG)"),
    "clr-svm": _rival("clr", "svm", "CLR(SMO)"),
    "clr-lr": _rival("clr", "lr", "CLR(LOG)"),
    "cc-svm": _rival("cc", "svm", "CC(SMO)"),
    "cc-lr": _rival("cc", "lr", "CC(LOG)"),
}

# Mirzazadeh et al. (2015), Tables 2 to 4, in the order of MEASURES.
PRINTED: dict[str, dict[str, tuple[float, float, float]]] = {
    "emotions": {
        "BR(SMO)": (80.9, 66.3, 62.3),
        "BR(LOG)": (77.1, 63.2, 62.0),
        "CLR(SMO)": (79.9, 70.1, 69.0),
        "CLR(LOG)": (76.0, 64.5, 63.8),
        "CC(SMO)": (79.0, 65.9, 64.3),
        "CC(LOG)": (75.2, 60.3, 59.3),
        "ILA": (80.2, 65.9, 64.4),
    },
    "scene": {
        "BR(SMO)": (88.7, 66.8, 67.6),
        "BR(LOG)": (81.9, 49.5, 50.6),
        "CLR(SMO)": (89.7, 72.2, 73.3),
        "CLR(LOG)": (85.7, 61.8, 63.3),
        "CC(SMO)": (88.9, 68.8, 69.8),
        "CC(LOG)": (80.9, 50.1, 50.9),
        "ILA": (88.0, 65.9, 66.8),
    },
}
