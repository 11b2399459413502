"""Subspace learning: gossip between agents, matrix completion and multitask features, with baselines.

==============================================  ====================================================
Paper                                           Code
==============================================  ====================================================
completion, equations 9 to 12                   `MatrixCompletion`, `GossipMatrixCompletion`
multitask features, equations 13 to 16          `MultitaskFeatures`, `MultitaskSubspace`, `alt_min`
agents, graphs, step sizes                      `gossip`, `GossipPlan`, `rmopt.solvers.Gossip`
batch methods, D-LMaFit                         `RTRMC`, `RCGMC`, `DLMaFit`
its experiments                                 ``rmopt run completion``, ``rmopt run multitask``
other papers                                    `BiasedALS`, `ImplicitALS`, `ScaledSGDCompletion`,
                                                `BayesianCompletion`
==============================================  ====================================================

Mishra, Kasai, Jawanpuria and Saroop, A Riemannian gossip approach to subspace learning on Grassmann manifold,
Machine Learning 108 (2019), https://doi.org/10.1007/s10994-018-05775-x.
"""

from problems.subspace.als import BiasedALS, ImplicitALS, ScaledSGDCompletion
from problems.subspace.baselines import DLMaFit, alt_min
from problems.subspace.bayesian import BayesianCompletion
from problems.subspace.completer import EntryKFold, entries
from problems.subspace.cost import MatrixCompletion, MultitaskFeatures
from problems.subspace.estimators import RCGMC, RTRMC, GossipMatrixCompletion
from problems.subspace.multitask_estimator import MultitaskSubspace
from problems.subspace.page import ItemSearch
from problems.subspace.training import GossipPlan, agree, gossip

__all__ = [
    "RCGMC", "RTRMC", "BayesianCompletion", "BiasedALS", "DLMaFit", "EntryKFold", "GossipMatrixCompletion",
    "GossipPlan", "ImplicitALS", "ItemSearch", "MatrixCompletion", "MultitaskFeatures", "MultitaskSubspace",
    "ScaledSGDCompletion", "agree", "alt_min", "entries", "gossip",
]  # fmt: skip
