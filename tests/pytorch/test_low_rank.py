"""Optimisers of low-rank pairs: beside rmopt's own manifold, in every gauge, and as optimisers of PyTorch."""

import copy
from typing import Any

import numpy as np
import pytest

from rmopt.errors import InvalidInputError
from rmopt.manifolds import FixedRankEmbedded
from rmopt.retractions import MetricProjection, PowerIteration

torch = pytest.importorskip("torch", reason="PyTorch is not installed.")

from rmopt.torch import LowRankLinear, LowRankMuon, LowRankSGD, low_rank_pairs  # noqa: E402

N, M, K = 30, 40, 4
RNG = np.random.default_rng(0)
MANIFOLD = FixedRankEmbedded(N, M, K)
START = MANIFOLD.random_point(RNG)
TARGET = torch.tensor(MANIFOLD.to_dense(START) + 0.3 * RNG.standard_normal((N, M)))
GAUGE = RNG.standard_normal((K, K)) + 2.0 * np.eye(K)
MOVES = {"metric-projection": MetricProjection(), "power": PowerIteration()}
KINDS = [LowRankSGD, LowRankMuon]


def pair(gauge: Any = 1.0, dtype: Any = torch.float64) -> Any:
    """Return factors of the start."""
    c = gauge * np.eye(K) if isinstance(gauge, float) else gauge
    B, A = START.U @ START.S @ c, np.linalg.solve(c, START.V.T)
    return tuple(torch.nn.Parameter(torch.tensor(X).to(dtype)) for X in (B, A))


def loss_of(pairs: Any) -> Any:
    return sum(0.5 * (B @ A - TARGET.to(B.dtype)).square().sum() for B, A in pairs)


def walked(optimizer: Any, pairs: Any, steps: int = 20) -> list[Any]:
    """Return the products of the first pair on its way towards the target."""
    path = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss_of(pairs).backward()
        optimizer.step()
        path.append((pairs[0][0] @ pairs[0][1]).detach().clone())
    return path


def apart(one: list[Any], other: list[Any]) -> float:
    return max(((x - y).norm() / y.norm()).item() for x, y in zip(one, other, strict=True))


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("move", MOVES)
def test_sgd_is_that_of_the_manifold(move: str, momentum: float) -> None:
    manifold, point, mean, lr = MANIFOLD.using(MOVES[move]), START, None, 0.02
    pairs = [pair(GAUGE)]
    for W in walked(LowRankSGD(pairs, lr, momentum, retraction=move), pairs):
        gradient = manifold.projection(point, manifold.to_dense(point) - TARGET.numpy())
        mean = gradient if mean is None else momentum * mean + gradient
        before, point = point, manifold.retraction(point, -lr * mean)
        mean = manifold.transport(before, point, mean)
        assert np.abs(W.numpy() - manifold.to_dense(point)).max() <= 1e-13


@pytest.mark.parametrize("gauge", [GAUGE, 1e3, 1e-3])
@pytest.mark.parametrize("kind", KINDS)
def test_paths_do_not_depend_on_the_gauge(kind: Any, gauge: Any) -> None:
    one, other, plain = [pair()], [pair(gauge)], [pair(gauge)]
    path = walked(kind(one, lr=0.02, momentum=0.9), one, 30)
    assert apart(walked(kind(other, lr=0.02, momentum=0.9), other, 30), path) <= 1e-12
    adam = torch.optim.Adam([p for both in plain for p in both], lr=0.02)
    assert apart(walked(adam, plain, 30), path) > 1e-2


@pytest.mark.parametrize("condition", [1.0, 100.0])
def test_a_known_optimum_is_found_whatever_its_condition(condition: float) -> None:
    g = torch.Generator().manual_seed(0)
    U, V = (torch.linalg.qr(torch.randn(n, 5, generator=g, dtype=torch.float64)).Q for n in (60, 80))
    truth, X = (
        U * torch.logspace(0, -np.log10(condition), 5) @ V.T,
        torch.randn(400, 80, generator=g).double(),
    )
    B, A = (torch.nn.Parameter(0.1 * torch.randn(*s, generator=g).double()) for s in ((60, 5), (5, 80)))
    optimizer = LowRankSGD([(B, A)], lr=0.1, momentum=0.7)
    for _ in range(170):
        optimizer.zero_grad()
        (((B @ A - truth) @ X.T).square().sum() / 800).backward()
        optimizer.step()
    assert (B @ A - truth).norm() <= 1e-4 * truth.norm()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("lost", ["B", "A", "one", "equal", "wide"])
def test_what_lost_rank_stays_finite_and_comes_back(kind: Any, lost: str) -> None:
    B, A = pair()
    if lost == "wide":
        B, A = (torch.nn.Parameter(torch.randn(*s, dtype=torch.float64)) for s in ((N, 35), (35, M)))
    for X in (B, A) if lost in ("one", "equal") else (A,) if lost == "A" else (B,) if lost == "B" else ():
        rows = X.data if X is A else X.data.T
        rows[slice(None) if lost in "BA" else 2] = rows[1].clone() if lost == "equal" else 0.0
    first = loss_of([(B, A)]).item()
    optimizer = kind([(B, A)], lr=0.01, momentum=0.9)
    before = [X.detach().clone() for X in (B, A)]
    for X in (B, A):
        X.grad = torch.zeros_like(X)
    optimizer.step()
    assert apart([B @ A + 1.0], [before[0] @ before[1] + 1.0]) <= 1e-13
    path = walked(optimizer, [(B, A)], 40)
    assert torch.isfinite(torch.stack(path)).all()
    assert loss_of([(B, A)]) < 0.95 * first
    if lost in ("B", "A"):
        assert torch.linalg.matrix_rank(path[-1], rtol=1e-6) == K


class Adapter(torch.nn.Module):
    """A layer with adapters whose parameters have the names that PEFT gives."""

    def __init__(self, *adapters: str, kernel: Any = None) -> None:
        super().__init__()
        linear = (
            torch.nn.Linear if kernel is None else lambda n, m, bias: torch.nn.Conv2d(n, m, kernel, bias=bias)
        )
        # In another order than that of A and B.
        self.lora_B = torch.nn.ModuleDict({name: linear(3, 6, bias=False) for name in adapters})
        self.lora_magnitude_vector = torch.nn.Parameter(torch.ones(6))
        self.lora_A = torch.nn.ModuleDict({name: linear(8, 3, bias=False) for name in adapters})


def test_pairs_are_found_by_name() -> None:
    model = torch.nn.ModuleDict({"q": Adapter("default", "second"), "v": LowRankLinear(8, 6, 2)})
    q, v = model["q"], model["v"]
    pairs = low_rank_pairs(model)
    wanted = [(q.lora_B[name].weight, q.lora_A[name].weight) for name in ("default", "second")]
    wanted.append((v.lora_B, v.lora_A))
    assert all(
        x is y for one, other in zip(pairs, wanted, strict=True) for x, y in zip(one, other, strict=True)
    )
    assert [id(p) for p in pairs.others] == [id(q.lora_magnitude_vector), id(v.bias)]
    model["q"].requires_grad_(False)
    assert len(low_rank_pairs(model)) == 1
    q.lora_B["second"].weight.requires_grad_(True)
    with pytest.raises(InvalidInputError, match=r"q\.\(lora_B, lora_A\)\.second\.weight is frozen in its A;"):
        low_rank_pairs(model)
    del q.lora_A["second"]
    with pytest.raises(
        InvalidInputError, match=r"q\.lora_B\.second\.weight has no partner q\.lora_A\.second"
    ):
        low_rank_pairs(model)
    with pytest.raises(InvalidInputError, match="matrices B"):
        low_rank_pairs(Adapter("default", kernel=1))
    with pytest.raises(
        InvalidInputError, match=r"'lora_A' or 'lora_B' in its name; name the two factors by a="
    ):
        low_rank_pairs(torch.nn.Linear(2, 2))


def test_half_a_pair_is_refused() -> None:
    B, A = pair()
    with pytest.raises(InvalidInputError, match="matrices B"):
        LowRankSGD([(A, B.T)])
    optimizer = LowRankSGD([(B, A)])
    B.grad = torch.zeros_like(B)
    with pytest.raises(
        InvalidInputError, match=r"\(30, 4\) and \(4, 40\) has a gradient by one factor alone"
    ):
        optimizer.step()
    A.requires_grad_(False)
    with pytest.raises(InvalidInputError, match="is frozen in its A"):
        LowRankMuon([(B, A)])


def network(kind: Any, dtype: Any = torch.float32) -> tuple[Any, Any, Any]:
    """Return a model with two pairs of one shape and one of another, its optimiser and a schedule."""
    torch.manual_seed(0)
    layers = [LowRankLinear(8, 8, 2), LowRankLinear(8, 8, 2), LowRankLinear(8, 5, 3), torch.nn.Linear(5, 3)]
    model = torch.nn.Sequential(*layers).to(dtype)
    optimizer = kind(low_rank_pairs(model), lr=0.01, momentum=0.9, others={"lr": 0.01})
    return model, optimizer, torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 20)


def trained(model: Any, optimizer: Any, schedule: Any, steps: range, scaler: Any = None) -> None:
    for step in steps:
        x = torch.randn(16, 8, generator=torch.Generator().manual_seed(step)).to(model[0].bias.dtype)
        optimizer.zero_grad(set_to_none=step % 2 == 0)
        loss = (model(x).float() - x[:, :3].float()).square().mean()
        (loss if scaler is None else scaler.scale(loss)).backward()
        optimizer.step() if scaler is None else scaler.step(optimizer)
        if scaler is not None:
            scaler.update()
        schedule.step()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("kind", KINDS)
def test_a_saved_state_goes_on_to_the_same_bits(kind: Any, dtype: Any, tmp_path: Any) -> None:
    whole, half, again = (network(kind, dtype) for _ in range(3))
    trained(*whole, range(12))
    trained(*half, range(6))
    torch.save([one.state_dict() for one in half], tmp_path / "state.pt")
    for one, state in zip(again, torch.load(tmp_path / "state.pt"), strict=True):
        one.load_state_dict(state)
    trained(*again, range(6, 12))
    twin, optimizer, schedule = copy.deepcopy(half)
    trained(twin, optimizer, schedule, range(6, 12))
    for p, q, r in zip(whole[0].parameters(), again[0].parameters(), twin.parameters(), strict=True):
        assert torch.equal(p, q)
        assert torch.equal(p, r)
    own = sum(x.numel() for state in half[1].state.values() for x in state.values() if "exp_avg" not in state)
    assert own < (1.3 if dtype is torch.float32 else 2.3) * sum(p.numel() for p in half[0].parameters())


@pytest.mark.parametrize("kind", KINDS)
def test_the_customs_of_torch(kind: Any) -> None:
    model, optimizer, schedule = network(kind)
    scaled, other, later = network(kind)
    trained(model, optimizer, schedule, range(5))
    trained(scaled, other, later, range(5), torch.amp.GradScaler("cpu", init_scale=2.0**10))
    assert apart(list(scaled.parameters()), list(model.parameters())) < 1e-4
    # Groups, closures and the other sign; a pair without gradients stays.
    one, two, idle = pair(), pair(GAUGE), pair()
    kept = [p.detach().clone() for p in idle]
    together = kind([{"pairs": [one, idle]}], lr=0.02, maximize=True)
    together.add_param_group({"pairs": [two], "lr": 0.01})
    with pytest.raises(InvalidInputError, match="others= has no params"):
        together.add_param_group({"lr": 0.1})

    def closure() -> Any:
        together.zero_grad()
        loss = loss_of([one, two])
        (-loss).backward()
        return loss

    first = together.step(closure)
    assert loss_of([one, two]) < first
    assert all(torch.equal(p, q) for p, q in zip(idle, kept, strict=True))
    alone = pair()
    walked(kind([alone], lr=0.02), [alone], 1)
    assert apart([alone[0] @ alone[1]], [one[0] @ one[1]]) < 1e-13
    with pytest.raises(InvalidInputError, match=r"lr is -1\.0; it must not be negative"):
        kind([one], lr=-1.0)


@pytest.mark.parametrize("kind", KINDS)
def test_what_others_write_is_taken_up(kind: Any) -> None:
    moved, fresh = pair(), pair(GAUGE)
    optimizer = kind([moved], lr=0.01, momentum=0.9)
    walked(optimizer, [moved], 3)
    for p, q in zip(moved, fresh, strict=True):
        p.data.copy_(q.data)
    path = walked(optimizer, [moved], 3)
    assert apart(path, walked(kind([fresh], lr=0.01, momentum=0.9), [fresh], 3)) < 1e-12


@pytest.mark.parametrize("kind", KINDS)
def test_small_steps_do_not_vanish_in_bfloat16(kind: Any) -> None:
    coarse, fine, single = pair(dtype=torch.bfloat16), pair(), pair(dtype=torch.float32)
    for p, q in zip(fine, coarse, strict=True):
        p.data.copy_(q.data)
    ends = [walked(kind([both], lr=2e-4), [both], 200)[-1].double() for both in (coarse, fine)]
    start = torch.tensor(MANIFOLD.to_dense(START))
    assert (ends[0] - ends[1]).norm() < 0.05 * (ends[1] - start).norm()
    exact = [pair()]
    assert apart(walked(kind([single], lr=0.01), [single], 50), [
        W.float() for W in walked(kind(exact, lr=0.01), exact, 50)
    ]) < 1e-4  # fmt: skip


def test_weight_decay_shrinks_the_matrix() -> None:
    for kind in KINDS:
        B, A = pair(GAUGE)
        before = (B @ A).detach()
        optimizer = kind([(B, A)], lr=0.1, weight_decay=0.5)
        B.grad, A.grad = torch.zeros_like(B), torch.zeros_like(A)
        optimizer.step()
        assert apart([B @ A], [0.95 * before]) < 1e-13
