"""A robust subspace with PyTorch."""

import numpy as np
import torch

import rmopt
from rmopt.manifolds import Grassmann
from rmopt.solvers import LBFGS

rng = np.random.default_rng(0)
X = rng.standard_normal((200, 3)) @ rng.standard_normal((3, 10))
X[:20] = 10 * rng.standard_normal((20, 10))
data = torch.as_tensor(X)


@rmopt.torch_cost
def distances(U):
    left = data - (data @ U) @ U.T
    return torch.sum(torch.sqrt(torch.sum(left**2, dim=1) + 1e-6))


problem = rmopt.Problem(Grassmann(10, 3), distances)
robust = LBFGS(max_iter=300).run(problem, random_state=0)
span = np.linalg.svd(X[20:], full_matrices=False)[2][:3]
assert np.linalg.norm(span @ robust.point) ** 2 / 3 > 0.999
