"""Low-rank layers and adapters of a transformer, in PyTorch: rmopt.torch beside AdamW and Muon on the factors.

Run with ``pytest -o addopts= -s tests/benchmarks/test_torch_low_rank.py``, half an hour on one core. A larger network
on a GPU, in ten minutes: ``python tests/benchmarks/test_torch_low_rank.py FILE``; ``--tiny`` tries that anywhere.
"""

from __future__ import annotations

import math
import re
import sysconfig
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402

from rmopt.torch import LowRankLinear, LowRankMuon, low_rank_pairs  # noqa: E402

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
        self.qkv, self.out, self.up, self.down = (
            layer(d, 3 * d),
            layer(d, d),
            layer(d, 4 * d),
            layer(4 * d, d),
        )

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
        found = "".join(
            path.read_text(errors="ignore")
            for path in sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))
        )
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
    return (
        sum(loss_of(model, drawn(letters, setting, generator, count), setting).item() for _ in range(5)) / 5
    )


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
    train(
        model,
        [torch.optim.AdamW(model.parameters(), 2e-3)],
        parts("docs", setting)["train"],
        setting,
        setting.base_steps,
        0,
    )
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
    row = {
        "task": task,
        "method": method,
        "rate": lr,
        "seed": seed,
        "text": split,
        "scale": scale,
        "gauge": gauge,
    }
    row |= {"loss": loss if math.isfinite(loss) else 99.0} | took
    print(row, flush=True)
    return row


def grid(task: str, method: str, setting: Setting, rates: tuple[float, ...]) -> list[Row]:
    """Return runs with rates a factor 2 apart, more where the best is the first or last, and half steps beside it."""
    rows = [run(task, method, rate, CHOICE, setting) for rate in rates]
    for _ in range(8):
        rows.sort(key=lambda row: row["rate"])
        at = min(range(len(rows)), key=lambda i: rows[i]["loss"])
        if 0 < at < len(rows) - 1:
            break
        rows.append(run(task, method, rows[at]["rate"] * (2.0 if at else 0.5), CHOICE, setting))
    best = rows[at]["rate"]
    return rows + [run(task, method, best * factor, CHOICE, setting) for factor in (0.5**0.5, 2.0**0.5)]


def best_of(rows: list[Row]) -> float:
    return min(rows, key=lambda row: row["loss"])["rate"]


SCRATCH, LORA = Setting(), Setting(rank=8, steps=120)
RATES = tuple(5e-4 * 2.0**k for k in range(6))


@cache
def runs(task: str) -> list[Row]:
    """Return all runs of a task: grids with one seed, the best with others, and other first factors."""
    setting, rows = SCRATCH if task == "scratch" else LORA, []
    for method in METHODS:
        tried = grid(task, method, setting, RATES)
        rate = best_of(tried)
        rows += [*tried, *(run(task, method, rate, seed, setting) for seed in SEEDS)]
        if method == "Muon":
            continue
        if task == "LoRA":
            rows += [run(task, method, rate, seed, setting, scale=s) for seed in SEEDS for s in (0.1, 10.0)]
        else:
            rows += [run(task, method, rate, SEEDS[0], setting, gauge=c) for c in (0.1, 10.0)]
    return rows


def differences(task: str) -> list[Row]:
    """Return the mean losses of the methods, and what they differ by over the same seeds."""
    found, rows = [], [row for row in runs(task) if row["text"] == "report"]
    own = {(row["method"], row["seed"]): row["loss"] for row in rows if row["scale"] == row["gauge"] == 1.0}
    for method in METHODS:
        losses, mine = (np.array([own[one, seed] for seed in SEEDS]) for one in (method, "LowRankMuon"))
        apart = mine - losses
        others = [row for row in rows if row["method"] == method and not row["scale"] == row["gauge"] == 1.0]
        spread = [abs(row["loss"] - own[method, row["seed"]]) for row in others]
        found.append(
            {
                "task": task,
                "method": method,
                "rate": next(row["rate"] for row in rows if row["method"] == method),
                "loss": float(losses.mean()),
                "LowRankMuon minus it": None if method == "LowRankMuon" else float(apart.mean()),
                "standard error": None
                if method == "LowRankMuon"
                else float(apart.std(ddof=1) / len(SEEDS) ** 0.5),
                "spread over first factors": max(spread, default=None),
            }
        )
    return found


@pytest.mark.parametrize("task", ["scratch", "LoRA"])
def test_runs(measured: Any, task: str) -> None:
    """Every run: loss in nats a character on held-out text, for each rate; CPU milliseconds of one thread."""
    torch.set_num_threads(1)
    measured(runs, task)


@pytest.mark.parametrize("task", ["scratch", "LoRA"])
def test_differences(measured: Any, task: str) -> None:
    """Means over three seeds of losses in nats a character, at rates chosen with another seed on other text."""
    torch.set_num_threads(1)
    rows = {row["method"]: row for row in measured(differences, task)}
    beside, ours = rows["AdamW"], rows["LowRankMuon"]
    if task == "scratch":
        assert beside["LowRankMuon minus it"] <= min(-0.05, -3.0 * beside["standard error"])
    else:
        assert abs(beside["LowRankMuon minus it"]) <= 0.005
    assert ours["spread over first factors"] <= 1e-3
