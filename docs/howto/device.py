"""The leading subspace of data that lie on a GPU, where there is one."""

import torch

import rmopt
from rmopt.manifolds import Grassmann
from rmopt.solvers import ConjugateGradient

device = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(0)
scales = torch.linspace(1.0, 3.0, 50, dtype=torch.float64, device=device)
X = torch.randn(1000, 50, dtype=torch.float64, device=device) * scales


@rmopt.torch_cost
def minus_captured(U):
    return -0.5 * ((X @ U) ** 2).sum()


manifold = Grassmann(50, 3)
start = manifold.random_point(0, like=X)
result = ConjugateGradient().run(rmopt.Problem(manifold, minus_captured), start)
assert result.converged
assert result.point.device == X.device
leading = torch.linalg.eigvalsh(X.T @ X)[-3:].sum()
assert abs(result.cost + 0.5 * float(leading)) < 1e-6 * float(leading)
