"""Low-rank layers and adapters of a transformer, in PyTorch: rmopt.torch beside AdamW and Muon on the factors.

Run with ``pytest -o addopts= -s tests/benchmarks/test_torch_low_rank.py``, half an hour on one core. A larger network
on a GPU: ``python tests/benchmarks/test_torch_low_rank.py FILE``; ``--tiny`` tries that anywhere.
"""

import argparse
import json
import math
import re
import sysconfig
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402

from rmopt.torch import LowRankLinear, LowRankMuon, LowRankSGD, low_rank_pairs  # noqa: E402

Row = dict[str, Any]
LETTERS = "\n" + "".join(map(chr, range(32, 127)))
# Of the parameters that are in no pair.
OTHERS = {"lr": 2e-3, "weight_decay": 0.0}
METHODS = ("AdamW", "Muon", "LowRankMuon")
# Rates are chosen with this seed, on another part of the text than is reported.
CHOICE, SEEDS = 100, (1, 2, 3)


@dataclass(frozen=True)
class Setting:
    """A network, its batches and how long it is trained."""

    width: int = 128
    layers: int = 4
    heads: int = 4
    context: int = 64
    batch: int = 8
    steps: int = 200
    rank: int = 32
    device: str = "cpu"
    held_out: int = 400_000
    libraries: tuple[str, ...] = ("scipy", "numpy", "sklearn")
    base_steps: int = 1500


class Attention(nn.Module):
    """A block of a transformer; `layer` makes its linear maps."""

    def __init__(self, setting: Setting, layer: Callable[[int, int], nn.Module]) -> None:
        super().__init__()
        d, self.heads = setting.width, setting.heads
        self.first, self.second = nn.LayerNorm(d), nn.LayerNorm(d)
        self.qkv, self.out = layer(d, 3 * d), layer(d, d)
        self.up, self.down = layer(d, 4 * d), layer(4 * d, d)

    def forward(self, x: Any) -> Any:
        b, t, d = x.shape
        q, k, v = self.qkv(self.first(x)).view(b, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        seen = (
            functional.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, t, d)
        )
        x = x + 0.35 * self.out(seen)
        return x + 0.35 * self.down(functional.gelu(self.up(self.second(x))))


class Transformer(nn.Module):
    """Predicts the next character."""

    def __init__(self, setting: Setting, layer: Callable[[int, int], nn.Module]) -> None:
        super().__init__()
        d = setting.width
        self.letters, self.places = (
            nn.Embedding(len(LETTERS), d),
            nn.Parameter(torch.randn(setting.context, d) * 0.02),
        )
        self.letters.weight.data.mul_(0.1)
        self.blocks = nn.Sequential(*(Attention(setting, layer) for _ in range(setting.layers)))
        self.last, self.head = nn.LayerNorm(d), nn.Linear(d, len(LETTERS), bias=False)

    def forward(self, x: Any) -> Any:
        return self.head(self.last(self.blocks(self.letters(x) + self.places)))


def dense(n: int, m: int) -> nn.Module:
    layer = nn.Linear(n, m, bias=False)
    nn.init.normal_(layer.weight, std=n**-0.5)
    return layer


class Adapted(nn.Module):
    """A frozen layer and a LoRA adapter beside it, twice as strong, which begins at zero."""

    def __init__(self, layer: nn.Linear, rank: int, scale: float) -> None:
        super().__init__()
        self.layer = layer.requires_grad_(False)
        bound = scale * layer.in_features**-0.5
        self.lora_A = nn.Parameter(torch.empty(rank, layer.in_features).uniform_(-bound, bound))
        self.lora_B = nn.Parameter(torch.zeros(layer.out_features, rank))

    def forward(self, x: Any) -> Any:
        return self.layer(x) + 2.0 * functional.linear(functional.linear(x, self.lora_A), self.lora_B)


@cache
def text(kind: str, setting: Setting) -> Any:
    """Return characters by number: docstrings of installed libraries, or the source of Python's own."""
    if kind == "code":
        files = sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))
        found = "".join(path.read_text(errors="ignore") for path in files)
    else:
        found = ""
        for library in setting.libraries:
            for path in sorted((Path(sysconfig.get_path("purelib")) / library).rglob("*.py")):
                if "tests" not in path.parts:
                    docs = re.findall(r'"""(.*?)"""', path.read_text(errors="ignore"), re.DOTALL)
                    found += "\n".join(doc for doc in docs if len(doc) > 300)
    numbers = {letter: i for i, letter in enumerate(LETTERS)}
    return torch.tensor([numbers[one] for one in found[:4_000_000] if one in numbers], device=setting.device)


def parts(kind: str, setting: Setting) -> dict[str, Any]:
    """Return what is trained on, where rates are chosen, and what is reported."""
    whole, n = text(kind, setting), setting.held_out
    return {"train": whole[: -2 * n], "choice": whole[-2 * n : -n], "report": whole[-n:]}


def drawn(letters: Any, setting: Setting, generator: Any, count: int) -> tuple[Any, Any]:
    begins = torch.randint(0, len(letters) - setting.context - 1, (count,), generator=generator)
    at = (begins[:, None] + torch.arange(setting.context + 1)).to(letters.device)
    return letters[at[:, :-1]], letters[at[:, 1:]]


def loss_of(model: Any, batch: tuple[Any, Any], setting: Setting) -> Any:
    low = torch.autocast("cuda", torch.bfloat16) if setting.device == "cuda" else nullcontext()
    with low:
        return functional.cross_entropy(model(batch[0]).flatten(0, 1).float(), batch[1].flatten())


@torch.no_grad()
def held_out_loss(model: Any, letters: Any, setting: Setting) -> float:
    generator = torch.Generator().manual_seed(99)
    count = 8 * setting.batch
    batches = (drawn(letters, setting, generator, count) for _ in range(5))
    return sum(loss_of(model, batch, setting).item() for batch in batches) / 5


def optimisers(method: str, model: Any, lr: float) -> list[Any]:
    """Return what trains the pairs of a model by a method, and the other parameters by AdamW."""
    pairs = low_rank_pairs(model)
    if method == "LowRankMuon":
        return [LowRankMuon(pairs, lr, others=OTHERS if pairs.others else None)]
    factors = [p for pair in pairs for p in pair]
    if method == "AdamW":
        own = torch.optim.AdamW(factors, lr, weight_decay=0.0)
    else:
        own = torch.optim.Muon(factors, lr, weight_decay=0.0, adjust_lr_fn="match_rms_adamw")
    return [own, torch.optim.AdamW(pairs.others, **OTHERS)] if pairs.others else [own]


def train(model: Any, made: list[Any], letters: Any, setting: Setting, steps: int, seed: int) -> Row:
    """Train a model with a warm-up and a linear decay; return what it took."""

    def factor(step: int) -> float:
        return min(1.0, (step + 1) / 10, 2.0 * (steps - step) / steps)

    schedules = [torch.optim.lr_scheduler.LambdaLR(one, factor) for one in made]
    generator, own, clock = torch.Generator().manual_seed(seed), [], time.process_time
    if setting.device == "cuda":

        def clock() -> float:
            torch.cuda.synchronize()
            return time.perf_counter()

    begun = clock()
    for step in range(steps):
        loss = loss_of(model, drawn(letters, setting, generator, setting.batch), setting)
        model.zero_grad()
        loss.backward()
        # The clock of a GPU waits for it: not in every step.
        if looked := setting.device == "cpu" or step % 50 == 49:
            before = clock()
        for one in made:
            one.step()
        if looked:
            own.append(clock() - before)
        for one in schedules:
            one.step()
        if step % 50 == 49 and not loss.item() < 20.0:
            break
    return {"step, ms": 1e3 * (clock() - begun) / steps, "optimiser, ms": 1e3 * float(np.median(own))}


@cache
def base(setting: Setting) -> Any:
    """Return a dense network that was trained on docstrings."""
    torch.manual_seed(0)
    model = Transformer(setting, dense).to(setting.device)
    letters, made = parts("docs", setting)["train"], [torch.optim.AdamW(model.parameters(), 2e-3)]
    train(model, made, letters, setting, setting.base_steps, 0)
    return model.state_dict()


@cache
def run(
    task: str, method: str, lr: float, seed: int, setting: Setting, scale: float = 1.0, gauge: float = 1.0
) -> Row:
    """Train once; the first factors of adapters are `scale` times as large, those of layers (B c, A / c)."""
    torch.manual_seed(seed)
    kind = "code" if task == "LoRA" else "docs"
    if task == "LoRA":
        model = Transformer(setting, dense)
        model.load_state_dict(base(setting))
        model.requires_grad_(False)
        torch.manual_seed(seed)
        for block in model.blocks:
            for name in ("qkv", "out", "up", "down"):
                setattr(block, name, Adapted(getattr(block, name), setting.rank, scale))
    else:
        model = Transformer(setting, lambda n, m: LowRankLinear(n, m, setting.rank, bias=False))
        for B, A in low_rank_pairs(model):
            B.data.mul_(gauge), A.data.div_(gauge)
    model.to(setting.device)
    letters = parts(kind, setting)
    took = train(model, optimisers(method, model, lr), letters["train"], setting, setting.steps, 1000 + seed)
    split = "choice" if seed == CHOICE else "report"
    loss = held_out_loss(model, letters[split], setting)
    row = {"task": task, "method": method, "rate": lr, "seed": seed, "text": split, "scale": scale}
    row |= {"gauge": gauge, "loss": loss if math.isfinite(loss) else 99.0} | took
    print(row, flush=True)
    return row


def grid(task: str, method: str, setting: Setting, rates: tuple[float, ...], finer: bool) -> list[Row]:
    """Return runs with rates a factor 2 apart; `finer`: more where the best is at an end, and half steps."""
    rows = [run(task, method, rate, CHOICE, setting) for rate in rates]
    for _ in range(8 if finer else 0):
        rows.sort(key=lambda row: row["rate"])
        at = min(range(len(rows)), key=lambda i: rows[i]["loss"])
        if 0 < at < len(rows) - 1:
            break
        rows.append(run(task, method, rows[at]["rate"] * (2.0 if at else 0.5), CHOICE, setting))
    best = best_of(rows)
    return rows + [run(task, method, best * 2.0**half, CHOICE, setting) for half in (-0.5, 0.5) if finer]


def best_of(rows: list[Row]) -> float:
    return min(rows, key=lambda row: row["loss"])["rate"]


SETTINGS = {"scratch": Setting(), "LoRA": Setting(rank=8, steps=120)}
RATES = tuple(5e-4 * 2.0**k for k in range(6))


@cache
def runs(task: str, setting: Setting, rates: tuple[float, ...] = RATES, finer: bool = True) -> list[Row]:
    """Return all runs of a task: grids with one seed, the best with others, and other first factors."""
    rows = []
    for method in METHODS:
        tried = grid(task, method, setting, rates, finer)
        rate = best_of(tried)
        rows += [*tried, *(run(task, method, rate, seed, setting) for seed in SEEDS)]
        if method == "Muon":
            continue
        if task == "LoRA":
            rows += [run(task, method, rate, seed, setting, scale=s) for seed in SEEDS for s in (0.1, 10.0)]
        else:
            rows += [run(task, method, rate, SEEDS[0], setting, gauge=c) for c in (0.1, 10.0)]
    return rows


def differences(rows: list[Row]) -> list[Row]:
    """Return the mean losses of the methods, and what they differ by over the same seeds."""
    found, rows = [], [row for row in rows if row["text"] == "report"]
    own = {(row["method"], row["seed"]): row["loss"] for row in rows if row["scale"] == row["gauge"] == 1.0}
    for method in METHODS:
        losses, mine = (np.array([own[one, seed] for seed in SEEDS]) for one in (method, "LowRankMuon"))
        apart = mine - losses
        mean, error = float(apart.mean()), float(apart.std(ddof=1) / len(SEEDS) ** 0.5)
        others = [row for row in rows if row["method"] == method and not row["scale"] == row["gauge"] == 1.0]
        spread = [abs(row["loss"] - own[method, row["seed"]]) for row in others]
        at = [row for row in rows if row["method"] == method]
        found.append({
            "task": at[0]["task"], "method": method, "rate": at[0]["rate"], "loss": float(losses.mean()),
            "LowRankMuon minus it": None if method == "LowRankMuon" else mean,
            "standard error": None if method == "LowRankMuon" else error,
            "spread": max(spread, default=None),
            "optimiser, ms": float(np.median([row["optimiser, ms"] for row in at])),
        })  # fmt: skip
    return found


@pytest.mark.parametrize("task", ["scratch", "LoRA"])
def test_runs(measured: Any, task: str) -> None:
    """Every run: loss in nats a character on held-out text, for each rate; CPU milliseconds of one thread."""
    torch.set_num_threads(1)
    measured(runs, task, SETTINGS[task])


@pytest.mark.parametrize("task", ["scratch", "LoRA"])
def test_differences(measured: Any, task: str) -> None:
    """Means over three seeds of losses in nats a character, at rates chosen with another seed on other text."""
    torch.set_num_threads(1)
    rows = {row["method"]: row for row in measured(differences, runs(task, SETTINGS[task]))}
    beside, ours = rows["AdamW"], rows["LowRankMuon"]
    if task == "scratch":
        assert beside["LowRankMuon minus it"] <= min(-0.05, -3.0 * beside["standard error"])
    else:
        assert beside["LowRankMuon minus it"] <= 0.005
    assert ours["spread"] <= 1e-3


# Problems with known answers


def answer(condition: float) -> tuple[Any, Any]:
    """Return a 60 × 80 matrix of rank 5 and inputs."""
    g = torch.Generator().manual_seed(0)
    U, V = (torch.linalg.qr(torch.randn(n, 5, generator=g, dtype=torch.float64)).Q for n in (60, 80))
    return U * torch.logspace(0, -math.log10(condition), 5) @ V.T, torch.randn(400, 80, generator=g).double()


def path(make: Callable[[Any], Any], condition: float, c: Any = None, steps: int = 600) -> list[Any]:
    """Return products of factors on their way, from factors in a gauge c."""
    (truth, X), g = answer(condition), torch.Generator().manual_seed(77)
    B, A = (0.1 * torch.randn(*size, generator=g).double() for size in ((60, 5), (5, 80)))
    if c is not None:
        B, A = B @ c, torch.linalg.solve(c, A)
    B, A = nn.Parameter(B), nn.Parameter(A)
    optimizer, found = make((B, A)), []
    for _ in range(steps):
        optimizer.zero_grad()
        (((B @ A - truth) @ X.T).square().sum() / 800).backward()
        optimizer.step()
        found.append((B @ A).detach().clone())
    return found


def lora_plus(pair: Any, lr: float) -> Any:
    return torch.optim.Adam([{"params": [pair[1]], "lr": lr}, {"params": [pair[0]], "lr": 16 * lr}])


def by_rate(name: str, lr: float) -> Callable[[Any], Any]:
    return {
        "SGD": lambda pair: torch.optim.SGD(pair, lr),
        "Adam": lambda pair: torch.optim.Adam(pair, lr),
        "LoRA+": lambda pair: lora_plus(pair, lr),
        "LowRankSGD": lambda pair: LowRankSGD([pair], lr, 0.7),
        "LowRankMuon": lambda pair: LowRankMuon([pair], lr),
    }[name]


def known_optimum() -> list[Row]:
    rows = []
    for name, first in (("SGD", 0.01), ("Adam", 1e-3), ("LoRA+", 1e-4), ("LowRankSGD", 0.01)):
        for rate in (first * 10 ** (k / 2) for k in range(6)):
            row: Row = {"method": name, "rate": rate}
            for condition in (1.0, 100.0):
                truth, _ = answer(condition)
                ways = path(by_rate(name, rate), condition)
                errors = [float((W - truth).norm() / truth.norm()) for W in ways]
                hits = [step for step, error in enumerate(errors, 1) if error <= 1e-4]
                end = errors[-1] if math.isfinite(errors[-1]) else None
                row |= {f"steps to 1e-4, κ = {condition:g}": min(hits, default=None)}
                row |= {f"error after 600, κ = {condition:g}": end}
            rows.append(row)
    return rows


def test_known_optimum(measured: Any) -> None:
    """Least squares with a solution of rank 5 and condition number κ: every rate."""
    torch.set_num_threads(1)
    rows = [row for row in measured(known_optimum) if row["method"] == "LowRankSGD"]
    for condition in (1, 100):
        assert min(row[f"steps to 1e-4, κ = {condition}"] or 600 for row in rows) <= 170


def gauges() -> list[Row]:
    g, rows = torch.Generator().manual_seed(0), []
    one = torch.eye(5, dtype=torch.float64)
    turned = torch.randn(5, 5, generator=g).double() + 2.0 * one
    kinds = {"random": turned, "1000": 1e3 * one, "0.001": 1e-3 * one}
    for name in ("Adam", "LoRA+", "LowRankSGD", "LowRankMuon"):
        make = by_rate(name, 0.1 if name == "LowRankSGD" else 0.01)
        plain, row = path(make, 10.0, steps=30), {"method": name}
        for kind, c in kinds.items():
            other = path(make, 10.0, c, steps=30)
            pairs = zip(plain, other, strict=True)
            row[f"c = {kind}"] = max(float((x - y).norm() / x.norm()) for x, y in pairs)
        rows.append(row)
    return rows


def test_gauge(measured: Any) -> None:
    """Largest relative distance of W on paths of 30 steps from (B, A) and from (Bc, A/c)."""
    torch.set_num_threads(1)
    for row in measured(gauges):
        if row["method"].startswith("LowRank"):
            assert max(value for key, value in row.items() if key != "method") <= 1e-12


# Overhead


def overhead() -> list[Row]:
    rows, methods = [], ("Adam", "AdamW", "Muon", "LowRankSGD", "LowRankMuon")
    # A larger array comes and goes, as in every training: from then on the C library keeps memory between steps.
    torch.ones(2**22)
    for n, rank in ((1024, 8), (1024, 16)):
        made, taken = {}, {name: [] for name in methods}
        for name in methods:
            torch.manual_seed(0)
            pairs = [
                (nn.Parameter(0.02 * torch.randn(n, rank)), nn.Parameter(0.02 * torch.randn(rank, n)))
                for _ in range(32)
            ]
            flat = [p for pair in pairs for p in pair]
            for p in flat:
                p.grad = torch.randn_like(p)
            made[name] = {
                "LowRankSGD": lambda pairs, _: LowRankSGD(pairs, 1e-3, 0.9),
                "LowRankMuon": lambda pairs, _: LowRankMuon(pairs, 1e-3),
            }.get(name, lambda _, flat, name=name: getattr(torch.optim, name)(flat, lr=1e-3))(pairs, flat)
            made[name].step()
        for _ in range(15):
            for name in methods:
                begun = time.process_time()
                made[name].step()
                taken[name].append(time.process_time() - begun)
        state = {
            name: sum(x.numel() for one in made[name].state.values() for x in one.values() if x.numel() > 1)
            for name in methods
        }
        for name in methods:
            step = float(np.median(taken[name])) / 32 * 1e3
            beside = float(np.median(np.array(taken[name]) / np.array(taken["Adam"])))
            row = {"n = m": n, "rank": rank, "optimiser": name, "step of a pair, ms": step}
            rows.append(row | {"times Adam": beside, "state / Adam's": state[name] / state["Adam"]})
    return rows


def test_overhead(measured: Any) -> None:
    """The step of a pair n × k, k × m: CPU time of one thread, medians of 15 in turns."""
    torch.set_num_threads(1)
    for row in measured(overhead):
        if row["optimiser"].startswith("LowRank"):
            assert row["state / Adam's"] <= 0.6
            assert row["rank"] > 8 or row["times Adam"] <= 4.0


# A larger network on a GPU


def on_gpu(tiny: bool) -> dict[str, Any]:
    """Return rows for a network of 38 million parameters in bfloat16, whose linear layers have a rank of d/4."""
    setting = Setting(
        512, 12, 8, 256, 64, 300, 128, "cuda", 400_000, ("scipy", "numpy", "sklearn", "torch"), 500
    )
    if tiny:
        setting = Setting(32, 1, 2, 16, 2, 6, 8, "cpu", 20_000, ("numpy",), 6)
    adapters = replace(setting, rank=8, steps=setting.steps // 2)
    found: dict[str, Any] = {"torch": torch.__version__, "setting": asdict(setting)}
    found["device"] = torch.cuda.get_device_name() if setting.device == "cuda" else "cpu"
    model = Transformer(setting, lambda n, m: LowRankLinear(n, m, setting.rank, bias=False)).to(
        setting.device
    )
    found["synchronisations"] = synchronisations(model, setting)
    found["dense parameters"] = sum(p.numel() for p in Transformer(setting, dense).parameters())
    ceiling = []
    for rate in (5e-4, 1e-3, 2e-3):
        torch.manual_seed(SEEDS[0])
        whole = Transformer(setting, dense).to(setting.device)
        letters = parts("docs", setting)
        made = [torch.optim.AdamW(whole.parameters(), rate)]
        took = train(whole, made, letters["train"], setting, setting.steps, 1)
        ceiling.append({"rate": rate, "loss": held_out_loss(whole, letters["report"], setting)} | took)
    found["dense, AdamW"] = ceiling
    for task, one, rates in (
        ("scratch", setting, (5e-4, 1e-3, 2e-3, 4e-3, 8e-3)),
        ("LoRA", adapters, (1e-3, 2e-3, 4e-3, 8e-3)),
    ):
        found[task] = runs(task, one, rates, False)
        found[f"{task}, differences"] = differences(found[task])
    return found


def synchronisations(model: Any, setting: Setting) -> str:
    """Return what a step of LowRankMuon says where reading from the device is an error."""
    if setting.device == "cpu":
        return "no GPU"
    (optimizer,) = optimisers("LowRankMuon", model, 1e-3)
    for _ in range(2):
        loss_of(
            model, drawn(parts("docs", setting)["train"], setting, torch.Generator(), 4), setting
        ).backward()
        optimizer.step()
    torch.cuda.set_sync_debug_mode("error")
    try:
        optimizer.step()
    except RuntimeError as error:
        return str(error)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    return "none"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--tiny", action="store_true", help="a small network on the CPU")
    chosen = parser.parse_args()
    begun = time.perf_counter()
    table = on_gpu(chosen.tiny)
    table["seconds"] = time.perf_counter() - begun
    chosen.file.write_text(json.dumps(table, indent=1) + "\n")
