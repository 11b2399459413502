"""The words of rmopt: manifold, retraction, ambient operator, cost, problem, errors."""

from rmopt.core.ambient import Actions, Ambient, Factored, Sum
from rmopt.core.cost import Cost, FiniteSum, HasHessianAction
from rmopt.core.errors import (
    DivergedError,
    InvalidInputError,
    MissingCapabilityError,
    RmoptError,
    StorageError,
)
from rmopt.core.low_rank import LowRankPoint, LowRankTangent
from rmopt.core.manifold import FixedRankManifold, HasHessian, Manifold
from rmopt.core.problem import Problem
from rmopt.core.psd import PSDPoint, PSDTangent
from rmopt.core.retraction import Retraction

__all__ = [
    "Actions",
    "Ambient",
    "Cost",
    "DivergedError",
    "Factored",
    "FiniteSum",
    "FixedRankManifold",
    "HasHessian",
    "HasHessianAction",
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
    "StorageError",
    "Sum",
]
