"""LoRA adapters with the names that PEFT gives, on a frozen network."""

import torch
from torch import nn

from rmopt.torch import LowRankMuon, low_rank_pairs


class Adapted(nn.Module):
    """What PEFT makes of a linear layer, where it is not installed."""

    def __init__(self, layer, rank, adapter="default"):
        super().__init__()
        self.base_layer = layer.requires_grad_(False)
        down = nn.Linear(layer.in_features, rank, bias=False)
        up = nn.Linear(rank, layer.out_features, bias=False)
        nn.init.zeros_(up.weight)
        self.lora_A = nn.ModuleDict({adapter: down})
        self.lora_B = nn.ModuleDict({adapter: up})

    def forward(self, x):
        added = sum(self.lora_B[name](self.lora_A[name](x)) for name in self.lora_A)
        return self.base_layer(x) + 2.0 * added


def trained(scale):
    """Return the loss after training, from first factors of a given scale."""
    torch.manual_seed(0)
    model = nn.Sequential(Adapted(nn.Linear(20, 30), 4), nn.GELU(), Adapted(nn.Linear(30, 5), 4))
    x, y = torch.randn(256, 20), torch.randn(256, 5)
    pairs = low_rank_pairs(model)  # 0.lora_A.default.weight with 0.lora_B.default.weight, …
    for _, A in pairs:
        A.data.mul_(scale)
    optimizer = LowRankMuon(pairs, lr=3e-3)
    for _ in range(50):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
    return loss.item()


first, larger = trained(1.0), trained(10.0)
assert abs(larger - first) < 1e-4 * first
