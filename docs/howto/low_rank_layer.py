"""A network with low-rank layers, trained from scratch by one optimiser with one schedule."""

import torch
from torch import nn

from rmopt.torch import LowRankLinear, LowRankMuon, low_rank_pairs

torch.manual_seed(0)
x = torch.randn(512, 20)
y = torch.sin(2 * x[:, :1]) * x[:, 1:2]

model = nn.Sequential(
    nn.Linear(20, 64),
    nn.GELU(),
    LowRankLinear(64, 64, rank=16),
    nn.GELU(),
    nn.Linear(64, 1),
)
pairs = low_rank_pairs(model)
# The parameters that are in no pair, pairs.others, go to AdamW.
optimizer = LowRankMuon(pairs, lr=3e-3, others=dict(lr=3e-3))
schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, total_iters=300)

for _ in range(300):
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(x), y)
    loss.backward()
    optimizer.step()
    schedule.step()

assert loss < 0.05 * y.var()
