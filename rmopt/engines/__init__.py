"""Engines run the steps: a reference in plain Python, and compiled twins of it."""

from rmopt.engines.base import Engine
from rmopt.engines.bilinear import BatchEngine, BilinearEngine, SymmetricBilinearEngine
from rmopt.engines.blocked import BlockedEngine
from rmopt.engines.certificate import Certificate, certify
from rmopt.engines.choose import ENGINES, choose_block_engine, choose_engine, register
from rmopt.engines.coordinate import GREEDY, BlockEngine, CoordinateEngine
from rmopt.engines.gauged import GaugedEngine, GaugedState
from rmopt.engines.gossip import GossipEngine, GossipState
from rmopt.engines.log_det import LogDetEngine
from rmopt.engines.rank_incremental import RankEngine, RankState
from rmopt.engines.reference import ReferenceEngine
from rmopt.engines.world import MPIWorld, OneProcess, World

__all__ = [
    "ENGINES",
    "GREEDY",
    "BatchEngine",
    "BilinearEngine",
    "BlockEngine",
    "BlockedEngine",
    "Certificate",
    "CoordinateEngine",
    "Engine",
    "GaugedEngine",
    "GaugedState",
    "GossipEngine",
    "GossipState",
    "LogDetEngine",
    "MPIWorld",
    "OneProcess",
    "RankEngine",
    "RankState",
    "ReferenceEngine",
    "SymmetricBilinearEngine",
    "World",
    "certify",
    "choose_block_engine",
    "choose_engine",
    "register",
]
