"""Retractions of tensors of low multilinear rank."""

from typing import Any

from rmopt import namespaces as ns
from rmopt.core.retraction import Retraction, by_name
from rmopt.core.tensors import TensorTangent, TuckerPoint, doubled, multiplied, unfolding


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
    """Return a tensor with some core between orthonormal bases, cut to ranks axis after axis."""
    factors = []
    for i, (Q, k) in enumerate(zip(bases, ranks, strict=True)):
        U = ns.namespace(core).linalg.svd(unfolding(core, i), full_matrices=False)[0][:, :k]
        core = multiplied(core, [U.T if j == i else None for j in range(len(ranks))])
        factors.append(Q @ U)
    return TuckerPoint(core, tuple(factors))


TENSOR_RETRACTIONS = by_name(HOSVD())
