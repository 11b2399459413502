"""Costs to minimise: scalar losses and sums over bilinear scores."""

from rmopt.costs.bilinear import Bilinear, BilinearSum, TripletSum
from rmopt.costs.gossip import GossipCost
from rmopt.costs.log_det import LogDetTriplet
from rmopt.costs.losses import LOSSES, Loss, absolute, hinge, logistic, squared, squared_hinge

__all__ = [
    "LOSSES",
    "Bilinear",
    "BilinearSum",
    "GossipCost",
    "LogDetTriplet",
    "Loss",
    "TripletSum",
    "absolute",
    "hinge",
    "logistic",
    "squared",
    "squared_hinge",
]
