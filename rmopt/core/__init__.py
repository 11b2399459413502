"""The words of rmopt: manifold, retraction, ambient operator, cost, problem, errors."""

from rmopt.core.ambient import Actions, Ambient, Factored, Sum
from rmopt.core.cost import BlockCost, Cost, FiniteSum, HasHessianAction, HasProximalStep
from rmopt.core.errors import (
    DivergedError,
    InvalidInputError,
    MissingCapabilityError,
    RmoptError,
    StorageError,
)
from rmopt.core.low_rank import LowRankPoint, LowRankTangent
from rmopt.core.manifold import FixedRankManifold, HasBlocks, HasHessian, HasStepBound, Manifold
from rmopt.core.problem import Problem
from rmopt.core.psd import PSDPoint, PSDTangent
from rmopt.core.retraction import HasVelocity, Retraction
from rmopt.core.row_column import RowColumn

__all__ = [
    "Actions",
    "Ambient",
    "BlockCost",
    "Cost",
    "DivergedError",
    "Factored",
    "FiniteSum",
    "FixedRankManifold",
    "HasBlocks",
    "HasHessian",
    "HasHessianAction",
    "HasProximalStep",
    "HasStepBound",
    "HasVelocity",
    "InvalidInputError",
    "LowRankPoint",
    "LowRankTangent",
    "Manifold",
    "MissingCapabilityError",
    "PSDPoint",
    "PSDTangent",
    "Problem",
    "Retraction",
    "RmoptError",
    "RowColumn",
    "StorageError",
    "Sum",
]
