"""Engines run the steps: a reference in plain Python, and compiled twins of it."""

from rmopt.engines.base import Engine
from rmopt.engines.bilinear import BatchEngine, BilinearEngine, SymmetricBilinearEngine
from rmopt.engines.choose import ENGINES, choose_coordinate_engine, choose_engine, register
from rmopt.engines.coordinate import GREEDY, CoordinateDescentEngine, CoordinateReference
from rmopt.engines.deferred import DeferredEngine
from rmopt.engines.gauged import GaugedEngine, GaugedState
from rmopt.engines.log_det import LogDetEngine
from rmopt.engines.reference import ReferenceEngine
from rmopt.renamed import former_names

__all__ = [
    "ENGINES", "GREEDY", "BatchEngine", "BilinearEngine", "CoordinateDescentEngine", "CoordinateReference",
    "DeferredEngine", "Engine", "GaugedEngine", "GaugedState", "LogDetEngine", "ReferenceEngine",
    "SymmetricBilinearEngine", "choose_coordinate_engine", "choose_engine", "register",
]  # fmt: skip

__getattr__ = former_names(
    __name__,
    BlockEngine="CoordinateDescentEngine",
    BlockedEngine="DeferredEngine",
    CoordinateEngine="CoordinateReference",
    choose_block_engine="choose_coordinate_engine",
    Certificate="rmopt.solvers:Certificate",
    GossipEngine="rmopt.solvers:GossipEngine",
    GossipState="rmopt.solvers:GossipState",
    MPIWorld="rmopt.solvers:MPIWorld",
    OneProcess="rmopt.solvers:OneProcess",
    RankEngine="rmopt.solvers:RankEngine",
    RankState="rmopt.solvers:RankState",
    World="rmopt.solvers:World",
    certify="rmopt.solvers:certify",
)
