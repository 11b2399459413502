"""Subspace learning: gossip between agents, matrix completion and multitask features, with rivals.

Mishra, Kasai, Jawanpuria and Saroop 2019, with the batch methods and rivals that they compare to.
"""

from problems.subspace.baselines import DLMaFit, alt_min
from problems.subspace.cost import MatrixCompletion, MultitaskFeatures
from problems.subspace.estimators import RCGMC, RTRMC, EntryKFold, GossipMatrixCompletion, entries
from problems.subspace.multitask_estimator import MultitaskSubspace
from problems.subspace.training import Gossiped, GossipPlan, gossip

__all__ = [
    "RCGMC",
    "RTRMC",
    "DLMaFit",
    "EntryKFold",
    "GossipMatrixCompletion",
    "GossipPlan",
    "Gossiped",
    "MatrixCompletion",
    "MultitaskFeatures",
    "MultitaskSubspace",
    "alt_min",
    "entries",
    "gossip",
]
