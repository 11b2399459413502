"""A manifold whose methods compute with arrays of another library, and take and give those of numpy: for the laws."""

import copy
import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

from rmopt import namespaces as ns
from rmopt.core import Manifold, Retraction
from rmopt.core.ambient import dense
from rmopt.core.points import arrays_of, plain, rebuilt

METHODS = (
    "inner_product", "norm", "projection", "to_tangent_space", "euclidean_to_riemannian_gradient", "transport",
    "euclidean_to_riemannian_hessian", "random_tangent_vector", "zero_vector", "check_point", "exp", "log", "dist",
    "pair_mean",
)  # fmt: skip
LIBRARIES = ("numpy", "array_api_strict", "torch", "jax.numpy")


def array_of(library: str) -> Any:
    """Return an array of a library, or skip the test where it is missing; tensors are on RMOPT_TEST_DEVICE."""
    pytest.importorskip(library.partition(".")[0])
    if library == "torch":
        return import_module(library).zeros(1, device=os.environ.get("RMOPT_TEST_DEVICE", "cpu"))
    if library == "jax.numpy":
        import_module("jax").config.update("jax_enable_x64", True)
    return import_module(library).zeros(1)


class Far(str):
    """The CPU by the name of a GPU."""

    def __str__(self) -> str:
        return "cuda:0"


@contextmanager
def far_away() -> Iterator[None]:
    """Let tensors seem to be on a GPU: `to_numpy` alone brings them to numpy, and new ones must name their device."""
    if not find_spec("torch"):
        yield
        return
    torch: Any = import_module("torch")
    home, device, inside = ns.to_numpy, ns.device_of, torch.Tensor.__array__

    def refused(*_: Any, **__: Any) -> None:
        raise TypeError("a tensor on a GPU is no array of numpy")

    def brought_home(array: Any) -> Any:
        with patch.object(torch.Tensor, "__array__", inside):
            return home(array)

    def named(array: Any) -> Any:
        return Far("cpu") if isinstance(array, torch.Tensor) and array.is_cpu else device(array)

    with (
        patch.object(torch.Tensor, "__array__", refused), patch.object(ns, "to_numpy", brought_home),
        patch.object(ns, "device_of", named), torch.device("meta"),
    ):  # fmt: skip
        yield


def in_library(thing: Any, like: Any) -> Any:
    """Return a point or vector with its arrays in the library of another one, and anything else as it is."""
    if isinstance(thing, float | int | np.random.Generator):
        return thing
    return rebuilt(thing, [ns.asarray(array, like) for array in arrays_of(thing)])


class Through(Retraction):
    """A retraction that computes with arrays of the manifold's library."""

    def __init__(self, inner: Retraction) -> None:
        self.inner, self.order, self.name = inner, inner.order, inner.name

    def __call__(self, manifold: Any, point: Any, tangent: Any, t: float = 1.0) -> Any:
        there = self.inner(manifold.inner, *(in_library(one, manifold.like) for one in (point, tangent)), t)
        return brought(there, manifold.like)

    def reach(self, manifold: Any, point: Any, tangent: Any) -> float:
        return self.inner.reach(manifold.inner, point, tangent)


def brought(found: Any, like: Any) -> Any:
    """Return what a method gave as it is in numpy; its arrays must be of the library."""
    if found is None or isinstance(found, str | float | int):
        return found
    assert all(isinstance(array, type(like)) for array in arrays_of(found)), [
        type(one) for one in arrays_of(found)
    ]
    return plain(found)


def through(manifold: Manifold, library: str) -> Any:
    """Return a manifold that computes in a library."""
    like = array_of(library)

    def delegating(name: str) -> Any:
        def method(self: Any, *arguments: Any) -> Any:
            return brought(getattr(manifold, name)(*(in_library(one, like) for one in arguments)), like)

        return method

    def seen(name: str) -> Any:
        def method(self: Any, *arguments: Any) -> Any:
            found = getattr(manifold, name)(*(in_library(one, like) for one in arguments))
            return ns.to_numpy(dense(found))

        return method

    geodesics = ("exp", "log", "dist")
    known = [
        name
        for name in METHODS
        if hasattr(manifold, name) and (name not in geodesics or manifold.knows(name))
    ]
    methods = {name: delegating(name) for name in known}
    methods |= {name: seen(name) for name in ("embedding", "embed_point")}
    if hasattr(manifold, "with_rank"):
        methods["with_rank"] = lambda self, k: through(manifold.with_rank(k), library)
    methods["has_ambient_metric"] = getattr(manifold, "has_ambient_metric", False)
    twin: Any = copy.copy(manifold)
    twin.__class__ = type(f"{type(manifold).__name__}In", (type(manifold),), methods)
    twin.inner, twin.like = manifold, like
    twin.default_retraction = Through(manifold.default_retraction)
    twin.retractions = {name: Through(one) for name, one in manifold.retractions.items()}
    return twin
