"""Optimisers of PyTorch for parameters on manifolds; PyTorch is loaded when one is first used."""

import importlib
from typing import TYPE_CHECKING, Any

from rmopt.errors import MissingCapabilityError

if TYPE_CHECKING:
    from rmopt.torch.riemannian import RiemannianAdam, RiemannianSGD

_HOMES = {"RiemannianAdam": "riemannian", "RiemannianSGD": "riemannian"}

__all__ = ["RiemannianAdam", "RiemannianSGD"]


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
