"""A table of words in hyperbolic space: a point in each row."""

import torch
from torch import nn

from rmopt.manifolds import Hyperbolic
from rmopt.torch import RiemannianAdam

table = nn.Embedding(10_000, 11)
words = Hyperbolic(10).using("orthographic", "projection")
with torch.no_grad():
    # Near the origin: the first number follows from the other ten.
    table.weight[:, 1:] *= 0.01
    table.weight.copy_(words.lifted(table.weight))
optimizer = RiemannianAdam([{"params": table.parameters(), "manifold": words}], lr=0.01)

for _ in range(20):
    optimizer.zero_grad()
    word, general = table(torch.tensor([[1, 2, 3], [0, 0, 0]]))
    loss = words.dist(word, general).sum()
    loss.backward()
    optimizer.step()
assert loss < 0.2
assert words.refusal(table.weight.detach()) is None
