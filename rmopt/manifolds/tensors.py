"""Tensors of fixed multilinear rank and tensor trains, with the metric of the ambient space."""

from abc import abstractmethod
from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
import scipy.sparse as sp

from rmopt import namespaces as ns
from rmopt.core.ambient import Array
from rmopt.core.arguments import integer, numbers, sequence, shown
from rmopt.core.manifold import Manifold, OverField
from rmopt.core.points import as_like, in_precision, is_finite
from rmopt.core.retraction import Retraction
from rmopt.core.tensors import (
    Entries,
    Form,
    TensorPoint,
    TensorTangent,
    TrainPoint,
    Tucker,
    TuckerPoint,
    bent_at,
    in_order,
    multiplied,
    partials_at,
    tall,
    unfolding,
)
from rmopt.errors import InvalidInputError
from rmopt.linalg import lanczos_svd, leave_span
from rmopt.retractions.tensors import (
    HOSVD,
    TRAIN_RETRACTIONS,
    TTSVD,
    TUCKER_RETRACTIONS,
    truncated,
)


class TensorManifold(OverField, Manifold):
    """Real tensors of fixed ranks as a submanifold of all tensors, with points as multilinear functions of arrays.

    Attributes
    ----------
    shape, ranks : tuple of int
    """

    shape: tuple[int, ...]
    ranks: tuple[int, ...]

    def _take_shape(self, shape: Any, ranks: Any, fewer: int) -> None:
        """Store sizes and ranks, and refuse invalid ones."""
        sizes, wanted = sequence("shape", shape), sequence("ranks", ranks)
        if len(sizes) < 2 or len(sizes) != len(wanted) + fewer:
            raise InvalidInputError(
                f"shape = {shown(shape)} and ranks = {shown(ranks)} must be of two or more axes, and as many ranks"
                f"{' less one' if fewer else ''}."
            )
        self.shape = tuple(integer("a size in shape", n, 1) for n in sizes)
        self.ranks = tuple(integer("a rank", k, 1) for k in wanted)
        for k, most in zip(self.ranks, self._most(), strict=True):
            if k > most:
                raise InvalidInputError(
                    f"ranks = {self.ranks} are out of range for {self.shape}: with the others {k} may be at "
                    f"most {most}; choose a smaller one."
                )

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.shape}, {self.ranks})"

    # The parts specific to the two kinds.

    @abstractmethod
    def _most(self) -> list[int]:
        """Return the largest ranks that the others allow."""

    @abstractmethod
    def _shapes(self) -> list[tuple[int, ...]]:
        """Return the shapes of a point's arrays."""

    @abstractmethod
    def _frames(self, point: Any) -> list[Array]:
        """Return the matrices of a point that have orthonormal columns."""

    @abstractmethod
    def _spectra(self, point: Any) -> list[Array]:
        """Return small matrices with the singular values of the tensor's unfoldings."""

    # The tangent space

    def projection(self, point: Any, ambient: Any) -> TensorTangent:
        return point.tangent_by(partials_at(point, ambient))

    def inner_product(
        self, point: Any, tangent_vector_a: TensorTangent, tangent_vector_b: TensorTangent
    ) -> float:
        return float(self.inner(point, tangent_vector_a, tangent_vector_b))

    def embedding(self, point: Any, tangent_vector: TensorTangent) -> Form:
        return point.move(tangent_vector)

    def embed_point(self, point: Any) -> Form:
        return point.as_ambient()

    def zero_vector(self, point: Any) -> TensorTangent:
        return TensorTangent(tuple(ns.zeros(part.shape, part) for part in point.parts))

    # Points

    def check_point(self, point: Any) -> str | None:
        if not isinstance(point, TensorPoint) or not isinstance(point, self.point_type):
            return f"a point of {self} is a {self.point_type.__name__}, not {type(point).__name__}"
        shapes = [tuple(part.shape) for part in point.parts]
        if shapes != self._shapes():
            return f"its arrays have shapes {shapes}, not {self._shapes()}"
        if len({ns.namespace(part) for part in point.parts}) > 1:
            return "its arrays are of several libraries"
        for part in point.parts:
            if (reason := self._other_field(part)) is not None:
                return reason
        if not is_finite(point):
            return "one of its arrays holds NaN or infinity"
        for i, U in enumerate(self._frames(point)):
            error = np.abs(ns.to_numpy(U.T @ U) - np.eye(U.shape[1])).max()
            if error > ns.slack(1e-10, U):
                return f"along axis {i} it is not orthonormal: |UᵀU − I| reaches {error:.1e}"
        return self.refusal(point)

    def refusal(self, point: Any) -> str | None:
        """Return why arrays of the right shapes are not a point, because of a lower rank, or None."""
        for i, matrix in enumerate(self._spectra(point)):
            sigma = ns.to_numpy(ns.namespace(matrix).linalg.svdvals(matrix))
            if ns.rank_of(sigma) < self.ranks[i]:
                spread = f"singular values run from {sigma[0]:.1e} to {sigma[-1]:.1e}"
                return f"the rank along axis {i} is below {self.ranks[i]}, for {spread}; choose lower ranks"
        return None

    def _checked(self, point: Any, what: str, given: Any) -> Any:
        point = in_precision(point, ns.real_type(given))
        if (reason := self.refusal(point)) is not None:
            raise InvalidInputError(f"{what} gives no point of {self}: {reason}.")
        return as_like(point, given) if ns.namespace(given) is not np else point


class FixedMultilinearRank(TensorManifold):
    """Real tensors of fixed multilinear rank (Tucker) as a submanifold of all tensors.

    Points are `TuckerPoint`: a core C and orthonormal factors Uᵢ. A tangent vector holds a move of the core, and
    moves of the factors that are orthogonal to them. A cost returns its gradient as an array of all entries, as a
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
    rmopt.costs.EntrySum : losses on known entries.
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
    retractions = TUCKER_RETRACTIONS

    def __init__(self, shape: Sequence[int], ranks: Sequence[int]) -> None:
        self._take_shape(shape, ranks, 0)

    def _most(self) -> list[int]:
        return [min(n, prod(self.ranks) // k) for n, k in zip(self.shape, self.ranks, strict=True)]

    def _shapes(self) -> list[tuple[int, ...]]:
        return [self.ranks, *zip(self.shape, self.ranks, strict=True)]

    def _frames(self, point: TuckerPoint) -> list[Array]:
        return list(point.factors)

    def _spectra(self, point: TuckerPoint) -> list[Array]:
        return [unfolding(point.core, i) for i in range(len(self.ranks))]

    @property
    def dim(self) -> int:
        return prod(self.ranks) + sum((n - k) * k for n, k in zip(self.shape, self.ranks, strict=True))

    # The tangent space

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

    def euclidean_to_riemannian_hessian(
        self,
        point: TuckerPoint,
        euclidean_gradient: Any,
        euclidean_hessian: Any,
        tangent_vector: TensorTangent,
    ) -> TensorTangent:
        """Return the Riemannian Hessian, from the changes of the derivatives by core and factors.

        With moves V of the factors and W of those of the gradient, the core moves by that of its derivative minus C
        ×ᵢ VᵢᵀWᵢ, and each factor by (P⊥ Ḋᵢ − Wᵢ Cᵢ Ċᵢᵀ)(Cᵢ Cᵢᵀ)⁻¹.
        """
        flat = partials_at(point, euclidean_hessian)
        bent = bent_at(point, euclidean_gradient, point.move(tangent_vector))
        _, *along = self.projection(point, euclidean_gradient).parts
        (by_core, *by_factors), (turned, *turns) = (
            [a + b for a, b in zip(flat, bent, strict=True)],
            tangent_vector.parts,
        )
        axes = range(len(self.shape))
        for i, (V, W) in enumerate(zip(turns, along, strict=True)):
            by_core = by_core - multiplied(point.core, [V.T @ W if j == i else None for j in axes])
            by_factors[i] = by_factors[i] - W @ (unfolding(point.core, i) @ unfolding(turned, i).T)
        return point.tangent_by([by_core, *by_factors])

    # Points

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
        """Return a point near the tensor with some entries and zeros elsewhere, as the start of a completion.

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
        core = Tucker(np.ones(self.ranks), factors).partials(Entries(self.shape, places, given))[0]
        return self._checked(TuckerPoint(core, tuple(factors)), "the tensor of the entries", values)


class TensorTrain(TensorManifold):
    """Real tensor trains of fixed ranks as a submanifold of all tensors.

    Points are `TrainPoint`, whose cores except the last have orthonormal columns. A tangent vector holds a move of
    each core, orthogonal to it except for the last. A cost returns its gradient as on `FixedMultilinearRank`.
    Automatic costs are functions of the cores. Second derivatives are replaced by differences of gradients.

    Parameters
    ----------
    shape : sequence of int
        Sizes of the axes, two or more.
    ranks : sequence of int
        The ranks between neighbouring axes, one fewer than axes.

    See Also
    --------
    FixedMultilinearRank : for few axes, with rᵈ numbers in a point instead of d r².

    References
    ----------
    Steinlechner, Riemannian optimization for high-dimensional tensor completion, SIAM J. Sci. Comput. 38 (2016),
    https://doi.org/10.1137/15M1010506. Holtz, Rohwedder and Schneider, On manifolds of tensors of fixed TT-rank,
    Numerische Mathematik 120 (2012), https://doi.org/10.1007/s00211-011-0419-7.

    Examples
    --------
    >>> import numpy as np
    >>> from rmopt.manifolds import TensorTrain
    >>> manifold = TensorTrain((6, 7, 8, 9), (2, 3, 2))
    >>> X = manifold.from_tensor(np.random.default_rng(0).standard_normal((6, 7, 8, 9)))
    >>> [core.shape for core in X.cores], manifold.dim
    ([(1, 6, 2), (2, 7, 3), (3, 8, 2), (2, 9, 1)], 103)
    """

    point_type = TrainPoint
    default_retraction: Retraction = TTSVD()
    retractions = TRAIN_RETRACTIONS

    def __init__(self, shape: Sequence[int], ranks: Sequence[int]) -> None:
        self._take_shape(shape, ranks, 1)

    def _most(self) -> list[int]:
        ends = [1, *self.ranks, 1]
        pairs = zip(ends, self.shape, self.shape[1:], ends[2:], strict=False)
        return [min(left * n, m * right) for left, n, m, right in pairs]

    def _shapes(self) -> list[tuple[int, ...]]:
        return [*zip((1, *self.ranks), self.shape, (*self.ranks, 1), strict=True)]

    def _frames(self, point: TrainPoint) -> list[Array]:
        return [tall(core) for core in point.cores[:-1]]

    def _spectra(self, point: TrainPoint) -> list[Array]:
        found = [ns.eye(1, point.cores[0])]
        for core in point.cores[:0:-1]:
            xp = ns.namespace(core)
            flat = xp.reshape(xp.tensordot(core, found[-1], axes=1), (core.shape[0], -1))
            found.append(xp.linalg.qr(flat.T)[1].T)
        return found[:0:-1]

    @property
    def dim(self) -> int:
        return sum(map(prod, self._shapes())) - sum(k * k for k in self.ranks)

    def to_tangent_space(self, point: TrainPoint, vector: TensorTangent) -> TensorTangent:
        pairs = zip(point.cores[:-1], vector.parts[:-1], strict=True)
        moves = [ns.namespace(V).reshape(leave_span(tall(core), tall(V)), V.shape) for core, V in pairs]
        return TensorTangent((*moves, vector.parts[-1]))

    def inner(
        self, point: TrainPoint, tangent_vector_a: TensorTangent, tangent_vector_b: TensorTangent
    ) -> Any:
        triples = zip(tangent_vector_a.parts, tangent_vector_b.parts, point.grams(), strict=True)
        dots = [ns.real_dot(tall(a).T @ tall(b), gram) for a, b, gram in triples]
        return sum(dots[1:], start=dots[0])

    def random_point(self, rng: np.random.Generator | None = None, like: Any = None) -> TrainPoint:
        """Return a point with uniformly distributed orthonormal cores and a last core of standard normal numbers."""
        rng = np.random.default_rng(rng)
        *frames, last = (rng.standard_normal(one) for one in self._shapes())
        cores = [np.linalg.qr(tall(one))[0].reshape(one.shape) for one in frames]
        return as_like(TrainPoint((*cores, last)), like)

    def from_tensor(self, tensor: Any) -> TrainPoint:
        """Return a point near an array of all entries: its distance is at most √(d − 1) times the least one.

        Raises
        ------
        InvalidInputError
            For a wrong shape, numbers that are not finite, or a tensor of lower ranks.
        """
        rest, cores = numbers("tensor", tensor, self.shape).reshape(1, -1), []
        for n, k in zip(self.shape, self.ranks, strict=False):
            rows = len(rest)
            U, values, Vt = np.linalg.svd(rest.reshape(rows * n, -1), full_matrices=False)
            cores.append(U[:, :k].reshape(rows, n, k))
            rest = values[:k, None] * Vt[:k]
        return self._checked(TrainPoint((*cores, rest[:, :, None])), "the tensor", tensor)

    def from_entries(self, indices: Any, values: Any) -> TrainPoint:
        """Return a point near the tensor with some entries and zeros elsewhere, as `FixedMultilinearRank` does.

        Parameters
        ----------
        indices : int array, shape (N, d)
        values : array, shape (N,)
        """
        sizes = [min(n, k * r) for k, n, r in self._shapes()]
        X = FixedMultilinearRank(self.shape, sizes).from_entries(indices, values)
        inner = TensorTrain(X.core.shape, self.ranks).from_tensor(X.core)
        cores = [np.einsum("aib,ji->ajb", core, U) for core, U in zip(inner.cores, X.factors, strict=True)]
        return self._checked(TrainPoint(tuple(cores)), "the tensor of the entries", values)
