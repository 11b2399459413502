"""Metric learning: COMET (Atzmon et al. 2015) and its baselines."""

from problems.metric.baselines import BoostMetric, EuclideanMetric, HdslMetric, LegoMetric
from problems.metric.estimators import CometMetric

__all__ = ["BoostMetric", "CometMetric", "EuclideanMetric", "HdslMetric", "LegoMetric"]
