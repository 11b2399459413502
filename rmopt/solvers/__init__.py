"""Solvers and what they are made of: step sizes, samplers, recorder, checkpoints."""

from rmopt.solvers.base import Result, Solver
from rmopt.solvers.checkpoint import Checkpoint, SharedCheckpoint
from rmopt.solvers.coordinate_descent import CoordinateDescent
from rmopt.solvers.factor import LBFGS, FactorSolver
from rmopt.solvers.gossip import Gossip, Matchings
from rmopt.solvers.growth import Exponential, Growth, Linear
from rmopt.solvers.identification import ManifoldIdentification
from rmopt.solvers.newton import Hybrid, NewtonCG
from rmopt.solvers.rank_incremental import CertifiedResult, RankIncremental
from rmopt.solvers.recorder import Recorder
from rmopt.solvers.samplers import Cyclic, FromDraw, GaussSouthwell, Sampler, ShuffledEpochs, Uniform
from rmopt.solvers.sgd import SGD
from rmopt.solvers.step_sizes import (
    Constant,
    ExactLineSearch,
    FractionOfBound,
    FromFunction,
    InverseSqrt,
    InverseTime,
    StepSize,
)

__all__ = [
    "LBFGS",
    "SGD",
    "CertifiedResult",
    "Checkpoint",
    "Constant",
    "CoordinateDescent",
    "Cyclic",
    "ExactLineSearch",
    "Exponential",
    "FactorSolver",
    "FractionOfBound",
    "FromDraw",
    "FromFunction",
    "GaussSouthwell",
    "Gossip",
    "Growth",
    "Hybrid",
    "InverseSqrt",
    "InverseTime",
    "Linear",
    "ManifoldIdentification",
    "Matchings",
    "NewtonCG",
    "RankIncremental",
    "Recorder",
    "Result",
    "Sampler",
    "SharedCheckpoint",
    "ShuffledEpochs",
    "Solver",
    "StepSize",
    "Uniform",
]
