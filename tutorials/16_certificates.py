r"""
Minima with a proof: max-cut, and rotations
===========================================

**Advanced, 20 minutes.** You learn to solve semidefinite programmes with thousands of rows, and to bound the
distance to the optimum. Before this: :doc:`Certificates of global optimality </learn/certificates>`.

Two hard problems have convex relaxations: semidefinite programmes over matrices :math:`W \succeq 0`. Interior points
solve them up to some hundreds of rows. With :math:`W = YY^\top` and few columns in :math:`Y` a manifold does the same
for thousands, and a certificate says at the end that no :math:`W` is better, or by how much at most.
"""

# %%
# Max-cut
# -------
#
# The nodes of a graph get signs :math:`s_i = \pm 1`, so that as many edges as can be join different signs: the least
# :math:`\tfrac14 s^\top A s` for the adjacency matrix :math:`A`. The relaxation asks for :math:`W \succeq 0` with
# ones on its diagonal in place of :math:`ss^\top`. These are the :math:`YY^\top` of factors whose rows have length 1,
# which are an `Elliptope`. The cost is a function of :math:`YY^\top` for any number of columns.

import time

import numpy as np
import scipy.sparse as sp

from rmopt import Problem
from rmopt.core import Cost
from rmopt.manifolds import Elliptope
from rmopt.solvers import RankIncremental


class Cut(Cost):
    """A quarter of ⟨A, W⟩."""

    def __init__(self, A):
        self.A = A / 4

    def value(self, Y):
        """Return the cost."""
        return float(np.sum(Y * (self.A @ Y)))

    def gradient(self, Y):
        """Return the Euclidean gradient."""
        return 2 * (self.A @ Y)

    def hessian(self, Y, direction):
        """Return its derivative: the gradient is linear."""
        return 2 * (self.A @ direction)


def graph(n, seed=0):
    """Return the adjacency matrix of a random graph, eight edges to a node."""
    rng = np.random.default_rng(seed)
    A = sp.triu(
        sp.random_array(
            (n, n), density=8 / n, rng=rng, data_sampler=lambda size: np.ones(size)
        ),
        1,
    )
    return (A + A.T).tocsr()


# %%
# `RankIncremental` begins with two columns. Where the minimum of this rank is not that of all :math:`W`, the matrix
# :math:`S` of the certificate has negative eigenvalues. Their eigenvectors become new columns, along which the cost
# falls.

A = graph(1000)
begun = time.process_time()
cut = RankIncremental(tol=1e-9).run(Problem(Elliptope(1000, 2), Cut(A)), random_state=0)
print(f"{time.process_time() - begun:.1f} s, {cut.stopped_by}")
for row in cut.history:
    print(
        f"rank {row['rank']:2d}   cost {row['objective']:.6f}   at most {row['gap']:.1e} too high"
    )

# %%
# No cut is better than what the bound allows. Signs by a random plane (Goemans and Williamson 1995) come near to it.

edges = A.sum() / 2
signs = np.sign(
    cut.point @ np.random.default_rng(0).standard_normal((cut.point.shape[1], 100))
)
best = max(edges / 2 - Cut(A).value(s) / 2 for s in signs.T)
bound = edges / 2 - cut.lower_bound / 2
print(f"{best:.0f} of {edges:.0f} edges are cut, and no cut has more than {bound:.1f}")

# %%
# The same by interior points
# ---------------------------
#
# cvxpy states a programme in its own words, where it is installed. At 60 nodes both give the same value.

small = graph(60)
ours = RankIncremental(tol=1e-9).run(
    Problem(Elliptope(60, 2), Cut(small)), random_state=0
)
try:
    import cvxpy as cp
except ImportError:
    theirs = ours.certificate.objective
else:
    W = cp.Variable((60, 60), PSD=True)
    theirs = cp.Problem(cp.Minimize(cp.trace(small @ W) / 4), [cp.diag(W) == 1]).solve(
        solver="CLARABEL"
    )
print(f"{ours.certificate.objective:.7f} here, {theirs:.7f} there")

# %%
# Rotations
# ---------
#
# Of :math:`n` rotations :math:`R_i` noisy products :math:`Q_{ij} \approx R_i^\top R_j` are known. The blocks of
# :math:`W` are :math:`X_i^\top X_j`, and the constraints :math:`X_i^\top X_i = I` are those of `Stiefel`: rotations
# have three rows, and points of a higher rank have more. The cost must be a function of these products.

from scipy.spatial.transform import Rotation

from rmopt.manifolds import Stiefel

n, rng = 100, np.random.default_rng(0)
truth = Rotation.random(n, random_state=rng).as_matrix()
pairs = np.array([(i, (i + step) % n) for i in range(n) for step in (1, 2, 5)])
i, j = pairs.T
noise = Rotation.from_rotvec(0.2 * rng.standard_normal((len(pairs), 3))).as_matrix()
Q = truth[i].mT @ truth[j] @ noise


class Synchronisation(Cost):
    """The sum of ‖Xⱼ − Xᵢ Qᵢⱼ‖², less a constant."""

    def hessian(self, X, direction):
        """Return the derivative of the gradient."""
        product = np.zeros_like(direction)
        np.add.at(product, i, -2 * direction[j] @ Q.mT)
        np.add.at(product, j, -2 * direction[i] @ Q)
        return product

    def gradient(self, X):
        """Return the Euclidean gradient: the cost is quadratic."""
        return self.hessian(X, X)

    def value(self, X):
        """Return the cost."""
        return 0.5 * float(np.sum(X * self.gradient(X)))


turned = RankIncremental(tol=1e-9).run(
    Problem(Stiefel(4, 3, n), Synchronisation()), random_state=0
)
print(f"rank {turned.point.shape[1]}, {turned.stopped_by}")

# %%
# Here the relaxation is tight: W has rank 3, and its factor of three columns holds rotations, but for one reflection
# of all. `certify` says at these that no rotations are better.

from rmopt.manifolds import SpecialOrthogonal
from rmopt.solvers import certify

rows = np.moveaxis(turned.point, 1, 2).reshape(3 * n, -1)
vectors, lengths, _ = np.linalg.svd(rows, full_matrices=False)
print("singular values of Y:", lengths[:5].round(4))
blocks = np.moveaxis((vectors[:, :3] * lengths[:3]).reshape(n, 3, 3), 1, 2)
U, _, Vt = np.linalg.svd(blocks)
found = U @ Vt
if np.linalg.det(found[0]) < 0:
    found[:, 0] *= -1
certificate, _, _ = certify(Problem(SpecialOrthogonal(3, n), Synchronisation()), found)
print(f"relative gap of the rotations {certificate.relative_gap:.0e}")

# %%
# What a certificate rests on
# ---------------------------
#
# The bound is made of gradients. Where they are wrong it may be false, so `certify` holds them against values of the
# cost, and refuses what does not fit.


class Wrong(Cut):
    """A gradient with an error of a hundredth of a percent."""

    def gradient(self, Y):
        """Return something else."""
        return 1.0001 * super().gradient(Y)


from rmopt import InvalidInputError

try:
    RankIncremental().run(Problem(Elliptope(60, 2), Wrong(small)), random_state=0)
except InvalidInputError as error:
    refused = str(error)
    print(refused)

# %%
# What is left
# ------------

import matplotlib.pyplot as plt

figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.5))
for result, label in ((cut, "max-cut, 1000 nodes"), (turned, "100 rotations")):
    left.semilogy(
        [row["gap"] / abs(result.certificate.objective) for row in result.history],
        "o-",
        label=label,
    )
left.set_xlabel("round")
left.set_ylabel("certified relative gap")
right.semilogy(
    np.linalg.svd(cut.point, compute_uv=False), "o-", label="max-cut, 1000 nodes"
)
right.semilogy(np.maximum(lengths, 1e-9), "s-", label="100 rotations")
right.set_xlabel("number")
right.set_ylabel("singular values of Y")
right.legend(loc="center", fontsize="small")
figure.tight_layout()
plt.show()

# %%
# :doc:`/learn/certificates` explains why this works. :doc:`/measured/benchmarks` has the times of other libraries.

assert cut.is_global
assert best < bound
assert abs(ours.certificate.objective - theirs) < 1e-6 * abs(theirs)
assert turned.is_global
assert certificate.is_global(1e-8)
assert "check_gradient" in refused
