"""The costs of the family, sums over agents with their own data: matrix completion and shared features."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from problems.subspace import kernels
from problems.threads import in_pieces
from problems.validation import table_of_numbers
from rmopt.core import AgentSum, InvalidInputError
from rmopt.core.ambient import Array
from rmopt.core.arguments import integer, number, numbers, one_of, sequence
from rmopt.core.matrices import sound
from rmopt.core.memo import Memo
from rmopt.linalg import scaled_inverse

Task = tuple[Array, Array]

# Pieces of columns that may run in parallel, in a fixed number, so that rounding does not depend on the machine.
PIECES = 8
# The entries that λ draws to 0.
PENALTIES = ("unknown", "all")
# Gathering a row of U for an entry takes as long as this many products.
GATHERED = 200


class OwnedData(AgentSum):
    """A sum over agents, minimised over inner weights W.

    `parts` are the data of the agents in this process, each with `n_rows`, the number of rows of a point.
    """

    point_type = np.ndarray

    def __init__(self, parts: Mapping[int, Any], n_agents: int, lam: float) -> None:
        self.parts, self.lam, self._n_agents = dict(parts), lam, integer("n_agents", n_agents, 1)
        sizes = {part.n_rows for part in self.parts.values()}
        if len(sizes) != 1 or not set(self.parts) <= set(range(n_agents)):
            raise InvalidInputError(
                f"the agents {self.here} have data of {sorted(sizes)} rows; there must be some, all with the same "
                f"number of rows, and agents count from 0 to {n_agents - 1}."
            )
        self.n_rows: int = sizes.pop()
        self._solved = {agent: Memo() for agent in self.parts}

    @abstractmethod
    def _solve(self, U: Array, agent: int) -> Any:
        """Return an agent's part at a point: `total`, `gradient`, `curvature` WᵀW, and the inner solution `W`."""

    @abstractmethod
    def _turned(self, U: Array, E: Array, agent: int) -> Array:
        """Return the derivative of an agent's part of the gradient along E."""

    def _at(self, point: Array, agent: int) -> Any:
        if agent not in self.parts:
            raise InvalidInputError(
                f"the data of agent {agent} are not in this process, which has those of {self.here}; a batch solver "
                "needs all, take Gossip."
            )
        return self._solved[agent].get(point, lambda U: self._solve(self._checked(U), agent))

    def _checked(self, point: Any) -> Array:
        """Return a point as a C-contiguous array, and refuse one with other rows than the data."""
        U = np.ascontiguousarray(point, dtype=float)
        if U.ndim != 2 or len(U) != self.n_rows:
            raise InvalidInputError(
                f"a point needs {self.n_rows} rows, one per row of the data, got {U.shape}."
            )
        return U

    def _solutions(self, point: Array) -> list[Any]:
        return [self._at(point, agent) for agent in range(self._n_agents)]

    def value(self, point: Array) -> float:
        return float(sum(solved.total for solved in self._solutions(point)))

    def gradient(self, point: Array) -> Array:
        return sum(solved.gradient for solved in self._solutions(point))

    def hessian(self, point: Array, direction: Array) -> Array:
        """Return the derivative of the Euclidean gradient along a direction, shape (m, r)."""
        U, E = self._checked(point), np.ascontiguousarray(direction)
        return sum(self._turned(U, E, agent) for agent in range(self._n_agents))  # type: ignore[return-value]

    def precondition(self, point: Array, tangent: Array) -> Array:
        """Return ξ (WᵀW)⁻¹ times the mean eigenvalue of WᵀW (Boumal and Absil 2015, section 5).

        If all entries are known, ξ ↦ ξ WᵀW is the Hessian of the fit alone.
        """
        return scaled_inverse(sum(solved.curvature for solved in self._solutions(point)), tangent)

    @property
    def n_terms(self) -> int:
        return self._n_agents

    @property
    def here(self) -> list[int]:
        return sorted(self.parts)

    def agent_value(self, point: Array, agent: int) -> float:
        return self._at(point, agent).total

    def agent_gradient(self, point: Array, agent: int) -> tuple[Array, Array]:
        """Return the Euclidean gradient of an agent's part (m × r), and WᵀW."""
        solved = self._at(point, agent)
        return solved.gradient.copy(), solved.curvature.copy()

    def weights(self, point: Array, agent: int) -> Array:
        """Return the inner solution W for an agent's columns or tasks, shape (n_i, r)."""
        return self._at(point, agent).W.copy()


def shares_out(count: int, n_agents: int) -> list[slice]:
    """Return consecutive, nearly equal shares of columns or tasks for each agent, none of them empty."""
    integer("n_agents", n_agents, 1, count)
    return [slice(first, last) for first, last in pairwise(np.arange(n_agents + 1) * count // n_agents)]


class MatrixCompletion(OwnedData):
    """½ ‖P_Ω(U Wᵀ − Y)‖² + λ ‖U Wᵀ − P_Ω(U Wᵀ)‖², minimised over W; a function of the span of U (m × r).

    Mishra et al. 2019, equations 9 to 12; Boumal and Absil 2015. W has a closed form, column by column:
    ((1 − 2λ) Σ u_i u_iᵀ + 2λ UᵀU) w_j = Σ y_ij u_i, the sums over the known entries i of column j. The Euclidean
    gradient is (P_Ω(U Wᵀ − Y) − 2λ P_Ω(U Wᵀ)) W + 2λ U WᵀW. The paper's Table 1 omits the second term, and the third
    is normal to the tangent space of `Grassmann`. The columns are divided evenly among agents.

    Parameters
    ----------
    ratings : sparse array, shape (m, n)
        The known entries, including stored zeros. If the data of other agents are elsewhere, a mapping from agents to
        their columns.
    n_agents : int
        Number of agents, with consecutive, nearly equal shares of the columns.
    lam : float
        λ, from 0 to below ½, which draws unknown entries towards 0.
    penalty : {"unknown", "all"}
        With "all", λ ‖U Wᵀ‖² instead of the second term, which draws known entries towards 0 too.

    Raises
    ------
    InvalidInputError
        If ratings are not finite or there are none, an agent would have none, or λ is out of range. From `value` and
        `gradient` if a column has no unique solution, or the point is not finite.

    Examples
    --------
    >>> import numpy as np, scipy.sparse as sp
    >>> from problems.subspace import MatrixCompletion
    >>> rng = np.random.default_rng(0)
    >>> truth = rng.standard_normal((20, 1)) @ rng.standard_normal((1, 30))
    >>> cost = MatrixCompletion(sp.csc_array(truth * (rng.random((20, 30)) < 0.6)))
    >>> U = np.linalg.qr(truth[:, :1])[0]
    >>> bool(cost.value(U) < 1e-20), bool(np.allclose(U @ cost.weights(U, 0).T, truth))
    (True, True)
    """

    def __init__(self, ratings: Any, n_agents: int = 1, lam: float = 0.0, penalty: str = "unknown") -> None:
        parts = ratings if isinstance(ratings, Mapping) else dealt(ratings, n_agents)
        parts = {agent: known_entries(part) for agent, part in parts.items()}
        super().__init__(parts, n_agents, number("lam", lam, least=0, below=0.5))
        self.weight = 1.0 - 2.0 * lam * (one_of("penalty", penalty, PENALTIES) == "unknown")

    def residual_sum(self, point: Array, agent: int) -> tuple[float, int]:
        """Return ‖P_Ω(U Wᵀ − Y)‖² of an agent, and the number of its known entries."""
        part, W = self.parts[agent], self.weights(point, agent)
        gaps = predictions(point, W, part.indices, columns_of(part)) - part.data
        return float(gaps @ gaps), len(gaps)

    def _solve(self, U: Array, agent: int, keep: bool = False) -> "Solved":
        """Solve columns in pieces that run in parallel, and store the data for the Hessian of a single agent."""
        part, keep = self.parts[agent], keep or self._n_agents == 1
        n, r = part.shape[1], U.shape[1]
        inner = W, *_ = np.empty((n, r)), np.empty((n * keep, r, r)), np.empty(part.nnz * keep)
        cuts = self._cuts(part)
        parts = np.zeros((len(cuts) - 1, *U.shape))
        given = part.known, U, U.T @ U, self.lam, self.weight

        def solve(i: int, first: int, last: int) -> tuple[float, int]:
            return kernels.solve_piece(*given, first, last, inner, parts[i])

        totals, places = zip(*in_pieces(solve, cuts, part.nnz * (r**2 + GATHERED)), strict=True)
        failed = max(places)
        if failed >= 0:
            where = f"agent {agent}, " * (self._n_agents > 1)
            if not np.isfinite(U).all():
                raise InvalidInputError(
                    f"{where}the point holds NaN or infinity; find out where it comes from."
                )
            known = int(part.indptr[failed + 1] - part.indptr[failed])
            raise InvalidInputError(
                f"{where}column {failed} with {known} known entries has no unique solution at rank {r} and "
                f"lam = {self.lam:g}; choose a larger lam, a smaller rank, or leave out columns with few entries."
            )
        gradient, curvature = parts.sum(axis=0), W.T @ W
        if self.lam != 0.0:
            gradient += 2.0 * self.lam * (U @ curvature)
        # The rounding of a sum in the threads would depend on their number.
        return Solved(float(np.sum(totals)), gradient, curvature, W, inner)

    def _turned(self, U: Array, E: Array, agent: int) -> Array:
        solved = self._at(U, agent) if self._n_agents == 1 else self._solve(U, agent, keep=True)
        part = self.parts[agent]
        cuts, turned = self._cuts(part), E.T @ U
        rates, parts = np.empty_like(solved.W), np.zeros((len(cuts) - 1, *U.shape))
        given = part.known, U, turned + turned.T, self.lam, self.weight

        def turn(i: int, first: int, last: int) -> None:
            kernels.turn_piece(*given, first, last, solved.inner, E, rates, parts[i])

        in_pieces(turn, cuts, part.nnz * (U.shape[1] ** 2 + GATHERED))
        result = parts.sum(axis=0)
        if self.lam != 0.0:
            cross = rates.T @ solved.W
            result += 2.0 * self.lam * (E @ solved.curvature + U @ (cross + cross.T))
        return result

    def _cuts(self, part: "KnownEntries") -> Array:
        """Return the starts of pieces of columns, a single piece for one of several agents."""
        return pieces_of(part.indptr) if self._n_agents == 1 else np.array([0, part.shape[1]])


class Solved(NamedTuple):
    """The result of one pass over columns at a point. `inner` is for the Hessian."""

    total: float
    gradient: Array
    curvature: Array
    W: Array
    inner: tuple[Array, Array, Array]


class KnownEntries(sp.csc_array):
    """Known entries by columns, as from `known_entries`, which are not checked again."""

    @property
    def n_rows(self) -> int:
        """The number of rows."""
        return int(self.shape[0])

    @property
    def known(self) -> tuple[Array, Array, Array]:
        """The arguments of the kernels."""
        return self.indptr, self.indices, self.data

    def with_values(self, values: Array) -> "KnownEntries":
        """Return the same entries with other values."""
        return KnownEntries((values, self.indices, self.indptr), shape=self.shape)


def known_entries(ratings: Any) -> KnownEntries:
    """Return a sparse array by columns with sorted int32 row numbers and float64 values. Stored zeros stay.

    It is refused if it is damaged or has no entries, or if an entry is not finite or comes twice.
    """
    if isinstance(ratings, KnownEntries):
        return ratings
    if not sp.issparse(ratings) or ratings.ndim != 2:
        raise InvalidInputError(
            f"ratings must be a bundle or a scipy.sparse array of the known entries, got {type(ratings).__name__}; "
            "problems.data.load(ratings) makes a bundle of a frame or a dict of columns, and "
            "scipy.sparse.coo_array((values, (rows, columns)), shape=shape) an array."
        )
    table = sp.coo_array(sound("ratings", ratings))
    found = sp.csc_array(table)
    if found.nnz != table.nnz:
        raise InvalidInputError(
            f"{table.nnz - found.nnz} entries come twice; keep one value for each pair of row and column."
        )
    found.sort_indices()
    if found.nnz == 0:
        raise InvalidInputError(f"the ratings of shape {found.shape} hold no known entry.")
    values = found.data.astype(np.float64)
    if not np.isfinite(values).all():
        raise InvalidInputError("the ratings hold NaN or infinity; leave unknown entries out instead.")
    return KnownEntries(
        (values, found.indices.astype(np.int32), found.indptr.astype(np.int64)), shape=found.shape
    )


def pieces_of(indptr: Array) -> Array:
    """Return the starts of pieces of columns with about equally many entries, and the end of the last one."""
    begins = np.searchsorted(indptr, np.linspace(0, indptr[-1], PIECES + 1)[:-1])
    # Not the end of the entries: trailing columns without any are solved too.
    return np.append(begins, len(indptr) - 1).astype(np.int64)


def dealt(ratings: Any, n_agents: int) -> dict[int, KnownEntries]:
    """Return consecutive, nearly equal shares of columns for each agent."""
    whole = known_entries(ratings)
    parts = {}
    for agent, share in enumerate(shares_out(whole.shape[1], n_agents)):
        parts[agent] = whole[:, share]
        if parts[agent].nnz == 0:
            raise InvalidInputError(
                f"agent {agent} (columns {share.start} to {share.stop - 1}) would have no known entry; choose fewer "
                "agents, or hold out fewer entries."
            )
    return parts


def columns_of(part: sp.csc_array) -> Array:
    """Return the column number of each entry."""
    return np.repeat(np.arange(part.shape[1], dtype=np.int32), np.diff(part.indptr))


def predictions(U: Array, W: Array, rows: Array, columns: Array) -> Array:
    """Return u_i · w_j for pairs of a row and a column."""
    out = np.empty(len(rows))
    kernels.predicted(rows, columns, np.ascontiguousarray(U), np.ascontiguousarray(W), out)
    return out


class MultitaskFeatures(OwnedData):
    """Σ_t min over w_t of ½ ‖X_t U w_t − y_t‖² + λ ‖w_t‖², a function of the span of U (m × r).

    Mishra et al. 2019, equation 14. The paper's equations 15 and 16 leave λ ‖w_t‖² out of the outer cost, but its
    gradient Σ X_tᵀ(X_t U w_t − y_t) w_tᵀ is that of equation 14. The inner solution is (UᵀX_tᵀX_t U + 2λ I) w_t =
    UᵀX_tᵀ y_t.

    Parameters
    ----------
    tasks : sequence of (array, array)
        Examples X_t, shape (d_t, m), and labels y_t, shape (d_t,). If the data of other agents are elsewhere, a
        mapping from agents to such sequences.
    n_agents : int
        Number of agents, with consecutive, nearly equal shares of the tasks.
    lam : float
        λ, not negative.

    Raises
    ------
    InvalidInputError
        For tasks without examples, of different widths, or with numbers that are not finite, and for fewer tasks than
        agents. From `value` and `gradient` if a task has no unique solution.

    Examples
    --------
    >>> import numpy as np
    >>> from rmopt import Problem
    >>> from rmopt.manifolds import Grassmann
    >>> from rmopt.solvers import TrustRegions
    >>> from problems.subspace import MultitaskFeatures
    >>> rng = np.random.default_rng(0)
    >>> U = np.linalg.qr(rng.standard_normal((6, 2)))[0]
    >>> examples = [rng.standard_normal((10, 6)) for _ in range(5)]
    >>> cost = MultitaskFeatures([(X, X @ U @ rng.standard_normal(2)) for X in examples])
    >>> found = TrustRegions().run(Problem(Grassmann(6, 2), cost), random_state=0).point
    >>> bool(np.allclose(found @ found.T, U @ U.T))
    True
    """

    def __init__(
        self, tasks: Sequence[Task] | Mapping[int, Sequence[Task]], n_agents: int = 1, lam: float = 0.0
    ) -> None:
        if not isinstance(tasks, Mapping):
            whole = sequence("tasks", tasks)
            tasks = dict(enumerate(whole[share] for share in shares_out(len(whole), n_agents)))
        parts = {agent: TaskGroup(part, f"agent {agent}, ") for agent, part in tasks.items()}
        super().__init__(parts, n_agents, number("lam", lam, least=0, most=1e150))

    def _solve(self, U: Array, agent: int) -> "Solution":
        return Solution(self.parts[agent], U, self.lam, agent)

    def _turned(self, U: Array, E: Array, agent: int) -> Array:
        group, solved = self.parts[agent], self._at(U, agent)
        W, V, moved = solved.W[group.task], solved.V, group.X @ E
        along = np.einsum("ij,ij->i", moved, W)
        rates = np.linalg.solve(
            solved.systems, -group.sums(moved * solved.gaps[:, None] + V * along[:, None])[..., None]
        )[..., 0][group.task]
        gap_rates = along + np.einsum("ij,ij->i", V, rates)
        return group.X.T @ (gap_rates[:, None] * W + solved.gaps[:, None] * rates)


class TaskGroup:
    """The tasks of one agent, stacked: X (D × m), y, the task of each row, and the first row of each task."""

    def __init__(self, tasks: Sequence[Task], where: str = "") -> None:
        examples, labels = [], []
        for place, task in enumerate(tasks):
            if not isinstance(task, tuple | list) or len(task) != 2:
                raise InvalidInputError(f"{where}task {place} must be a pair of X and y.")
            X, y = task
            examples.append(table_of_numbers(f"{where}X of task {place}", X, sparse=False))
            labels.append(numbers(f"{where}y of task {place}", y, (len(examples[-1]),)))
        if len({X.shape[1] for X in examples}) != 1:
            raise InvalidInputError(f"{where}there must be tasks, all with the same number of features.")
        self.X, self.y, self.n_rows = np.concatenate(examples), np.concatenate(labels), examples[0].shape[1]
        sizes = [len(y) for y in labels]
        self.starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
        self.task = np.repeat(np.arange(len(sizes)), sizes)

    def sums(self, rows: Array) -> Array:
        """Return the sums of the rows of each task."""
        return np.add.reduceat(rows, self.starts, axis=0)


class Solution:
    """The inner solutions W of one agent at a point (n_tasks × r), V = X U, the gaps X_t U w_t − y_t, and more."""

    def __init__(self, group: TaskGroup, U: Array, lam: float, agent: int) -> None:
        self.V = group.X @ U
        r = U.shape[1]
        self.systems = group.sums(self.V[:, :, None] * self.V[:, None, :]) + 2.0 * lam * np.eye(r)
        singular = np.linalg.cond(self.systems) > 1e14
        if singular.any():
            number = int(np.argmax(singular))
            raise InvalidInputError(
                f"agent {agent}, task {number} with {int(np.sum(group.task == number))} examples has no unique "
                f"solution at rank {r} and lam = {lam:g}; choose lam > 0 or a smaller rank."
            )
        right = group.sums(self.V * group.y[:, None])
        self.W = np.linalg.solve(self.systems, right[..., None])[..., 0]
        self.gaps = np.einsum("ij,ij->i", self.V, self.W[group.task]) - group.y
        self.total = float(0.5 * self.gaps @ self.gaps + lam * np.sum(self.W**2))
        self.X, self.task = group.X, group.task

    @cached_property
    def gradient(self) -> Array:
        """The Euclidean gradient."""
        return self.X.T @ (self.gaps[:, None] * self.W[self.task])

    @property
    def curvature(self) -> Array:
        """WᵀW."""
        return self.W.T @ self.W
