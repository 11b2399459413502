"""A recurrent layer that keeps what it saw first: its matrix stays orthogonal."""

import torch
from torch import nn

from rmopt.manifolds import SpecialOrthogonal
from rmopt.torch import RiemannianAdam

SYMBOLS, WIDTH, STEPS = 8, 32, 100


class Recurrent(nn.Module):
    """h ← W h + U x; the last h tells which symbol came first."""

    def __init__(self) -> None:
        super().__init__()
        self.turn = nn.Parameter(SpecialOrthogonal(WIDTH).random_point(0, like=torch.empty(0)))
        self.read = nn.Linear(SYMBOLS, WIDTH, bias=False)
        self.tell = nn.Linear(WIDTH, SYMBOLS)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = torch.zeros(len(x), WIDTH)
        for seen in self.read(x).unbind(1):
            h = h @ self.turn.T + seen
        return self.tell(h)


def batch(count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return a symbol and much noise after it, and which symbol it was."""
    first = torch.randint(SYMBOLS, (count,))
    x = 0.05 * torch.randn(count, STEPS, SYMBOLS)
    x[:, 0] += nn.functional.one_hot(first, SYMBOLS)
    return x, first


def trained(manifold: SpecialOrthogonal | None) -> str:
    """Return how many of new symbols a layer knows after training, and how far W is from orthogonal."""
    torch.manual_seed(0)
    model = Recurrent()
    rest = [*model.read.parameters(), *model.tell.parameters()]
    group = {"params": [model.turn], "manifold": manifold}
    optimizer = RiemannianAdam([group, {"params": rest}], lr=0.01)
    for _ in range(100):
        x, first = batch(32)
        loss = nn.functional.cross_entropy(model(x), first)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        x, first = batch(1000)
        right = (model(x).argmax(1) == first).float().mean()
        apart = (model.turn.T @ model.turn - torch.eye(WIDTH)).abs().max()
    return f"{float(right):.0%} right, WᵀW − I up to {float(apart):.0e}"


print("orthogonal:", trained(SpecialOrthogonal(WIDTH)))
print("free:      ", trained(None))
