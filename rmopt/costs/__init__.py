"""Costs to minimise: scalar losses, sums over bilinear scores, convex functions of embeddings."""

from rmopt.costs.automatic import AutomaticCost, autograd_cost, jax_cost, torch_cost
from rmopt.costs.bilinear import BilinearSum, TripletSum
from rmopt.costs.constraints import ConstrainedProblem, NonsmoothProblem
from rmopt.costs.convex import ConvexCost, Trace
from rmopt.costs.embedded import EmbeddedCost, Grid, Pairs, PairwiseDistance
from rmopt.costs.entries import EntrySum
from rmopt.costs.gossip import GossipCost
from rmopt.costs.graph import Graph, as_graph
from rmopt.costs.log_det import LogDetTriplet
from rmopt.costs.losses import LOSSES, Loss, absolute, hinge, logistic, squared, squared_hinge
from rmopt.costs.on_factors import OnFactors
from rmopt.costs.proximable import L1, Box, GroupL2, NonNegative, Nuclear, Proximable
from rmopt.costs.residuals import ResidualSum, autograd_residuals, jax_residuals, torch_residuals
from rmopt.costs.value_only import ValueCost

__all__ = [
    "L1", "LOSSES", "AutomaticCost", "BilinearSum", "Box", "ConstrainedProblem", "ConvexCost", "EmbeddedCost",
    "EntrySum", "GossipCost", "Graph", "Grid", "GroupL2", "LogDetTriplet", "Loss", "NonNegative",
    "NonsmoothProblem", "Nuclear", "OnFactors", "Pairs", "PairwiseDistance", "Proximable", "ResidualSum", "Trace",
    "TripletSum", "ValueCost", "absolute", "as_graph", "autograd_cost", "autograd_residuals", "hinge", "jax_cost",
    "jax_residuals", "logistic", "squared", "squared_hinge", "torch_cost", "torch_residuals",
]  # fmt: skip
