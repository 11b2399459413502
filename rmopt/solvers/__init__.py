"""Solvers and what they are made of: step sizes, samplers, recorder, checkpoints."""

from rmopt.solvers.base import Result, Solver
from rmopt.solvers.checkpoint import Checkpoint, SharedCheckpoint
from rmopt.solvers.coordinate_descent import CoordinateDescent
from rmopt.solvers.gossip import Gossip, Matchings
from rmopt.solvers.identification import ManifoldIdentification
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
    "SGD",
    "Checkpoint",
    "Constant",
    "CoordinateDescent",
    "Cyclic",
    "ExactLineSearch",
    "FractionOfBound",
    "FromDraw",
    "FromFunction",
    "GaussSouthwell",
    "Gossip",
    "InverseSqrt",
    "InverseTime",
    "ManifoldIdentification",
    "Matchings",
    "Recorder",
    "Result",
    "Sampler",
    "SharedCheckpoint",
    "ShuffledEpochs",
    "Solver",
    "StepSize",
    "Uniform",
]
