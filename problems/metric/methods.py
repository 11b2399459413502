"""The methods that the metric experiment compares, with the parameters that cross-validation chooses among."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from typing import Any

from problems.metric.base import MahalanobisMetric
from problems.metric.comet import CometMetric
from problems.metric.rivals import (
    OUTSIDE,
    BoostMetric,
    EuclideanMetric,
    HdslMetric,
    LegoMetric,
    outside_metric,
)

Parameters = dict[str, Any]


@dataclass(frozen=True)
class Method:
    """A method of the comparison.

    Attributes
    ----------
    label : str
    make : callable
        Makes the estimator from parameters.
    defaults : dict
        The parameters without cross-validation.
    grid : list of dict
        What cross-validation chooses among; empty: nothing.
    from_classes : bool
        Learns from the classes instead of the triplets.
    rank_by : {"similarity", "distance"}
        What its cost speaks of: qᵀWp, or (q − p)ᵀW(q − p).
    """

    label: str
    make: Callable[..., MahalanobisMetric]
    defaults: Parameters
    grid: list[Parameters]
    from_classes: bool = False
    rank_by: str = "distance"


def _grid(**choices: tuple[Any, ...]) -> list[Parameters]:
    return [dict(zip(choices, values, strict=True)) for values in product(*choices.values())]


COMET_GRID = _grid(alpha=(3e-5, 1e-4, 3e-4), beta=(1e-6, 1e-5, 1e-4))

METHODS: dict[str, Method] = {
    "euclidean": Method("Euclidean", lambda random_state=None: EuclideanMetric(), {}, [], from_classes=True),
    "comet": Method(
        "COMET",
        CometMetric,
        {"alpha": 1e-4, "beta": 1e-5},
        COMET_GRID,
        rank_by="similarity",
    ),
    "comet-hinge": Method(
        "COMET, hinge",
        lambda **given: CometMetric(loss="hinge", **given),
        {"alpha": 1e-4, "beta": 1e-5},
        COMET_GRID,
        rank_by="similarity",
    ),
    "comet-sparse": Method(
        "COMET, sparse",
        CometMetric,
        {"alpha": 1e-4, "beta": 1e-5, "sparsity": 1e-5},
        _grid(alpha=(1e-4,), beta=(1e-5,), sparsity=(1e-6, 1e-5, 1e-4)),
        rank_by="similarity",
    ),
    "lego": Method("LEGO", LegoMetric, {"step_size": 1.0}, _grid(step_size=(0.1, 1.0, 10.0, 100.0, 1000.0))),
    "boost": Method("BoostMetric", BoostMetric, {"n_learners": 100}, _grid(n_learners=(25, 50, 100, 200))),
    "hdsl": Method(
        "HDSL", HdslMetric, {"scale": 1000.0}, _grid(scale=(100.0, 1000.0, 10_000.0)), rank_by="similarity"
    ),
} | {
    name: Method(name.upper(), lambda name=name, **given: outside_metric(name, **given), {}, [], True)
    for name in OUTSIDE
}

# What is compared unless asked otherwise.
USUAL = ("euclidean", "comet", "comet-hinge", "lego", "boost", "hdsl")
