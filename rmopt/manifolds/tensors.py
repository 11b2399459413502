"""The manifold of tensors of fixed multilinear rank, with the metric of the tensors around it."""

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
import scipy.sparse as sp

from rmopt import namespaces as ns
from rmopt.core.arguments import integer, numbers, sequence, shown
from rmopt.core.manifold import Manifold, OverField
from rmopt.core.points import as_like, in_precision, is_finite
from rmopt.core.retraction import Retraction
from rmopt.core.tensors import (
    Entries,
    TensorTangent,
    Tucker,
    TuckerMove,
    TuckerPoint,
    bent_at,
    gradient_by,
    in_order,
    multiplied,
    partials_at,
    unfolding,
)
from rmopt.errors import InvalidInputError
from rmopt.linalg import lanczos_svd, leave_span
from rmopt.precision import rank_of, real_type, slack
from rmopt.retractions.tensors import HOSVD, TENSOR_RETRACTIONS, truncated


class FixedMultilinearRank(OverField, Manifold):
    """Real tensors of fixed multilinear rank (Tucker) as a submanifold of all tensors.

    Points are `TuckerPoint`: a core C and orthonormal factors Uᵢ. A tangent vector holds a move of the core, and
    moves of the factors that are orthogonal to them. A cost gives its gradient as an array of all entries, as a
    sparse tensor (`rmopt.costs.EntrySum`), or as a list of its derivatives by C and each Uᵢ. Automatic costs are
    functions of these, ``f(C, U1, …, Ud)``, that depend on the tensor alone.

    Parameters
    ----------
    shape : sequence of int
        Sizes of the axes, two or more.
    ranks : sequence of int
        The rank along each axis: at most its size, and at most the product of the others.

    See Also
    --------
    rmopt.costs.EntrySum : losses of seen entries.
    FixedRankEmbedded : matrices.

    References
    ----------
    Kressner, Steinlechner and Vandereycken, Low-rank tensor completion by Riemannian optimization, BIT Numerical
    Mathematics 54 (2014), https://doi.org/10.1007/s10543-013-0455-z.

    Examples
    --------
    >>> import numpy as np
    >>> from rmopt.manifolds import FixedMultilinearRank
    >>> manifold = FixedMultilinearRank((20, 30, 40), (2, 3, 4))
    >>> X = manifold.from_tensor(np.random.default_rng(0).standard_normal((20, 30, 40)))
    >>> X.core.shape, [U.shape for U in X.factors], manifold.dim
    ((2, 3, 4), [(20, 2), (30, 3), (40, 4)], 285)
    """

    point_type = TuckerPoint
    default_retraction: Retraction = HOSVD()
    retractions = TENSOR_RETRACTIONS

    def __init__(self, shape: Sequence[int], ranks: Sequence[int]) -> None:
        sizes, wanted = sequence("shape", shape), sequence("ranks", ranks)
        if len(sizes) < 2 or len(sizes) != len(wanted):
            raise InvalidInputError(
                f"shape = {shown(shape)} and ranks = {shown(ranks)} must have a number for each of two or more axes."
            )
        self.shape = tuple(integer("a size in shape", n, 1) for n in sizes)
        self.ranks = tuple(integer("a rank", k, 1) for k in wanted)
        for n, k in zip(self.shape, self.ranks, strict=True):
            if k > min(n, prod(self.ranks) // k):
                raise InvalidInputError(
                    f"ranks = {self.ranks} are out of range: {k} is more than the size of its axis, {n}, or than the "
                    f"product of the other ranks, {prod(self.ranks) // k}; choose a smaller one."
                )

    def __repr__(self) -> str:
        return f"FixedMultilinearRank({self.shape}, {self.ranks})"

    @property
    def dim(self) -> int:
        return prod(self.ranks) + sum((n - k) * k for n, k in zip(self.shape, self.ranks, strict=True))

    # The tangent space

    def projection(self, point: TuckerPoint, ambient: Any) -> TensorTangent:
        return gradient_by(point, partials_at(point, ambient))

    def to_tangent_space(self, point: TuckerPoint, vector: TensorTangent) -> TensorTangent:
        move, *moves = vector.parts
        return TensorTangent((move, *map(leave_span, point.factors, moves)))

    def inner(
        self, point: TuckerPoint, tangent_vector_a: TensorTangent, tangent_vector_b: TensorTangent
    ) -> Any:
        (a, *firsts), (b, *others) = tangent_vector_a.parts, tangent_vector_b.parts
        dot = ns.dot_for(a)
        total = dot(a, b)
        for i, pair in enumerate(zip(firsts, others, strict=True)):
            C = unfolding(point.core, i)
            total = total + dot(pair[0].T @ pair[1], C @ C.T)
        return total

    def inner_product(
        self, point: TuckerPoint, tangent_vector_a: TensorTangent, tangent_vector_b: TensorTangent
    ) -> float:
        return float(self.inner(point, tangent_vector_a, tangent_vector_b))

    def embedding(self, point: TuckerPoint, tangent_vector: TensorTangent) -> TuckerMove:
        return TuckerMove(point, tangent_vector)

    def embed_point(self, point: TuckerPoint) -> Tucker:
        return point.as_ambient()

    def zero_vector(self, point: TuckerPoint) -> TensorTangent:
        return TensorTangent(tuple(ns.zeros(part.shape, part) for part in point.parts))

    def euclidean_to_riemannian_hessian(
        self,
        point: TuckerPoint,
        euclidean_gradient: Any,
        euclidean_hessian: Any,
        tangent_vector: TensorTangent,
    ) -> TensorTangent:
        """Return the Riemannian Hessian, from how the derivatives by core and factors change.

        With moves V of the factors and W of those of the gradient, the core moves by that of its derivative less
        C ×ᵢ VᵢᵀWᵢ, and each factor by (P⊥ Ḋᵢ − Wᵢ Cᵢ Ċᵢᵀ)(Cᵢ Cᵢᵀ)⁻¹.
        """
        move = self.embedding(point, tangent_vector)
        flat, bent = partials_at(point, euclidean_hessian), bent_at(point, euclidean_gradient, move)
        _, *along = self.projection(point, euclidean_gradient).parts
        (by_core, *by_factors), (turned, *turns) = (
            [a + b for a, b in zip(flat, bent, strict=True)],
            tangent_vector.parts,
        )
        axes = range(len(self.shape))
        for i, (V, W) in enumerate(zip(turns, along, strict=True)):
            by_core = by_core - multiplied(point.core, [V.T @ W if j == i else None for j in axes])
            by_factors[i] = by_factors[i] - W @ (unfolding(point.core, i) @ unfolding(turned, i).T)
        return gradient_by(point, [by_core, *by_factors])

    # Points

    def check_point(self, point: Any) -> str | None:
        if not isinstance(point, TuckerPoint):
            return f"a point of {self} is a TuckerPoint, not {type(point).__name__}"
        shapes = [tuple(part.shape) for part in point.parts]
        wanted = [self.ranks, *zip(self.shape, self.ranks, strict=True)]
        if shapes != wanted:
            return f"core and factors have shapes {shapes}, not {wanted}"
        if len({ns.namespace(part) for part in point.parts}) > 1:
            return "core and factors are of several libraries"
        for part in point.parts:
            if (reason := self._other_field(part)) is not None:
                return reason
        if not is_finite(point):
            return "the core or a factor holds NaN or infinity"
        for i, U in enumerate(point.factors):
            error = np.abs(ns.to_numpy(U.T @ U) - np.eye(self.ranks[i])).max()
            if error > slack(1e-10, U):
                return f"factor {i} is not orthonormal: |UᵀU − I| reaches {error:.1e}"
        return self.refusal(point)

    def refusal(self, point: TuckerPoint) -> str | None:
        """Return why a core and orthonormal factors are no point, or None: a rank is lower."""
        for i, k in enumerate(self.ranks):
            C = unfolding(point.core, i)
            sigma = ns.to_numpy(ns.namespace(C).linalg.svdvals(C))
            if rank_of(sigma) < k:
                spread = f"singular values run from {sigma[0]:.1e} to {sigma[-1]:.1e}"
                return f"the rank along axis {i} is below {k}, for {spread}; choose lower ranks"
        return None

    def random_point(self, rng: np.random.Generator | None = None, like: Any = None) -> TuckerPoint:
        """Return a point with uniformly distributed spaces and a core of standard normal numbers."""
        rng = np.random.default_rng(rng)
        core = rng.standard_normal(self.ranks)
        sizes = zip(self.shape, self.ranks, strict=True)
        return as_like(
            TuckerPoint(core, tuple(np.linalg.qr(rng.standard_normal(one))[0] for one in sizes)), like
        )

    def from_tensor(self, tensor: Any) -> TuckerPoint:
        """Return a point near an array of all entries, by its higher-order singular value decomposition.

        Its distance is at most √d times the least one.

        Raises
        ------
        InvalidInputError
            For a wrong shape, numbers that are not finite, or a tensor of lower ranks.
        """
        found = numbers("tensor", tensor, self.shape)
        point = truncated(found, [np.eye(n) for n in self.shape], self.ranks)
        return self._checked(point, "the tensor", tensor)

    def from_entries(self, indices: Any, values: Any) -> TuckerPoint:
        """Return a point near the tensor that has some entries and zeros elsewhere: where to begin a completion.

        Parameters
        ----------
        indices : int array, shape (N, d)
        values : array, shape (N,)

        Raises
        ------
        InvalidInputError
            For entries outside, numbers that are not finite, or entries of lower ranks.
        """
        order, places = in_order(indices, self.shape)
        given = numbers("values", values, (len(places),))[order]
        factors = []
        for i, (n, k) in enumerate(zip(self.shape, self.ranks, strict=True)):
            others = [j for j in range(len(self.shape)) if j != i]
            _, columns = np.unique(places[:, others], axis=0, return_inverse=True)
            rows = sp.csr_array((given, (places[:, i], columns.ravel())), (n, int(columns.max()) + 1))
            if min(rows.shape) < k or not given.any():
                raise InvalidInputError(f"the entries give no point of {self}: they have lower ranks.")
            factors.append(np.ascontiguousarray(lanczos_svd(rows, k)[0]))
        core = Entries(self.shape, places, given).partials(np.ones(self.ranks), factors)[0]
        return self._checked(TuckerPoint(core, tuple(factors)), "the tensor of the entries", values)

    def _checked(self, point: TuckerPoint, what: str, given: Any) -> TuckerPoint:
        point = in_precision(point, real_type(given))
        if (reason := self.refusal(point)) is not None:
            raise InvalidInputError(f"{what} gives no point of {self}: {reason}.")
        return as_like(point, given) if ns.namespace(given) is not np else point
