"""Metric learning: COMET (Atzmon et al. 2015) and its baselines.

==============================================  ====================================================
Paper                                           Code
==============================================  ====================================================
loss, barrier and penalty                       `rmopt.costs.LogDetTriplet`
steps on one row and column                     `CometMetric`, `rmopt.solvers.CoordinateDescent`
LEGO, BoostMetric, HDSL                         `LegoMetric`, `BoostMetric`, `HdslMetric`
figures                                         ``rmopt run metric``
==============================================  ====================================================

Atzmon, Shalit and Chechik, Metric learning using block coordinate descent, draft (2015).
"""

from problems.metric.baselines import BoostMetric, EuclideanMetric, HdslMetric, LegoMetric
from problems.metric.estimators import CometMetric

__all__ = ["BoostMetric", "CometMetric", "EuclideanMetric", "HdslMetric", "LegoMetric"]
