"""The costs of the family, sums over agents who own data: matrix completion, and features that regressions share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from problems.subspace import kernels
from problems.threads import in_pieces
from rmopt.core import AgentSum, InvalidInputError
from rmopt.core.ambient import Array
from rmopt.core.arguments import array, integer, number, sequence
from rmopt.core.matrices import sound
from rmopt.core.memo import Memo
from rmopt.linalg import scaled_inverse

Task = tuple[Array, Array]

# Pieces of columns that may run in parallel; a fixed number, so that rounding does not depend on the machine.
PIECES = 8
# To gather a row of U for an entry takes as long as so many products.
GATHERED = 200


class OwnedData(AgentSum):
    """A sum over agents, minimised over inner weights W; a subclass sets the attributes.

    `parts` are the data of the agents in this process, and `n_rows` is the number of rows of a point.
    """

    point_type = np.ndarray

    parts: dict[int, Any]
    lam: float
    n_rows: int
    _n_agents: int

    @property
    def n_terms(self) -> int:
        return self._n_agents

    @property
    def here(self) -> list[int]:
        return sorted(self.parts)

    def _checked(self, point: Any) -> Array:
        """Return a point as a C-contiguous array, or refuse one with other rows than the data."""
        U = np.ascontiguousarray(point, dtype=float)
        if U.ndim != 2 or len(U) != self.n_rows:
            raise InvalidInputError(
                f"a point needs {self.n_rows} rows, one per row of the data, got {U.shape}."
            )
        return U

    def _part(self, agent: int) -> Any:
        if agent not in self.parts:
            raise InvalidInputError(
                f"the data of agent {agent} are not in this process; here are {self.here}."
            )
        return self.parts[agent]


def shares_out(what: str, count: int, n_agents: int) -> list[slice]:
    """Return consecutive shares for each agent, as many each as can be."""
    if not 1 <= n_agents <= count:
        raise InvalidInputError(
            f"n_agents = {n_agents} must lie between 1 and the number of {what}, {count}."
        )
    return [slice(first, last) for first, last in pairwise(np.arange(n_agents + 1) * count // n_agents)]


class MatrixCompletion(OwnedData):
    """½ ‖P_Ω(U Wᵀ − Y)‖² + λ ‖U Wᵀ − P_Ω(U Wᵀ)‖², minimised over W; a function of the span of U (m × r).

    Mishra et al. 2019, equations 9 to 12; Boumal and Absil 2015. W has a closed form, column by column:
    ((1 − 2λ) Σ u_i u_iᵀ + 2λ UᵀU) w_j = Σ y_ij u_i, the sums over the known entries i of column j. The Euclidean
    gradient is (P_Ω(U Wᵀ − Y) − 2λ P_Ω(U Wᵀ)) W + 2λ U WᵀW; the paper's Table 1 omits the second term, and the
    third has no part in the tangent space of `Grassmann`. The columns are divided evenly among agents.

    Parameters
    ----------
    ratings : sparse array, shape (m, n)
        The known entries, among them stored zeros. Or, where the data of other agents are elsewhere, a mapping from
        agents to their columns.
    n_agents : int
        Agents get consecutive columns, as many each as can be.
    lam : float
        λ, from 0 to below ½: how much entries that are not known are drawn to 0.

    Raises
    ------
    InvalidInputError
        When ratings are not finite or there are none, an agent would have none, or λ is out of range. From `value`
        and `gradient`: when a column has no unique solution, or the point is not finite.

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

    def __init__(self, ratings: Any, n_agents: int = 1, lam: float = 0.0) -> None:
        self.lam, self._n_agents = number("lam", lam, least=0, below=0.5), integer("n_agents", n_agents, 1)
        parts = ratings if isinstance(ratings, Mapping) else dealt(ratings, n_agents)
        self.parts = {agent: known_entries(part) for agent, part in parts.items()}
        if not self.parts:
            raise InvalidInputError(
                "ratings holds no agent; give some to each process, and start no more than those."
            )
        self.n_rows = next(iter(self.parts.values())).shape[0]
        for agent, part in self.parts.items():
            if part.shape[0] != self.n_rows or not 0 <= agent < n_agents:
                raise InvalidInputError(
                    f"agent {agent} has a matrix of shape {part.shape}; all need {self.n_rows} rows, and the agents "
                    f"count from 0 to {n_agents - 1}."
                )
        self._solved = Memo()

    # One agent

    def agent_value(self, point: Array, agent: int) -> float:
        return self._agent(point, agent).total

    def agent_gradient(self, point: Array, agent: int) -> tuple[Array, Array]:
        """Return the Euclidean gradient of an agent's part (m × r), and WᵀW."""
        return self.agent_value_and_gradient(point, agent)[1:]

    def agent_value_and_gradient(self, point: Array, agent: int) -> tuple[float, Array, Array]:
        solved = self._agent(point, agent, with_gradient=True)
        return solved.total, self._gradient(solved, point), solved.curvature

    def weights(self, point: Array, agent: int) -> Array:
        """Return the inner solution W for an agent's columns, shape (n_i, r)."""
        return self._agent(point, agent).inner[0]

    def residual_sum(self, point: Array, agent: int) -> tuple[float, int]:
        """Return ‖P_Ω(U Wᵀ − Y)‖² of an agent, and the number of its known entries."""
        gaps = misfits(self.parts[agent], point, self.weights(point, agent))
        return float(gaps @ gaps), len(gaps)

    def _agent(self, point: Array, agent: int, with_gradient: bool = False) -> Solved:
        return self._solve_columns(self._part(agent), point, f"agent {agent}, ", with_gradient)

    # All columns at once, for batch solvers

    def value(self, point: Array) -> float:
        return self._solve(point).total

    def gradient(self, point: Array) -> Array:
        return self.value_and_gradient(point)[1]

    def value_and_gradient(self, point: Array) -> tuple[float, Array]:
        """Return cost and Euclidean gradient, which come of one pass over the entries."""
        solved = self._solve(point)
        return solved.total, self._gradient(solved, point)

    def hessian(self, point: Array, direction: Array) -> Array:
        """Return the derivative of the Euclidean gradient along a direction, shape (m, r)."""
        solved, known = self._solve(point), self.whole.known
        U, E = np.ascontiguousarray(point), np.ascontiguousarray(direction)
        W, *_ = solved.inner
        rates, parts = np.empty_like(W), np.zeros_like(solved.parts)
        turned = E.T @ U
        given = known, U, turned + turned.T, self.lam

        def turn(i: int, first: int, last: int) -> None:
            kernels.turn_piece(*given, first, last, solved.inner, E, rates, parts[i])

        in_pieces(turn, self._cuts, self.whole.nnz * (U.shape[1] ** 2 + GATHERED))
        result = parts.sum(axis=0)
        if self.lam != 0.0:
            cross = rates.T @ W
            result += 2.0 * self.lam * (E @ solved.curvature + U @ (cross + cross.T))
        return result

    def precondition(self, point: Array, tangent: Array) -> Array:
        """Return ξ (WᵀW)⁻¹ times the mean eigenvalue of WᵀW (Boumal and Absil 2015, section 5).

        Where all entries are known, ξ ↦ ξ WᵀW is the Hessian of the fit alone.
        """
        return scaled_inverse(self._solve(point).curvature, tangent)

    @cached_property
    def whole(self) -> sp.csc_array:
        """The columns of all agents, side by side."""
        if len(self.parts) < self._n_agents:
            raise InvalidInputError(
                f"this process has the data of {len(self.parts)} of {self._n_agents} agents, and a batch solver "
                "needs all; use Gossip."
            )
        parts = [self.parts[agent] for agent in self.here]
        return KnownEntries(sp.hstack(parts, format="csc")) if len(parts) > 1 else parts[0]

    @cached_property
    def _cuts(self) -> Array:
        return pieces_of(self.whole.indptr)

    def _solve(self, point: Array) -> Solved:
        return self._solved.get(point, lambda U: self._solve_columns(self.whole, U, "", True, self._cuts))

    def _solve_columns(
        self, part: KnownEntries, point: Array, where: str, with_gradient: bool, cuts: Array | None = None
    ) -> Solved:
        """Solve columns, with cuts in pieces that run in parallel, and keep then what the Hessian needs."""
        U, pieces, kept = self._checked(point), *((1, 0) if cuts is None else (PIECES, 1))
        n, r = part.shape[1], U.shape[1]
        inner = W, *_ = np.empty((n, r)), np.empty((n * kept, r, r)), np.empty(part.nnz * kept)
        given, parts = (part.known, U, U.T @ U, self.lam), np.zeros((pieces, len(U) * with_gradient, r))

        def solve(i: int, first: int, last: int) -> tuple[float, int]:
            return kernels.solve_piece(*given, first, last, inner, parts[i])

        whole = np.array([0, n])
        found = in_pieces(solve, whole if cuts is None else cuts, part.nnz * (r**2 + GATHERED))
        totals, places = zip(*found, strict=True)
        # A sum in the threads would be rounded by their number.
        total, failed = float(np.sum(totals)), max(places)
        if failed >= 0 and not np.isfinite(U).all():
            raise InvalidInputError(f"{where}the point holds NaN or infinity; look where it comes from.")
        if failed >= 0:
            self._refuse(part, failed, r, where)
        return Solved(total, W.T @ W, inner, parts)

    def _gradient(self, solved: Solved, point: Array) -> Array:
        G = solved.parts.sum(axis=0)
        return G if self.lam == 0.0 else G + 2.0 * self.lam * (point @ solved.curvature)

    def _refuse(self, part: sp.csc_array, column: int, rank: int, where: str) -> None:
        known = int(part.indptr[column + 1] - part.indptr[column])
        raise InvalidInputError(
            f"{where}column {column} with {known} known entries has no unique solution at rank {rank} and "
            f"lam = {self.lam:g}; choose {'lam > 0' if self.lam == 0.0 else 'a larger lam'}, a smaller rank, or "
            "leave out columns with few entries."
        )


class Solved(NamedTuple):
    """What one pass over all columns found at a point."""

    total: float
    curvature: Array
    inner: tuple[Array, Array, Array]
    parts: Array


class KnownEntries(sp.csc_array):
    """Known entries by columns, as `known_entries` makes them: they are not looked at again."""

    @property
    def known(self) -> tuple[Array, Array, Array]:
        """What the kernels take."""
        return self.indptr, self.indices, self.data

    def with_values(self, values: Array) -> KnownEntries:
        """Return the same entries with other values."""
        return KnownEntries((values, self.indices, self.indptr), shape=self.shape)


def known_entries(ratings: Any) -> KnownEntries:
    """Return a sparse array by columns with sorted int32 row numbers and float64 values; stored zeros stay.

    It is refused when it is damaged or has no entries, or an entry is not finite or comes twice.
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
    if table.dtype.kind not in "biuf":
        raise InvalidInputError(f"ratings must be numbers, got entries of type {table.dtype}.")
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
    """Return where pieces of columns with about the same number of entries begin, and where the last one ends."""
    begins = np.searchsorted(indptr, np.linspace(0, indptr[-1], PIECES + 1)[:-1])
    # Not where the entries end: columns without any after the last one are solved too.
    return np.append(begins, len(indptr) - 1).astype(np.int64)


def dealt(ratings: Any, n_agents: int) -> dict[int, KnownEntries]:
    """Return consecutive columns for each agent, as many each as can be."""
    whole = known_entries(ratings)
    parts = {}
    for agent, share in enumerate(shares_out("columns", whole.shape[1], n_agents)):
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


def misfits(part: sp.csc_array, U: Array, W: Array) -> Array:
    """Return u_i · w_j − y_ij for each known entry."""
    return predictions(U, W, part.indices, columns_of(part)) - part.data


class MultitaskFeatures(OwnedData):
    """Σ_t min over w_t of ½ ‖X_t U w_t − y_t‖² + λ ‖w_t‖², a function of the span of U (m × r).

    Mishra et al. 2019, equation 14; the paper's equations 15 and 16 leave λ ‖w_t‖² out of the outer cost, but its
    gradient Σ X_tᵀ(X_t U w_t − y_t) w_tᵀ is that of equation 14. The inner solution is
    (UᵀX_tᵀX_t U + 2λ I) w_t = UᵀX_tᵀ y_t.

    Parameters
    ----------
    tasks : sequence of (array, array)
        Examples X_t, shape (d_t, m), and labels y_t, shape (d_t,). Or, where the data of other agents are elsewhere,
        a mapping from agents to such sequences.
    n_agents : int
        Agents get consecutive tasks, as many each as can be.
    lam : float
        λ, not negative.

    Raises
    ------
    InvalidInputError
        For tasks without examples, of different widths, or with numbers that are not finite; for fewer tasks than
        agents. From `value` and `gradient`: when a task has no unique solution.

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
        self.lam, self._n_agents = number("lam", lam, least=0, most=1e150), integer("n_agents", n_agents, 1)
        if isinstance(tasks, Mapping):
            parts = tasks
        else:
            whole = sequence("tasks", tasks)
            parts = dict(enumerate(whole[share] for share in shares_out("tasks", len(whole), n_agents)))
        self.parts = {agent: TaskGroup(part, f"agent {agent}, ") for agent, part in parts.items()}
        for agent in self.parts:
            integer("the number of an agent", agent, 0, n_agents - 1)
        widths = {part.X.shape[1] for part in self.parts.values()}
        if len(widths) != 1:
            raise InvalidInputError(f"the tasks have {sorted(widths)} features; all need the same number.")
        self.n_rows = widths.pop()
        self._solved = {agent: Memo() for agent in self.parts}

    def agent_value(self, point: Array, agent: int) -> float:
        return self._solve(point, agent).total

    def agent_gradient(self, point: Array, agent: int) -> tuple[Array, Array]:
        """Return the Euclidean gradient of an agent's part (m × r), and WᵀW."""
        solved, group = self._solve(point, agent), self.parts[agent]
        return group.X.T @ (solved.gaps[:, None] * solved.W[group.task]), solved.W.T @ solved.W

    def weights(self, point: Array, agent: int) -> Array:
        """Return the inner solutions w_t of an agent's tasks, shape (n_tasks, r)."""
        return self._solve(point, agent).W.copy()

    def hessian(self, point: Array, direction: Array) -> Array:
        """Return the derivative of the Euclidean gradient along a direction, shape (m, r)."""
        return sum(self._turned(point, np.asarray(direction), agent) for agent in self.here)  # type: ignore[return-value]

    def precondition(self, point: Array, tangent: Array) -> Array:
        """Return ξ (WᵀW)⁻¹ times the mean eigenvalue of WᵀW."""
        curvature = sum(W.T @ W for W in (self.weights(point, agent) for agent in self.here))
        return scaled_inverse(curvature, tangent)

    def _solve(self, point: Array, agent: int) -> Solution:
        group = self._part(agent)
        return self._solved[agent].get(point, lambda U: Solution(group, self._checked(U), self.lam, agent))

    def _turned(self, point: Array, E: Array, agent: int) -> Array:
        """Return an agent's part of the Hessian along E."""
        group, solved = self.parts[agent], self._solve(point, agent)
        W, V, moved = solved.W[group.task], solved.V, group.X @ E
        along = np.einsum("ij,ij->i", moved, W)
        rates = np.linalg.solve(
            solved.systems, -group.sums(moved * solved.gaps[:, None] + V * along[:, None])[..., None]
        )[..., 0][group.task]
        gap_rates = along + np.einsum("ij,ij->i", V, rates)
        return group.X.T @ (gap_rates[:, None] * W + solved.gaps[:, None] * rates)


class TaskGroup:
    """The tasks of one agent, stacked: X (D × m), y, the task of each row, and the first row of each task."""

    def __init__(self, tasks: Sequence[Task], where: str) -> None:
        tasks = [tuple(sequence(f"{where}a task", task)) for task in sequence("tasks", tasks)]
        if any(len(task) != 2 for task in tasks):
            raise InvalidInputError(f"{where}tasks must be pairs of examples X and labels y.")
        if not tasks:
            raise InvalidInputError(f"{where}there are no tasks; choose fewer agents.")
        for place, (X, y) in enumerate(tasks):
            if np.ndim(X) != 2 or np.ndim(y) != 1 or len(X) != len(y) or len(y) == 0:
                raise InvalidInputError(
                    f"{where}task {place}: examples of shape {np.shape(X)} and labels of shape {np.shape(y)} do not "
                    "belong together; each task needs one row and one label per example, and at least one."
                )
            if np.shape(X)[1] != np.shape(tasks[0][0])[1]:
                raise InvalidInputError(
                    f"{where}task {place} has {np.shape(X)[1]} features, task 0 {np.shape(tasks[0][0])[1]}."
                )
        X, y = (
            np.concatenate([array("tasks", part) for part in parts]) for parts in zip(*tasks, strict=True)
        )
        if not all(part.dtype.kind in "iufb" and np.isfinite(part).all() for part in (X, y)):
            raise InvalidInputError(
                f"{where}the examples or labels hold NaN, infinity or text; clean them first."
            )
        self.X, self.y = X.astype(float), y.astype(float)
        sizes = np.array([len(y) for _, y in tasks])
        self.starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
        self.task = np.repeat(np.arange(len(sizes)), sizes)

    def sums(self, rows: Array) -> Array:
        """Return the sums of the rows of each task."""
        return np.add.reduceat(rows, self.starts, axis=0)


class Solution:
    """The inner solutions W of one agent at a point (n_tasks × r), V = X U, the gaps X_t U w_t − y_t and the cost."""

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
