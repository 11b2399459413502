"""The experiments of the co-embedding family, end to end and small."""

from typing import Any

import numpy as np
import pytest

from problems.coembedding.experiment import (
    METHODS,
    STRATEGIES,
    Coembedding,
    Tagging,
    metric_regression,
    table_claims,
)
from problems.comparison import Row
from problems.data import TagBundle, load
from rmopt.experiments import Outcome, Run


def coembedding(run: Run, **about: Any) -> Outcome:
    return Coembedding(**about)(run)


def tagging(run: Run, **about: Any) -> Outcome:
    return Tagging(**about)(run)


def cells(run: Run) -> int:
    return len([*run.path("cells").rglob("output.pkl")])


def test_classification_beside_baselines(run: Run) -> None:
    options: dict[str, Any] = {
        "seeds": 2, "rows": 60, "methods": "ila,cc-svm", "betas": "1,5", "folds": 2,
    }  # fmt: skip
    outcome = coembedding(run, **options)
    assert [row["method"] for row in outcome.rows] == ["ILA", "CC, SVM"]
    assert all(50.0 < row["hamming"] <= 100.0 for row in outcome.rows)
    used = outcome.parameters["used"]
    assert [one["beta"] in (1.0, 5.0) for one in used["ILA"]] == [True, True]
    assert max(one["gap"] for one in used["ILA"]) <= 1e-4
    assert all(len(chosen) == 2 for chosen in used.values())
    assert len(outcome.claims) == 3
    known = cells(run)
    assert known >= 4
    again = coembedding(run, **options, resume=True)
    assert again.rows == outcome.rows
    assert cells(run) == known


def test_baselines_alone(run: Run) -> None:
    outcome = coembedding(run, seeds=1, rows=60, methods="br-lr", folds=2)
    assert len(outcome.rows) == 1
    assert outcome.claims == []
    assert outcome.parameters["used"]["BR, LR"][0]


def test_strategies_of_growth(run: Run) -> None:
    outcome = metric_regression(run, sizes="4,9", samples="12", methods=",".join(STRATEGIES))
    assert len(outcome.rows) == 2 * len(STRATEGIES)
    for row in outcome.rows:
        assert abs(row["relative_error"]) < 1e-4
        assert row["rank"] == row["n"]
    rounds = {row["method"]: row["rounds"] for row in outcome.rows if row["n"] == 9}
    assert rounds["exponential"] < rounds["linear (Zhang et al.)"]
    assert len(outcome.claims) == 2
    assert run.path("times.png").stat().st_size > 5000


def test_tags(run: Run) -> None:
    outcome = tagging(run, betas="30,300", seeds=1, rank=4)
    names = [row["method"] for row in outcome.rows]
    assert names == ["ILA, β = 30", "ILA, β = 300", "Pairwise interactions"]
    assert outcome.rows[0]["rank"] > outcome.rows[1]["rank"]
    assert all(0.0 < row["f1"] < 1.0 for row in outcome.rows)
    assert [claim.reproduced for claim in outcome.claims] == [True, None]
    alone: Outcome = tagging(run, betas="300", seeds=1, methods="ila")
    assert [row["method"] for row in alone.rows] == ["ILA, β = 300"]
    assert alone.claims == []
    with pytest.warns(UserWarning, match="the model is empty"):
        empty: Outcome = tagging(run, betas="1e6", seeds=1, methods="ila")
    assert empty.rows[0]["rank"] == 0


def test_tags_choose_by_posts_of_the_training_part(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    bundle, asked = load("toy-tags", None, TagBundle), []
    test = bundle.held_out(0)

    def trained(_: Any, one: Any, tested: Any, held: Any) -> Any:
        parts = bundle.triples[~tested & ~held], bundle.triples[held]
        asked.append((one["parameters"].get("beta"), *parts))
        return {"f1": 1.0 / len(asked), "rank": 1, "gap": None, "seconds": 0.0}

    monkeypatch.setattr(Tagging, "trained", trained)
    outcome = tagging(run, betas="30,300", seeds=1, select="first", methods="ila,pitf")
    assert [beta for beta, *_ in asked[:2]] == [30.0, 300.0]
    for _, train, held in asked[:-2]:
        assert len(train) + len(held) == (~test).sum()
        assert len(held)
        assert not {*map(tuple, held.tolist())} & {*map(tuple, bundle.triples[test].tolist())}
    # What was chosen is fitted to the whole training part, and measured on the test posts.
    assert [beta for beta, *_ in asked[-2:]] == [30.0, None]
    assert all(np.array_equal(held, bundle.triples[test]) for _, _, held in asked[-2:])
    assert outcome.parameters["used"]["ILA"] == [{"beta": 30.0}]


def test_claims_follow_the_numbers() -> None:
    cell = {"hamming": 80.0, "micro_f1": 66.0, "macro_f1": 64.0}
    better = {name: value + 5.0 for name, value in cell.items()}

    def row(name: str, found: list[Any]) -> Row:
        return Row(METHODS[name].label, {"method": name}, [], [one | {"seconds": 1.0} for one in found])

    def verdicts(ours: list[Any], theirs: list[Any]) -> list[bool | None]:
        return [claim.reproduced for claim in table_claims([row("ila", ours), row("br-lr", theirs)])]

    assert verdicts([cell], [better]) == [False] * 3
    assert verdicts([better], [cell]) == [True] * 3
    # 5 of 85 is 6 %, and 1 of 81 is comparable: a seed each way decides nothing.
    assert verdicts([cell, better, cell], [better, cell, cell]) == [None] * 3
    assert verdicts([cell], [{name: value + 0.9 for name, value in cell.items()}]) == [True] * 3
    assert table_claims([row("br-lr", [cell])]) == table_claims([row("ila", [cell])]) == []
