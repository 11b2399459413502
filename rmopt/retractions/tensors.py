"""Retractions of tensors of low multilinear rank."""

from typing import Any

from rmopt import namespaces as ns
from rmopt.core.retraction import Retraction, by_name
from rmopt.core.tensors import (
    TensorTangent,
    TrainPoint,
    TuckerPoint,
    doubled,
    doubled_train,
    multiplied,
    tall,
    unfolding,
)


class HOSVD(Retraction):
    """The higher-order singular value decomposition of X + ξ, truncated axis after axis.

    X + ξ has a core of twice the ranks between [Uᵢ, Vᵢ] for moves Vᵢ of the factors: it costs O(n r² + r^(d+1)).

    References
    ----------
    Kressner, Steinlechner and Vandereycken, Low-rank tensor completion by Riemannian optimization, BIT Numerical
    Mathematics 54 (2014), https://doi.org/10.1007/s10543-013-0455-z. Vannieuwenhoven, Vandebril and Meerbergen, A new
    truncation strategy for the higher-order singular value decomposition, SIAM J. Sci. Comput. 34 (2012),
    https://doi.org/10.1137/110836067.
    """

    order = 2
    name = "hosvd"

    def __call__(
        self, manifold: Any, point: TuckerPoint, tangent: TensorTangent, t: float = 1.0
    ) -> TuckerPoint:
        move, *moves = tangent.parts
        xp, bases, triangles = ns.namespace(move), [], []
        for U, V in zip(point.factors, moves, strict=True):
            Q, R = xp.linalg.qr(xp.concat([U, t * V], axis=1))
            bases.append(Q)
            triangles.append(R)
        core = multiplied(doubled(point.core, point.core + t * move), triangles)
        return truncated(core, bases, point.ranks)


def truncated(core: Any, bases: Any, ranks: Any) -> TuckerPoint:
    """Return a tensor with a core between orthonormal bases, truncated axis after axis."""
    factors = []
    for i, (Q, k) in enumerate(zip(bases, ranks, strict=True)):
        U = ns.namespace(core).linalg.svd(unfolding(core, i), full_matrices=False)[0][:, :k]
        core = multiplied(core, [U.T if j == i else None for j in range(len(ranks))])
        factors.append(Q @ U)
    return TuckerPoint(core, tuple(factors))


class TTSVD(Retraction):
    """The tensor train X + ξ, whose cores have doubled ranks, truncated to the ranks of X from first to last.

    References
    ----------
    Oseledets, Tensor-train decomposition, SIAM J. Sci. Comput. 33 (2011), https://doi.org/10.1137/090752286.
    Steinlechner, Riemannian optimization for high-dimensional tensor completion, SIAM J. Sci. Comput. 38 (2016),
    https://doi.org/10.1137/15M1010506.
    """

    order = 2
    name = "tt-svd"

    def __call__(
        self, manifold: Any, point: TrainPoint, tangent: TensorTangent, t: float = 1.0
    ) -> TrainPoint:
        moves = [t * move for move in tangent.parts]
        return rounded(doubled_train(point.cores, moves, point.cores[-1] + moves[-1]), point.ranks)


def rounded(cores: Any, ranks: Any) -> TrainPoint:
    """Return a tensor train truncated to some ranks."""
    cores, xp = list(cores), ns.namespace(cores[0])
    for i in range(len(cores) - 1, 0, -1):
        Q, R = xp.linalg.qr(xp.reshape(cores[i], (cores[i].shape[0], -1)).T)
        cores[i] = xp.reshape(Q.T, (-1, *cores[i].shape[1:]))
        cores[i - 1] = xp.tensordot(cores[i - 1], R.T, axes=1)
    for i, k in enumerate(ranks):
        U, values, Vt = xp.linalg.svd(tall(cores[i]), full_matrices=False)
        cores[i] = xp.reshape(U[:, :k], (*cores[i].shape[:2], k))
        cores[i + 1] = xp.tensordot(values[:k, None] * Vt[:k, :], cores[i + 1], axes=1)
    return TrainPoint(tuple(cores))


TUCKER_RETRACTIONS, TRAIN_RETRACTIONS = by_name(HOSVD()), by_name(TTSVD())
