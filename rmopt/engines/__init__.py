"""Engines run the steps: a reference in plain Python, and compiled twins of it."""

from rmopt.engines.base import Engine
from rmopt.engines.choose import ENGINES, choose_engine
from rmopt.engines.compiled import CompiledEngine
from rmopt.engines.reference import ReferenceEngine

__all__ = ["ENGINES", "CompiledEngine", "Engine", "ReferenceEngine", "choose_engine"]
