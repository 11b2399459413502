"""Optimisers of PyTorch for low-rank layers and for parameters on manifolds, loaded when one is first used.

Experimental: they may change, and were measured on CPUs only.
"""

import importlib
from typing import TYPE_CHECKING, Any

from rmopt.errors import MissingCapabilityError

if TYPE_CHECKING:
    from rmopt.torch.low_rank import LowRankLinear, LowRankMuon, LowRankSGD, low_rank_pairs
    from rmopt.torch.riemannian import RiemannianAdam, RiemannianSGD

_HOMES = dict.fromkeys(["LowRankLinear", "LowRankMuon", "LowRankSGD", "low_rank_pairs"], "low_rank")
_HOMES |= dict.fromkeys(["RiemannianAdam", "RiemannianSGD"], "riemannian")

__all__ = [
    "LowRankLinear", "LowRankMuon", "LowRankSGD", "RiemannianAdam", "RiemannianSGD", "low_rank_pairs",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'rmopt.torch' has no attribute {name!r}")
    try:
        return getattr(importlib.import_module(f"rmopt.torch.{_HOMES[name]}"), name)
    except ModuleNotFoundError as error:
        raise MissingCapabilityError(
            f'rmopt.torch.{name} needs PyTorch; pip install "rmopt[torch]".'
        ) from error


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
