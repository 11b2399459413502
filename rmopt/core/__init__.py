"""The basic classes of rmopt: manifold, retraction, ambient operator, cost, problem, errors."""

from rmopt.core.ambient import Actions, Factored
from rmopt.core.cost import AgentSum, BlockCost, Cost, FiniteSum
from rmopt.core.low_rank import LowRankPoint, PSDPoint
from rmopt.core.manifold import FixedRankManifold, Manifold
from rmopt.core.points import in_precision
from rmopt.core.problem import Problem
from rmopt.core.product import BlockDiagonal, Parts
from rmopt.core.retraction import Retraction
from rmopt.core.tensors import TrainPoint, TuckerPoint
from rmopt.errors import DivergedError, InvalidInputError, MissingCapabilityError, RmoptError, StorageError

__all__ = [
    "Actions", "AgentSum", "BlockCost", "BlockDiagonal", "Cost", "DivergedError", "Factored", "FiniteSum",
    "FixedRankManifold", "InvalidInputError", "LowRankPoint",
    "Manifold", "MissingCapabilityError", "PSDPoint", "Parts", "Problem", "Retraction", "RmoptError",
    "StorageError", "TrainPoint", "TuckerPoint", "in_precision",
]  # fmt: skip
