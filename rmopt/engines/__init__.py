"""Engines run the steps: a reference in plain Python, and compiled twins of it."""

from rmopt.engines.base import Engine
from rmopt.engines.batch import BatchEngine
from rmopt.engines.bilinear import BilinearEngine, SymmetricBilinearEngine
from rmopt.engines.blocked import BlockedEngine
from rmopt.engines.choose import ENGINES, choose_block_engine, choose_engine
from rmopt.engines.coordinate import GREEDY, BlockEngine, CoordinateEngine
from rmopt.engines.gauged import GaugedEngine, GaugedState
from rmopt.engines.log_det import LogDetEngine
from rmopt.engines.reference import ReferenceEngine

__all__ = [
    "ENGINES",
    "GREEDY",
    "BatchEngine",
    "BilinearEngine",
    "BlockEngine",
    "BlockedEngine",
    "CoordinateEngine",
    "Engine",
    "GaugedEngine",
    "GaugedState",
    "LogDetEngine",
    "ReferenceEngine",
    "SymmetricBilinearEngine",
    "choose_block_engine",
    "choose_engine",
]
