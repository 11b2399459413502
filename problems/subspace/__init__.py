"""Subspace learning: gossip between agents, matrix completion and multitask features, with baselines.

Mishra, Kasai, Jawanpuria and Saroop 2019, with the batch methods and baselines that they compare to.
"""

from problems.subspace.als import BiasedALS
from problems.subspace.baselines import DLMaFit, alt_min
from problems.subspace.bayesian import BayesianCompletion
from problems.subspace.cost import MatrixCompletion, MultitaskFeatures
from problems.subspace.estimators import RCGMC, RTRMC, GossipMatrixCompletion
from problems.subspace.implicit import ImplicitALS
from problems.subspace.multitask_estimator import MultitaskSubspace
from problems.subspace.page import ItemSearch
from problems.subspace.pairs import EntryKFold, TimeSplit, entries
from problems.subspace.scaled import ScaledSGDCompletion
from problems.subspace.training import GossipPlan, agree, gossip

__all__ = [
    "RCGMC", "RTRMC", "BayesianCompletion", "BiasedALS", "DLMaFit", "EntryKFold", "GossipMatrixCompletion",
    "GossipPlan", "ImplicitALS", "ItemSearch", "MatrixCompletion", "MultitaskFeatures", "MultitaskSubspace",
    "ScaledSGDCompletion", "TimeSplit", "agree", "alt_min", "entries", "gossip",
]  # fmt: skip
