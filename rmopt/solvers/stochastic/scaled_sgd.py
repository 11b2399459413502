"""Matrix completion by stochastic steps on rows of factors, in a scale-invariant metric."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from rmopt.core.ambient import Array
from rmopt.core.arguments import integer, number
from rmopt.core.problem import Problem
from rmopt.core.product import Parts
from rmopt.core.streams import Stream, generator
from rmopt.costs import BilinearSum, OnFactors, squared
from rmopt.errors import InvalidInputError, MissingCapabilityError
from rmopt.kernels import thread_count
from rmopt.kernels.memory import LANES, with_zeros
from rmopt.manifolds import BoundedRank, FixedRankFactors
from rmopt.solvers.run import Solver
from rmopt.solvers.stochastic.step_sizes import StepSizeLike, as_step_size, watched
from rmopt.solvers.threads import in_threads, one_blas_thread

# Bytes of the rows that the entries of a block move, so that they fit into a core's own cache.
CACHED = 2**18
# The size of the factors' numbers at the start, relative to the root of the largest entry.
START = 1e-4
# The least number of diagonals of blocks, for as many threads, if each has enough work to share.
DIAGONALS, WORTH_THREADS = 8, 50_000


class ScaledSGD(Solver):
    """Repeated steps for one known entry, which move a row of A and one of B, scaled by (BᵀB)⁻¹ and (AᵀA)⁻¹.

    For ½ Σ (aᵢ·bⱼ − y)² over known entries, on `FixedRankFactors` or `BoundedRank`. In the metric of
    `FixedRankFactors` convergence does not depend on the condition of the matrix (ScaledSGD, Zhang, Chiu and Zhang
    2022). A step is implicit: with the residual e and the squared length s of the gradient of aᵢ·bⱼ, its factor is
    η e / (1 + η s) instead of η e, so that none is too long (Toulis and Airoldi 2017). The scales are updated before
    each pass, when A and B become balanced factors of the same matrix. Then they are diagonal, and a step costs O(k).

    A pass goes through a grid of blocks of rows and columns. Those of a diagonal share no row or column and run in
    threads, as in LIBMF. The result is bit-identical for any number of threads. From a start in single precision the
    run stays in it, with half the memory and time.

    Parameters
    ----------
    step_size : float, StepSize or callable
        The step size of each pass, numbered from 0, relative to the share of known entries, so that a pass with 1
        corresponds to about a Newton step. With noise take a rule that falls to 0, such as `Cosine`.
    n_epochs : int
        The budget, in passes over the entries.
    penalty : float
        λ: each entry's loss gains λ/2 (‖aᵢ‖² + ‖bⱼ‖²), and the scales gain λ√(mn). The sum is minimised over balanced
        factors alone, AᵀA = BᵀB, to which A and B are changed before each pass: if rows differ much in their numbers
        of entries, other factors have a smaller sum. If λ lowers the rank, take `BoundedRank`.
    damping : float
        The term added to the scales, relative to the largest singular value of the gradient if the residuals were
        noise: small singular values do not move before they exceed the noise of large ones. 0 is the method of Zhang,
        Chiu and Zhang, which needs more entries, or a start close to the solution.

    Raises
    ------
    MissingCapabilityError
        In `run`, for other manifolds and costs.
    InvalidInputError
        In `run`, for a start at which W is 0.

    See Also
    --------
    SGD : other costs, and examples that are not entries.
    TrustRegions : few entries, to rounding.
    problems.subspace.ScaledSGDCompletion : the estimator.

    References
    ----------
    Zhang, Chiu and Zhang, Accelerating SGD for highly ill-conditioned huge-scale online matrix completion,
    NeurIPS (2022). Chin, Zhuang, Juan and Lin, A fast parallel stochastic gradient method for matrix
    factorization in shared memory systems, ACM Transactions on Intelligent Systems and Technology 6 (2015).
    Toulis and Airoldi, Asymptotic and finite-sample properties of estimators based on stochastic gradients,
    Annals of Statistics 45 (2017), https://doi.org/10.1214/16-AOS1506.

    Examples
    --------
    >>> import numpy as np, scipy.sparse as sp
    >>> from rmopt import Problem
    >>> from rmopt.costs import BilinearSum, OnFactors, squared
    >>> from rmopt.manifolds import FixedRankFactors
    >>> from rmopt.solvers import ScaledSGD
    >>> rng = np.random.default_rng(0)
    >>> truth = rng.standard_normal((50, 2)) * [1.0, 1e-4] @ rng.standard_normal((2, 40))
    >>> rows, columns = np.nonzero(rng.random((50, 40)) < 0.5)
    >>> entries = sp.eye_array(50).tocsr()[rows], sp.eye_array(40).tocsr()[columns]
    >>> cost = OnFactors(BilinearSum(*entries, squared, truth[rows, columns]))
    >>> A, B = (
    ...     ScaledSGD()
    ...     .run(Problem(FixedRankFactors(50, 40, 2), cost), random_state=0)
    ...     .point
    ... )
    >>> bool(np.abs(A @ B.T - truth).max() < 1e-6)
    True
    """

    keeps_single = True

    def __init__(
        self, step_size: StepSizeLike = 5.0, *, n_epochs: int = 20, penalty: float = 0.0, damping: float = 3.0
    ) -> None:
        self.step_size, self.n_epochs = as_step_size(step_size), integer("n_epochs", n_epochs)
        self.penalty, self.damping = number("penalty", penalty, least=0), number("damping", damping, least=0)

    def budget(self, problem: Problem) -> int:
        return self.n_epochs

    def check_every(self, problem: Problem) -> int | None:
        return None

    def check_problem(self, problem: Problem) -> None:
        super().check_problem(problem)
        cost: Any = problem.cost.cost if type(problem.cost) is OnFactors else None
        fits = type(problem.manifold) in (FixedRankFactors, BoundedRank) and type(cost) is BilinearSum
        if not fits or cost.loss != squared or not all(map(_are_units, (cost.left, cost.right))):
            raise MissingCapabilityError(
                f"ScaledSGD cannot run {type(problem.cost).__name__} on {problem.manifold}: it is for known entries "
                "on FixedRankFactors or BoundedRank, OnFactors(BilinearSum(left, right, squared, values)) with unit "
                "vectors as rows of left and right; take SGD on FixedRankEmbedded for others."
            )

    def prepare(self, problem: Problem, seed: int) -> "DealtEntries":
        return DealtEntries(problem.cost.cost, problem.manifold, seed)  # type: ignore[attr-defined]

    def start(self, problem: Problem, rng: np.random.Generator) -> Parts:
        """Return random factors of a small W."""
        manifold, values = problem.manifold, problem.cost.cost.targets  # type: ignore[attr-defined]
        size = START * (np.abs(values).max() or 1.0) ** 0.5
        return Parts([size * rng.standard_normal((count, manifold.rank)) for count in manifold.sizes])  # type: ignore[attr-defined]

    def begin(self, work: "DealtEntries", point: Any) -> "EntryState":
        A, B = point
        grams = [side.T @ side for side in (A.astype(np.float64), B.astype(np.float64))]
        if not np.vdot(*grams) > 0.0:
            raise InvalidInputError(
                "the initial factors represent W = 0, at which the steps vanish; start at random ones."
            )
        work.values = work.values.astype(A.dtype)
        A, B = A[work.row_order], B[work.column_order]
        # A pass with steps of length 0.
        still = np.zeros(work.width, A.dtype), np.ones(work.width, A.dtype), A.dtype.type(0)
        return EntryState(A, B, work.pass_over(padded(A), padded(B), *still, 0))

    def point(self, work: "DealtEntries", state: "EntryState") -> Parts:
        A, B = np.empty_like(state.A), np.empty_like(state.B)
        A[work.row_order], B[work.column_order] = state.A, state.B
        return Parts([A, B])

    def advance(self, work: "DealtEntries", state: "EntryState", steps: int) -> "EntryState":
        """Return the state after one pass, or the same one for 0 steps."""
        if not steps:
            return state
        (m, n), count, k, dtype = work.sizes, len(work.values), state.A.shape[1], state.A.dtype
        epoch = state.steps
        A, B, spectrum = balanced(state.A, state.B)
        # That of the full matrix's gradient, if the residuals were noise.
        noise = (state.squares / count) ** 0.5 * (m**0.5 + n**0.5) * (m * n / count) ** 0.5
        scales = np.maximum(spectrum, np.finfo(dtype).eps * spectrum[0])
        scales += self.damping * noise + self.penalty * (m * n) ** 0.5
        eta = watched(self.step_size)(np.array([epoch]))[0] * (m * n / count)
        metric = np.stack([1.0 / scales, 1.0 / (1.0 + eta * self.penalty / scales)])
        A, B, (weights, shrink) = (padded(part.astype(dtype, copy=False)) for part in (A, B, metric))
        squares = work.pass_over(A, B, weights, shrink, dtype.type(eta), epoch)
        if not np.isfinite(squares):
            raise self.diverged(epoch)
        A, B = (np.ascontiguousarray(part[:, :k]) for part in (A, B))
        return EntryState(A, B, squares, state.steps + 1, state.updates + count)


@dataclass(frozen=True)
class EntryState:
    """Factors with their rows in the order of blocks, the squares of the residuals of the last pass, and counters."""

    A: Array
    B: Array
    squares: float
    steps: int = 0
    updates: int = 0


class DealtEntries:
    """Known entries, sorted into a grid of blocks of rows and columns with about equally many entries.

    The grid depends on the sizes and the seed alone. Rows and columns are renumbered block by block, and `row_order`
    and `column_order` hold their old numbers. The entries of a block are in random order and contiguous, as are the
    blocks of a diagonal.
    """

    def __init__(self, terms: BilinearSum, manifold: Any, seed: int) -> None:
        rows, columns, values = terms.left.indices, terms.right.indices, terms.targets
        sizes, rank = manifold.sizes, manifold.rank
        self.sizes, self.seed = sizes, seed
        self.width = -(-rank // LANES) * LANES
        rng, needed = generator(seed, Stream.ORDER), -(-8 * self.width * sum(sizes) // CACHED)
        self.p = p = min(max(needed, DIAGONALS), max(1, len(values) // WORTH_THREADS), *sizes, 2**8)
        self.row_order, rows, row_blocks = _dealt(rows, sizes[0], p, rng)
        self.column_order, columns, column_blocks = _dealt(columns, sizes[1], p, rng)
        block = (column_blocks - row_blocks) % p * p + row_blocks
        order = rng.permutation(len(values))
        order = order[np.argsort(block[order].astype(np.uint16), kind="stable")]
        self.rows, self.columns, self.values = rows[order], columns[order], values[order]
        self.cuts = np.concatenate([[0], np.cumsum(np.bincount(block, minlength=p * p))])

    def pass_over(
        self, A: Array, B: Array, weights: Array, shrink: Array, eta: np.floating[Any], epoch: int
    ) -> float:
        """Move the rows of A and B for each entry, and return the sum of squared residuals, each before its step."""
        # Built from numba's parts.
        from rmopt.kernels.intrinsics import entry_steps

        loop = entry_steps(self.width)
        given = A, B, weights, shrink, self.rows, self.columns, self.values, self.cuts
        squares = np.zeros(self.p * self.p)
        threads = thread_count() if len(self.values) >= WORTH_THREADS * self.p else 1

        def move(first: int, last: int) -> None:
            loop(*given, first, last, eta, squares)

        for diagonal in generator(self.seed, Stream.SCHEDULE, epoch).permutation(self.p):
            begin = diagonal * self.p
            cuts = self.cuts[begin : begin + self.p + 1]
            # Each thread has adjacent blocks, with about as many entries as the others.
            even = np.linspace(cuts[0], cuts[-1], threads + 1)
            ends = (begin + np.searchsorted(0.5 * (cuts[1:] + cuts[:-1]), even)).tolist()
            in_threads(move, ends[:-1], ends[1:])
        return float(squares.sum())


def _are_units(rows: Any) -> bool:
    """Return whether all rows of a sparse array are unit vectors."""
    return np.array_equal(rows.indptr, np.arange(rows.shape[0] + 1)) and bool((rows.data == 1.0).all())


def _dealt(numbers: Array, count: int, p: int, rng: np.random.Generator) -> tuple[Array, Array, Array]:
    """Return rows in random order, and for each entry the place of its row in it and the number of its block."""
    order, place = rng.permutation(count), np.empty(count, dtype=np.int32)
    place[order] = np.arange(count)
    held = np.bincount(numbers, minlength=count)[order]
    blocks = (np.cumsum(held) - held) * p // len(numbers)
    places = place[numbers]
    return order, places, blocks[places]


@one_blas_thread()
def balanced(A: Array, B: Array) -> tuple[Array, Array, Array]:
    """Return factors of ABᵀ with AᵀA = BᵀB diagonal, and the diagonal, the descending singular values."""
    # Each side in its own thread: at k = 64 they take a quarter of a pass.
    (root_A, across_A), (root_B, across_B) = in_threads(_root, (A, B))
    U, values, Vt = np.linalg.svd(root_A.T @ root_B)
    scale = np.sqrt(values)
    turns = across_A @ U * scale, across_B @ Vt.T * scale
    A, B = in_threads(lambda factor, turn: factor @ turn.astype(factor.dtype), (A, B), turns)
    return A, B, values


def _root(factor: Array) -> tuple[Array, Array]:
    """Return R and R⁻ᵀ with RRᵀ = FᵀF, safe for division."""
    factor = factor.astype(np.float64, copy=False)
    values, vectors = np.linalg.eigh(factor.T @ factor)
    values = np.sqrt(np.maximum(values, max(np.finfo(float).eps * values[-1], 1e-300)))
    return vectors * values, vectors / values


def padded(matrix: Array) -> Array:
    """Return a matrix padded by columns of zeros to a multiple of `LANES`."""
    n, k = matrix.shape
    return with_zeros(matrix, (n, -(-k // LANES) * LANES))
