"""What outsiders found after the first tests had passed, each with parts that nobody here had written."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from problems.ranking import LabelRanking
from rmopt import InvalidInputError, Problem
from rmopt.checks import check_cost
from rmopt.core import Cost
from rmopt.core.identity import fingerprint
from rmopt.costs import BilinearSum, squared
from rmopt.manifolds import Euclidean, FixedRankEmbedded, Grassmann
from rmopt.solvers import SGD, RankIncremental, Recorder

D = np.diag(np.arange(1.0, 8.0))


class Rayleigh(Cost):
    def value(self, point: Any) -> Any:
        return -0.5 * float(np.vdot(point, D @ point))

    def gradient(self, point: Any) -> Any:
        return -D @ point


def pairs() -> BilinearSum:
    rng = np.random.default_rng(0)
    left, right = rng.standard_normal((40, 9)), rng.standard_normal((40, 7))
    return BilinearSum(left, right, squared, rng.standard_normal(40))


@pytest.mark.parametrize("found", [np.ones(1), None, 1j, "x"])
def test_values_are_real_numbers(found: Any) -> None:
    class Strange(Rayleigh):
        def value(self, point: Any) -> Any:
            return found

    with pytest.raises(InvalidInputError, match=r"the value of Strange is .*, not a real number"):
        check_cost(Problem(Grassmann(7, 2), Strange()))


def test_complex_numbers_are_refused_in_gradients_and_starts() -> None:
    class Turned(Rayleigh):
        def gradient(self, point: Any) -> Any:
            return -D @ point + 1j

    problem = Problem(Grassmann(7, 2), Turned())
    for run in (check_cost, lambda problem: SGD(0.02, max_iter=20).run(problem, random_state=0)):
        with pytest.raises(InvalidInputError, match="gradient of Turned is complex"):
            run(problem)
    with pytest.raises(InvalidInputError, match=r"initial point .*(complex|real)"):
        SGD(0.02).run(Problem(Euclidean(7, 2), Rayleigh()), np.ones((7, 2)) + 0j)


def test_a_value_that_depends_on_the_basis_now_and_then() -> None:
    class Jumping(Rayleigh):
        def value(self, point: Any) -> float:
            return super().value(point) + (point[0, 0] > 0.3)

    problem = Problem(Grassmann(7, 2), Jumping())
    assert sum(not all(check_cost(problem, rng)) for rng in range(10)) >= 4


def test_labels_are_zeros_and_ones() -> None:
    X, Y = np.eye(4), np.array([[1, 0], [0, 1], [1, 0], [0, 1]])
    for labels in (2 * Y - 1, Y + 1, 0.5 * Y, sp.csr_array(2.0 * Y)):
        with pytest.raises(InvalidInputError, match="Y must hold zeros and ones"):
            LabelRanking(X, labels)


def test_data_that_were_exchanged_do_not_reach_a_loop() -> None:
    problem = Problem(FixedRankEmbedded(9, 7, 3), pairs())
    problem.cost.left = sp.csc_array(np.ones((40, 9)))  # type: ignore[attr-defined]
    with pytest.raises(InvalidInputError, match="left is no CSR array"):
        SGD(0.02, max_iter=10).run(problem, random_state=0)
    problem = Problem(FixedRankEmbedded(9, 7, 3), pairs())
    problem.cost.left.indices[0] = 500  # type: ignore[attr-defined]
    with pytest.raises(InvalidInputError, match="left is a damaged csr matrix"):
        SGD(0.02, max_iter=10).run(problem, random_state=0)


def test_a_code_put_on_a_retraction_is_no_kernel() -> None:
    from rmopt.retractions import SecondOrder

    problem, moved = Problem(FixedRankEmbedded(9, 7, 3), pairs()), SecondOrder()
    moved.kernel = 1  # type: ignore[misc]
    ends = [
        SGD(0.02, max_iter=50, retraction=moved, engine=engine).run(problem, random_state=0).point
        for engine in ("auto", "reference")
    ]
    np.testing.assert_allclose(ends[0].S, ends[1].S, rtol=1e-12)


def test_masked_entries_are_no_data() -> None:
    X = np.random.default_rng(0).standard_normal((20, 5))
    with pytest.raises(InvalidInputError, match="left has masked entries"):
        BilinearSum(np.ma.array(X, mask=X > 0), X)
    with pytest.raises(InvalidInputError, match="targets"):
        BilinearSum(X, X, "squared", np.full(20, np.longdouble("1e400")))


def test_growths_count_columns() -> None:
    from problems.coembedding import MetricRegression
    from rmopt.costs import Trace
    from rmopt.manifolds import PSDFixedRank

    class Stopping:
        def first(self) -> int:
            return 1

        def after(self, added: int) -> int:
            return 0

    cost = MetricRegression(np.random.default_rng(0).standard_normal((6, 9))) + Trace(0.5)
    with pytest.raises(InvalidInputError, match="columns of the growth = 0 must be a positive integer"):
        RankIncremental(Stopping()).run(Problem(PSDFixedRank(6, 1), cost))
    cost.trace_weight = "x"
    with pytest.raises(InvalidInputError, match="trace_weight of"):
        RankIncremental().run(Problem(PSDFixedRank(6, 1), cost))


def test_metrics_do_not_hide_what_rows_hold() -> None:
    with pytest.raises(InvalidInputError, match="cannot be called 'seconds'"):
        Recorder({"seconds": lambda point: 1.0})


def test_fingerprints_see_masks_fields_class_words_and_own_modules(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    a = np.arange(4.0)
    assert fingerprint(np.ma.array(a, mask=a > 1)) != fingerprint(np.ma.array(a, mask=a > 2))
    fields = ([("a", "f8"), ("b", "f8")], [("b", "f8"), ("a", "f8")])
    assert len({fingerprint(np.zeros(3, kind)) for kind in fields}) == 2

    def scaled(word: float) -> type:
        return type("Scaled", (Rayleigh,), {"__scale__": word, "__module__": "__main__"})

    assert fingerprint(scaled(1.0)()) != fingerprint(scaled(2.0)())
    # A module of the user's, called like one of Python's, held by a cost and imported within a method.
    monkeypatch.syspath_prepend(str(tmp_path))
    seen = set()
    for number in (1.0, 2.0):
        (tmp_path / "own_settings.py").write_text(f"S = {number}\n")
        sys.modules.pop("own_settings", None)
        import own_settings  # type: ignore[import-not-found]

        def inside() -> Any:
            from own_settings import S

            return S

        seen |= {fingerprint(own_settings), fingerprint(inside)}
    assert len(seen) == 4
