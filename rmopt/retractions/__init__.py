"""Ways to move from a point along a tangent vector."""

from rmopt.retractions.fixed_rank import FIXED_RANK_RETRACTIONS, MetricProjection, Orthographic, SecondOrder

__all__ = ["FIXED_RANK_RETRACTIONS", "MetricProjection", "Orthographic", "SecondOrder"]
