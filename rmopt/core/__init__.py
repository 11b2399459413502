"""The words of rmopt: manifold, retraction, ambient operator, cost, problem, errors."""

from rmopt.core.ambient import Actions, Ambient, Factored, Operator, RowColumn, Sum
from rmopt.core.cost import (
    AgentSum,
    BlockCost,
    Cost,
    FiniteSum,
    HasHessianAction,
    HasPreconditioner,
    HasProximalStep,
    HasRowGradient,
    WholeCost,
)
from rmopt.core.low_rank import LowRankPoint, LowRankTangent
from rmopt.core.manifold import FixedRankManifold, HasBlocks, HasHessian, HasStepBound, Manifold
from rmopt.core.points import in_precision
from rmopt.core.problem import Problem
from rmopt.core.product import BlockDiagonal, Parts
from rmopt.core.psd import PSDPoint, PSDTangent
from rmopt.core.retraction import HasVelocity, Retraction
from rmopt.errors import DivergedError, InvalidInputError, MissingCapabilityError, RmoptError, StorageError

__all__ = [
    "Actions", "AgentSum", "Ambient", "BlockCost", "BlockDiagonal", "Cost", "DivergedError", "Factored",
    "FiniteSum", "FixedRankManifold", "HasBlocks", "HasHessian", "HasHessianAction", "HasPreconditioner",
    "HasProximalStep", "HasRowGradient", "HasStepBound", "HasVelocity", "InvalidInputError", "LowRankPoint",
    "LowRankTangent", "Manifold", "MissingCapabilityError", "Operator", "PSDPoint", "PSDTangent", "Parts",
    "Problem", "Retraction", "RmoptError", "RowColumn", "StorageError", "Sum", "WholeCost", "in_precision",
]  # fmt: skip
