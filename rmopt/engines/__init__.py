"""Engines, which do the steps: a reference in plain Python, and compiled versions of it."""

from rmopt.engines.base import Engine
from rmopt.engines.bilinear import BilinearEngine
from rmopt.engines.choose import register
from rmopt.engines.gauged import GaugedEngine, GaugedState
from rmopt.engines.reference import ReferenceEngine

__all__ = ["BilinearEngine", "Engine", "GaugedEngine", "GaugedState", "ReferenceEngine", "register"]
