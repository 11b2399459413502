"""SGD and Adam on manifolds: the steps of numpy's arrays, those of torch where space is flat, and what is refused."""

import copy
import io
import pickle
from typing import Any

import numpy as np
import pytest
from tabled import each_row

from rmopt import namespaces as ns
from rmopt.errors import InvalidInputError
from rmopt.manifolds import (
    Grassmann,
    Hyperbolic,
    Oblique,
    Positive,
    Power,
    Product,
    Simplex,
    Sphere,
    Stiefel,
    SymmetricPositiveDefinite,
    Unitary,
)

torch = pytest.importorskip("torch")
pytest.importorskip("array_api_compat")
from rmopt.torch import RiemannianAdam, RiemannianSGD  # noqa: E402

MANIFOLDS = [
    Stiefel(6, 3), Stiefel(6, 3, metric="canonical"), Stiefel(5, 2, k=2, field="complex"), Unitary(3),
    Stiefel(6, 3).using("cayley", "isometric"), Grassmann(6, 2).using("qr", "manifold"), Sphere(5), Oblique(4, 3),
    Hyperbolic(3), Hyperbolic(2, 4), Simplex(4), Positive(3, 2), SymmetricPositiveDefinite(3),
    SymmetricPositiveDefinite(3, metric="bures-wasserstein").using(transport="manifold"), Power(Sphere(3), 2),
]  # fmt: skip
SGD, ADAM = (RiemannianSGD, {"lr": 0.05}), (RiemannianAdam, {"lr": 0.05})
OPTIONS = [
    SGD, (RiemannianSGD, {"lr": 0.02, "momentum": 0.9, "dampening": 0.1, "maximize": True}),
    (RiemannianSGD, {"lr": 0.02, "momentum": 0.9, "nesterov": True, "weight_decay": 0.1}),
    ADAM, (RiemannianAdam, {"lr": 0.05, "amsgrad": True, "weight_decay": 0.1, "betas": (0.8, 0.9)}),
]  # fmt: skip


def by_numpy(M: Any, x: Any, gradients: Any, kind: Any, options: dict[str, Any]) -> Any:
    """Yield the points of the same method, written down for numpy."""
    o = {"weight_decay": 0.0, "momentum": 0.0, "dampening": 0.0, "betas": (0.9, 0.999)} | options
    lr, decay, (slow, slower) = o["lr"], o["weight_decay"], o["betas"]
    m, v, most = None, 0.0, 0.0
    for step, gradient in enumerate(gradients, 1):
        G = -gradient if o.get("maximize") else gradient
        if kind is RiemannianSGD:
            g = M.euclidean_to_riemannian_gradient(x, G + decay * x)
            m = g if m is None else o["momentum"] * m + (1.0 - o["dampening"]) * g
            d = g if not o["momentum"] else g + o["momentum"] * m if o.get("nesterov") else m
        else:
            g = M.euclidean_to_riemannian_gradient(x, G)
            m = (1.0 - slow) * g + (0.0 if m is None else slow * m)
            v = (1.0 - slower) * M.inner_product(x, g, g) + slower * v
            most = max(most, v) if o.get("amsgrad") else v
            d = m / (1.0 - slow**step) / ((most / (1.0 - slower**step)) ** 0.5 + 1e-8)
            d = d + decay * M.euclidean_to_riemannian_gradient(x, x)
        y = M.retraction(x, d * -lr)
        x, m = y, M.default_transport(M, x, y, m)
        yield x


@each_row(("manifold", "options"), [(M, one) for M in MANIFOLDS for one in OPTIONS])
def test_steps_are_those_of_numpy(manifold: Any, options: Any) -> None:
    """Of one point, and of many as one parameter."""
    (kind, how), M, rng = options, manifold, np.random.default_rng(0)
    starts = [M.random_point(rng) for _ in range(3)]
    gradients = [[M.drawn(rng) for _ in starts] for _ in range(8)]
    paths = [by_numpy(M, *pair, kind, how) for pair in zip(starts, zip(*gradients, strict=True), strict=True)]
    many = "isometric" not in str(M.default_transport).lower()
    p = torch.nn.Parameter(torch.tensor(np.array(starts) if many else starts[0]))
    optimizer = kind([{"params": [p], "manifold": M}], **how)
    for step in gradients:
        p.grad = torch.as_tensor(np.array(step) if many else step[0])
        optimizer.step()
        wanted = np.array([next(path) for path in paths])
        np.testing.assert_allclose(ns.to_numpy(p), wanted if many else wanted[0], rtol=0, atol=1e-12)


def made(options: Any, manifold: Any, width: int = 64) -> tuple[Any, Any, Any]:
    """Return an optimiser of a point and of a flat tensor, and both parameters."""
    (kind, how), like = options, torch.zeros(1, dtype=getattr(torch, f"float{width}"))
    point = torch.nn.Parameter(manifold.random_point(0, like=like))
    rest = torch.nn.Parameter(torch.linspace(0.1, 1.0, 4, dtype=like.dtype))
    return kind([{"params": [point], "manifold": manifold}, {"params": [rest]}], **how), point, rest


def run(optimizer: Any, parameters: Any, steps: int, seed: int = 0) -> None:
    drawn = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        for p in parameters:
            p.grad = torch.randn(p.shape, generator=drawn, dtype=p.dtype)
        optimizer.step()


@each_row("options", OPTIONS)
def test_flat_groups_are_moved_by_torch(options: Any) -> None:
    kind, how = options
    own = torch.optim.SGD if kind is RiemannianSGD else torch.optim.AdamW
    ours, _, rest = made(options, Sphere(3))
    twin = torch.nn.Parameter(rest.detach().clone())
    theirs = own([twin], **({"weight_decay": 0.0} | how))
    rates = [torch.optim.lr_scheduler.ExponentialLR(one, 0.9) for one in (ours, theirs)]
    for seed in range(10):
        run(ours, [rest], 1, seed)
        run(theirs, [twin], 1, seed)
        for rate in rates:
            rate.step()
    assert torch.equal(rest, twin)


@each_row(("options", "way"), [(one, way) for one in OPTIONS for way in ("save", "pickle", "copy")])
def test_a_run_goes_on_to_the_bit(options: Any, way: str) -> None:
    """From a state of numbers alone, which torch.load takes, from a pickle, or from a copy."""
    M = SymmetricPositiveDefinite(3)
    optimizer, *parameters = made(options, M)
    run(optimizer, parameters, 3)
    if way == "save":
        with io.BytesIO() as file:
            torch.save([optimizer.state_dict(), [p.detach() for p in parameters]], file)
            file.seek(0)
            state, values = torch.load(file, weights_only=True)
        again, *others = made(options, M)
        again.load_state_dict(state)
        for p, value in zip(others, values, strict=True):
            p.data.copy_(value)
    else:
        again = copy.deepcopy(optimizer) if way == "copy" else pickle.loads(pickle.dumps(optimizer))
        others = [p for group in again.param_groups for p in group["params"]]
    for each in ((optimizer, parameters), (again, others)):
        run(*each, 5, seed=1)
    assert all(map(torch.equal, parameters, others))


def identity(*shape: int, **how: Any) -> Any:
    return torch.nn.Parameter(torch.eye(*shape, **({"dtype": torch.float64} | how)))


FRAMES = Stiefel(5, 3)
REFUSED = [
    (FRAMES, lambda: identity(3, 5), "parameter 1 of group 0 cannot move on Stiefel.*shape \\(5, 3\\), not"),
    (FRAMES, lambda: identity(5, 3) * 2.0, "orthonormal.*manifold.random_point\\(like=parameter\\)"),
    (FRAMES, lambda: torch.stack([identity(5, 3).detach(), 2.0 * identity(5, 3)]), "orthonormal"),
    (FRAMES, lambda: identity(5, 3) * float("nan"), "NaN"),
    (FRAMES, lambda: identity(5, 3, dtype=torch.complex128), "complex"),
    (FRAMES, lambda: identity(5, 3, dtype=torch.bfloat16), "bfloat16.*float32.*autocast"),
    (SymmetricPositiveDefinite(2), lambda: torch.zeros(2, 2), "not positive definite"),
    (Product([Sphere(3), Sphere(2)]), lambda: torch.eye(3)[0], "Product.*its own group"),
    ("stiefel", lambda: identity(5, 3), "a manifold of arrays"),
]


@each_row(("manifold", "start", "words"), REFUSED)
def test_what_is_no_point_is_refused(manifold: Any, start: Any, words: str) -> None:
    good = identity(5, 3) if manifold is FRAMES else torch.nn.Parameter(start().detach())
    with pytest.raises(InvalidInputError, match=words.replace("1 of", "[01] of")):
        RiemannianSGD([{"params": [good, torch.nn.Parameter(start().detach())], "manifold": manifold}])
    flat = torch.nn.Parameter(torch.ones(3))
    optimizer = RiemannianAdam([("bias", flat)])
    with pytest.raises(InvalidInputError, match="weight cannot"):
        optimizer.add_param_group({"params": [("weight", start().detach())], "manifold": manifold})
    # The refused group is not among them.
    flat.grad = torch.ones(3)
    optimizer.step()


@each_row("options", [*OPTIONS, (RiemannianSGD, {"lr": 0.0, "momentum": 0.9}), (RiemannianAdam, {"lr": 0.0})])
def test_nothing_moves_without_gradient_or_rate(options: Any) -> None:
    """Distances of a point to itself, lengths of zero: none of them gives NaN."""
    options = options[0], options[1] | {"weight_decay": 0.0}
    for M in MANIFOLDS:
        optimizer, p, _ = made(options, M)
        start = p.detach().clone()
        optimizer.step()
        assert torch.equal(p, start)
        for _ in range(3):
            p.grad = torch.ones_like(p) * (options[1]["lr"] == 0.0)
            optimizer.step()
        torch.testing.assert_close(p.detach(), start, rtol=0.0, atol=1e-14)
    with pytest.raises(ValueError, match="more than one"):
        optimizer.add_param_group({"params": [p], "manifold": M})


@each_row("manifold", MANIFOLDS)
def test_gradients_of_nan_are_refused_or_stay_visible(manifold: Any) -> None:
    optimizer, p, _ = made(ADAM, manifold)
    p.grad = torch.full_like(p, float("nan"))
    refused = ""
    try:
        optimizer.step()
    except InvalidInputError as error:
        refused = str(error)
    on_it = manifold.check_point(p.detach()) is None
    assert on_it == ("holds NaN or infinity" in refused)


@each_row("manifold", MANIFOLDS)
def test_points_of_single_precision_stay_on_the_manifold(manifold: Any) -> None:
    """No steps that bring them back are needed."""
    for options in (SGD, ADAM):
        optimizer, p, _ = made(options, manifold, 32)
        goal = torch.as_tensor(manifold.random_point(1)).to(p.dtype)
        for _ in range(100):
            p.grad = p.detach() - goal
            optimizer.step()
        assert manifold.check_point(p.detach()) is None


# Manifolds with the retraction and the transport that geoopt has, and its name of them.
SHARED = [
    ("Sphere", Sphere(5)), ("EuclideanStiefel", Stiefel(6, 3).using("qr")), ("Lorentz", Hyperbolic(4)),
]  # fmt: skip


@each_row(("name", "manifold"), SHARED)
def test_paths_are_those_of_geoopt(name: str, manifold: Any) -> None:
    geoopt = pytest.importorskip("geoopt")
    for kind, options in ((RiemannianSGD, {"lr": 0.1}), (RiemannianAdam, {"lr": 0.1, "amsgrad": True})):
        ours, p, _ = made((kind, options), manifold)
        q = geoopt.ManifoldParameter(p.detach().clone(), manifold=getattr(geoopt, name)())
        theirs = getattr(geoopt.optim, kind.__name__)([q], **options)
        goal = torch.as_tensor(manifold.random_point(1))
        for _ in range(30):
            p.grad, q.grad = p.detach() - goal, q.detach() - goal
            ours.step()
            theirs.step()
        torch.testing.assert_close(p.detach(), q.detach().as_subclass(torch.Tensor), rtol=0.0, atol=1e-10)
