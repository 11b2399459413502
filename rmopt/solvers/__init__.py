"""Solvers and their parts: directions, step lengths, stopping criteria, samplers, checkpoints."""

from rmopt.core.world import MPIWorld, World
from rmopt.costs.gossip import TreeSum
from rmopt.costs.shards import Shards
from rmopt.engines.reference import StepRule
from rmopt.engines.rules import SRG, SVRG, AdaGrad, Adam, Momentum
from rmopt.solvers.batch.augmented_lagrangian import AugmentedLagrangian
from rmopt.solvers.batch.curvature import hessian_matrix, hessian_spectrum, tangent_basis
from rmopt.solvers.batch.derivative_free import NelderMead, ParticleSwarm
from rmopt.solvers.batch.descent import GradientSolver
from rmopt.solvers.batch.directions import Conjugate, Direction, Move, QuasiNewton, SteepestDescent
from rmopt.solvers.batch.line_search import LBFGS, ConjugateGradient, GradientDescent, LineSearchSolver
from rmopt.solvers.batch.many import ManyResult, solve_many
from rmopt.solvers.batch.proximal_gradient import ProximalGradient
from rmopt.solvers.batch.step_lengths import Backtracking, BarzilaiBorwein, Exact, StepLength, StrongWolfe
from rmopt.solvers.batch.trust_regions import AdaptiveCubics, Hybrid, LevenbergMarquardt, TrustRegions
from rmopt.solvers.certified.certificate import Certificate
from rmopt.solvers.certified.rank_incremental import CertifiedResult, RankIncremental
from rmopt.solvers.certified.relaxation import certify
from rmopt.solvers.gossip.gossip import Gossip, Matchings
from rmopt.solvers.gossip.parallel import Parallel
from rmopt.solvers.recorder import Recorder
from rmopt.solvers.result import Result
from rmopt.solvers.run import Solver
from rmopt.solvers.save import Checkpoint
from rmopt.solvers.stochastic.coordinate_descent import CoordinateDescent
from rmopt.solvers.stochastic.identification import ManifoldIdentification
from rmopt.solvers.stochastic.samplers import Cyclic, FromDraw, Sampler, ShuffledEpochs, Uniform
from rmopt.solvers.stochastic.scaled_sgd import ScaledSGD
from rmopt.solvers.stochastic.scheduled import ScheduledSolver
from rmopt.solvers.stochastic.sgd import SGD
from rmopt.solvers.stochastic.step_sizes import (
    Constant,
    Cosine,
    ExactLineSearch,
    FractionOfBound,
    FromFunction,
    InverseSqrt,
    InverseTime,
    StepSize,
)
from rmopt.solvers.stop import (
    Below,
    Converged,
    GradientNorm,
    MaxEvaluations,
    MaxSeconds,
    MaxSteps,
    NotFinite,
    SmallChange,
    SmallStep,
    Stagnation,
    Stop,
)

__all__ = [
    "LBFGS", "SGD", "SRG", "SVRG", "AdaGrad", "Adam", "AdaptiveCubics", "AugmentedLagrangian", "Backtracking",
    "BarzilaiBorwein", "Below", "Certificate", "CertifiedResult", "Checkpoint", "Conjugate", "ConjugateGradient",
    "Constant", "Converged", "CoordinateDescent", "Cosine", "Cyclic", "Direction", "Exact", "ExactLineSearch",
    "FractionOfBound", "FromDraw", "FromFunction", "Gossip", "GradientDescent", "GradientNorm", "GradientSolver",
    "Hybrid", "InverseSqrt", "InverseTime", "LevenbergMarquardt", "LineSearchSolver", "MPIWorld",
    "ManifoldIdentification", "ManyResult", "Matchings", "MaxEvaluations", "MaxSeconds", "MaxSteps", "Momentum",
    "Move", "NelderMead", "NotFinite", "Parallel", "ParticleSwarm", "ProximalGradient", "QuasiNewton",
    "RankIncremental", "Recorder", "Result", "Sampler", "ScaledSGD", "ScheduledSolver", "Shards",
    "ShuffledEpochs", "SmallChange", "SmallStep", "Solver", "Stagnation", "SteepestDescent", "StepLength",
    "StepRule", "StepSize", "Stop", "StrongWolfe", "TreeSum", "TrustRegions", "Uniform", "World", "certify",
    "hessian_matrix", "hessian_spectrum", "solve_many", "tangent_basis",
]  # fmt: skip
