"""The methods that the co-embedding experiment compares, and what the paper printed for them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from problems.coembedding.rivals import searched

MEASURES = ("hamming", "micro_f1", "macro_f1")


@dataclass(frozen=True)
class Method:
    """A method of the comparison.

    Attributes
    ----------
    label : str
    make : callable, optional
        ``make(seed, counts, folds, scoring)`` returns a classifier that is cross-validated as `searched` says; None:
        co-embedding, whose weight is.
    column : str
        What the paper calls it.
    """

    label: str
    make: Callable[..., Any] | None
    column: str


def _rival(scheme: str, base: str, column: str) -> Method:
    return Method(f"{scheme.upper()}, {base.upper()}", partial(searched, scheme, base), column)


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
    "yeast": {
        "BR(SMO)": (79.8, 63.2, 32.9),
        "BR(LOG)": (77.0, 62.0, 41.9),
        "CLR(SMO)": (77.2, 65.0, 40.3),
        "CLR(LOG)": (75.3, 61.9, 42.6),
        "CC(SMO)": (78.9, 63.7, 35.1),
        "CC(LOG)": (76.0, 60.0, 40.4),
        "ILA": (78.9, 62.4, 37.8),
    },
    "mediamill": {
        "BR(SMO)": (90.3, 55.4, 10.0),
        "BR(LOG)": (87.4, 55.1, 29.9),
        "CLR(SMO)": (87.8, 59.7, 21.4),
        "CLR(LOG)": (87.7, 58.7, 31.7),
        "CC(SMO)": (89.9, 50.7, 8.9),
        "CC(LOG)": (86.3, 53.1, 29.5),
        "ILA": (90.4, 58.0, 16.2),
    },
    "corel5k": {
        "BR(SMO)": (89.8, 21.9, 17.8),
        "BR(LOG)": (88.5, 17.4, 11.6),
        "CLR(SMO)": (88.8, 27.6, 21.4),
        "CLR(LOG)": (88.0, 26.3, 22.0),
        "CC(SMO)": (89.6, 21.9, 17.6),
        "CC(LOG)": (83.1, 16.7, 14.4),
        "ILA": (87.8, 21.9, 17.8),
    },
}
