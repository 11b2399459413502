"""Metric learning: COMET (Atzmon et al. 2015) and its rivals."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from problems.metric.comet import CometMetric
    from problems.metric.rivals import BoostMetric, EuclideanMetric, HdslMetric, LegoMetric

__all__ = ["BoostMetric", "CometMetric", "EuclideanMetric", "HdslMetric", "LegoMetric"]

# scikit-learn and numba take long to import; only what is used is loaded.
_HOMES = {
    "BoostMetric": "rivals",
    "CometMetric": "comet",
    "EuclideanMetric": "rivals",
    "HdslMetric": "rivals",
    "LegoMetric": "rivals",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'problems.metric' has no attribute {name!r}")
    return getattr(importlib.import_module(f"problems.metric.{_HOMES[name]}"), name)
