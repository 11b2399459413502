"""Metric learning: COMET (Atzmon et al. 2015) and its rivals."""

from problems.metric.comet import CometMetric
from problems.metric.rivals import BoostMetric, EuclideanMetric, HdslMetric, LegoMetric

__all__ = ["BoostMetric", "CometMetric", "EuclideanMetric", "HdslMetric", "LegoMetric"]
