"""Engines run the steps: a reference in plain Python, and compiled twins of it."""

from rmopt.engines.base import Engine
from rmopt.engines.bilinear import BatchEngine, BilinearEngine, SymmetricBilinearEngine
from rmopt.engines.choose import ENGINES, choose_coordinate_engine, choose_engine, register
from rmopt.engines.coordinate import GREEDY, CoordinateDescentEngine, CoordinateReference
from rmopt.engines.deferred import DeferredEngine
from rmopt.engines.gauged import GaugedEngine, GaugedState
from rmopt.engines.log_det import LogDetEngine
from rmopt.engines.reference import ReferenceEngine

__all__ = [
    "ENGINES", "GREEDY", "BatchEngine", "BilinearEngine", "CoordinateDescentEngine", "CoordinateReference",
    "DeferredEngine", "Engine", "GaugedEngine", "GaugedState", "LogDetEngine", "ReferenceEngine",
    "SymmetricBilinearEngine", "choose_coordinate_engine", "choose_engine", "register",
]  # fmt: skip
