"""Subspace learning: gossip between agents, matrix completion and multitask features, with rivals.

Mishra, Kasai, Jawanpuria and Saroop 2019, with the batch methods and rivals that they compare to.
"""

from problems.subspace.alt_min import alt_min
from problems.subspace.completion import MatrixCompletion
from problems.subspace.entries import EntryKFold, entries
from problems.subspace.estimators import RCGMC, RTRMC, GossipMatrixCompletion
from problems.subspace.lmafit import DLMaFit
from problems.subspace.multitask import MultitaskFeatures
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
