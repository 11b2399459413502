"""RiemannianSGD and RiemannianAdam of rmopt.torch beside those of geoopt, in turns, on one processor.

Times are medians of a step in CPU seconds, gradients given. Losses are those of equal rates from equal starts.
"""

import time
from typing import Any

import numpy as np
import pytest

from rmopt.manifolds import Hyperbolic, Power, Sphere, Stiefel

torch, geoopt = (pytest.importorskip(name) for name in ("torch", "geoopt"))
from rmopt.torch import RiemannianAdam, RiemannianSGD  # noqa: E402

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::DeprecationWarning")]

KINDS = {"SGD": (RiemannianSGD, {"lr": 1e-3, "momentum": 0.9}), "Adam": (RiemannianAdam, {"lr": 1e-2})}
HYPERBOLOID = Hyperbolic(10).using("orthographic", "projection")
FRAMES = {"euclidean": geoopt.EuclideanStiefel(), "canonical": geoopt.CanonicalStiefel()}
# The manifold here and there, and how many points.
STEPS = [
    *((f"Stiefel({n}, {p}), {metric}", Stiefel(n, p, metric=metric), FRAMES[metric], None)
      for n, p in ((8, 4), (64, 64), (256, 64), (256, 256), (512, 512)) for metric in FRAMES),
    *((f"Sphere(11), {count:,} points", Sphere(11), geoopt.Sphere(), count) for count in (100, 10_000)),
    *((f"Hyperbolic(10), {count:,} points", Hyperbolic(10), geoopt.Lorentz(), count) for count in (100, 10_000)),
    *((f"same, orthographic and projected, {count:,} points", HYPERBOLOID, geoopt.Lorentz(), count)
      for count in (100, 10_000)),
    *((f"same, orthographic and projected, beside the ball, {count:,} points", HYPERBOLOID, geoopt.PoincareBall(),
       count) for count in (100, 10_000)),
]  # fmt: skip


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)


def pair(kind: str, ours: Any, theirs: Any, start: Any, **options: Any) -> list[tuple[Any, Any]]:
    """Return an optimiser of each library, with its parameter."""
    own, how = KINDS[kind]
    other = ours.to_poincare(start) if isinstance(theirs, geoopt.PoincareBall) else start
    p = torch.nn.Parameter(start.clone())
    q = geoopt.ManifoldParameter(other.clone(), manifold=theirs)
    made = own([{"params": [p], "manifold": ours}], **(how | options))
    return [(made, p), (getattr(geoopt.optim, own.__name__)([q], **(how | options)), q)]


def steps(kind: str) -> list[dict[str, Any]]:
    rows = []
    for name, ours, theirs, count in STEPS:
        M = ours if count is None else Power(ours, count)
        start = M.random_point(0, like=torch.empty(0))
        gradient = 0.1 * torch.randn(start.shape)
        both, seconds = pair(kind, ours, theirs, start), ([], [])
        for _ in range(300 if start.numel() < 20_000 else 60):
            # There and back, for points stay where they are.
            gradient = -gradient
            for (optimizer, p), taken in zip(both, seconds, strict=True):
                p.grad = gradient[..., -p.shape[-1] :].clone()
                begun = time.process_time()
                optimizer.step()
                taken.append(time.process_time() - begun)
        here, there = (1e6 * float(np.median(taken)) for taken in seconds)
        rows.append(
            {"points of": name, "rmopt, µs": here, "geoopt, µs": there, "geoopt / rmopt": there / here}
        )
    return rows


@pytest.mark.parametrize("kind", KINDS)
def test_steps(measured: Any, kind: str) -> None:
    """A step of one parameter of single precision, by momentum 0.9 or by Adam."""
    rows = measured(steps, kind)
    assert np.median([row["geoopt / rmopt"] for row in rows]) >= 1.0


def procrustes(metric: str) -> list[Any]:
    """Return where a frame is wanted that solves a least-squares problem whose least value is 0."""
    rng, M = np.random.default_rng(0), Stiefel(40, 10, metric=metric)
    A, goal = torch.tensor(rng.standard_normal((80, 40))), torch.tensor(M.random_point(rng))

    def loss(X: Any) -> Any:
        return ((A @ (X - goal)) ** 2).mean()

    start = torch.tensor(M.random_point(rng))
    return [M, FRAMES[metric], start, loss, loss]


def tree(how: tuple[str, ...], ball: bool) -> list[Any]:
    """Return where a tree is embedded: neighbours are to be nearer than other nodes (Nickel and Kiela 2018)."""
    M, child, nodes = Hyperbolic(5), torch.arange(1, 121), torch.eye(121, dtype=torch.bool)
    parent = (child - 1) // 3
    near = nodes.clone()
    near[child, parent] = near[parent, child] = True

    def ranked(coshes: Any) -> Any:
        apart = torch.acosh(coshes.clamp(min=1.0 + 1e-9))
        others = torch.logsumexp(torch.where(near, -torch.inf, -apart), 1)
        return (apart[child, parent] + torch.logaddexp(-apart[child, parent], others[child])).mean()

    def on_sheet(x: Any) -> Any:
        return ranked(x[:, :1] @ x[:, :1].T - x[:, 1:] @ x[:, 1:].T)

    def in_ball(y: Any) -> Any:
        squares = (y**2).sum(1, keepdim=True)
        gaps = squares + squares.T - 2.0 * y @ y.T
        return ranked(1.0 + 2.0 * gaps / ((1.0 - squares) * (1.0 - squares.T)))

    start = M.lifted(0.1 * torch.randn(121, 6, dtype=torch.float64))
    theirs = geoopt.PoincareBall() if ball else geoopt.Lorentz()
    return [M.using(*how), theirs, start, on_sheet, in_ball if ball else on_sheet]


TASKS = {
    "Stiefel(40, 10), euclidean": (procrustes, "euclidean", 0.03),
    "Stiefel(40, 10), canonical": (procrustes, "canonical", 0.03),
    "tree in Hyperbolic(5)": (tree, (), False, 0.03),
    "the same, orthographic and projected": (tree, ("orthographic", "projection"), False, 0.03),
    "the same, beside the ball": (tree, ("orthographic", "projection"), True, 0.03),
}


def tasks() -> list[dict[str, Any]]:
    rows = []
    for name, (make, *how, rate) in TASKS.items():
        ours, theirs, start, *wanted = make(*how)
        both, seconds, values = pair("Adam", ours, theirs, start, lr=rate), [0.0, 0.0], [0.0, 0.0]
        for step in range(1000):
            for one, ((optimizer, p), loss) in enumerate(zip(both, wanted, strict=True)):
                optimizer.param_groups[0]["lr"] = rate * (1.0 - step / 1000)
                optimizer.zero_grad()
                value = loss(p)
                value.backward()
                begun = time.process_time()
                optimizer.step()
                seconds[one] += time.process_time() - begun
                values[one] = float(value)
        row: dict[str, Any] = {"task": name}
        for library, value, taken in zip(("rmopt", "geoopt"), values, seconds, strict=True):
            row |= {f"{library}, loss": value, f"{library}, a step, µs": 1e3 * taken}
        rows.append(row)
    return rows


def test_tasks(measured: Any) -> None:
    """Whole tasks by RiemannianAdam, 1,000 steps of rates that fall from 0.03 to 0, in double precision."""
    for row in measured(tasks):
        assert row["rmopt, loss"] <= 1.02 * row["geoopt, loss"] + 1e-3, row
