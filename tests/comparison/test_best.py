"""``rmopt best``: who wins is known of data that are made up, and what is written can be used."""

from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

from problems.best import best, samples
from problems.data import load
from problems.serve import opened
from problems.subspace import BayesianCompletion, BiasedALS
from rmopt.errors import InvalidInputError
from rmopt.experiments import Outcome, Run


def run_on(folder: Path, file: Path | str, minutes: float = 0.0, **how: Any) -> Outcome:
    """Compare; in no time each rival is tried once, and measured on two splits."""
    return best(Run("best", 0, folder, quiet=True), str(file), minutes, **how)


def winners(outcome: Outcome) -> set[Any]:
    """Return those that nobody is surely before."""
    rows = outcome.rows
    assert rows[0]["behind"] == 0.0
    assert all(row["behind"] >= 0.0 and row["tried"] >= 1 for row in rows)
    assert outcome.notes[0].startswith(f"\n{rows[0]['model']} is the best")
    return {row["model"] for row in rows if row["behind"] <= 2.0 * row["behind_sem"] + 1e-12}


def test_ratings_of_effects_alone_and_of_factors(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    user, item = (one.ravel() for one in np.indices((60, 40)))
    taste = 1.5 * rng.standard_normal((60, 2)) @ rng.standard_normal((2, 40))
    known = rng.random(len(user)) < 0.6
    for name, truth, winner in (("effects", 0.0 * taste, "users and items alone"), ("factors", taste, "Bay")):
        effects = rng.standard_normal((60, 1)) + rng.standard_normal((1, 40))
        stars = (effects + truth + 0.5 * rng.standard_normal((60, 40))).ravel()
        columns = {"user": user[known], "item": item[known], "rating": stars[known]}
        pd.DataFrame(columns).to_csv(tmp_path / f"{name}.csv", index=False)
        (tmp_path / name).mkdir()
        outcome = run_on(tmp_path / name, tmp_path / f"{name}.csv", 0.02)
        # Factors that folds make small are level with effects alone.
        assert any(str(model).startswith(winner) for model in winners(outcome))
        kind: Any = BayesianCompletion if outcome.rows[0]["model"] == "BayesianCompletion" else BiasedALS
        model = kind.load(tmp_path / name / "model.npz")
        # Names are those of the file, and what it does not know is refused.
        assert np.isfinite(model.predict(0, 0)).all()
        with pytest.raises(InvalidInputError, match="was not seen"):
            model.predict(99, 0)
        assert opened(tmp_path / name)


def test_plays_of_groups_are_measured_by_lists(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    other = np.subtract.outer(np.arange(90), np.arange(40)) % 4 > 0
    user, item = np.nonzero(rng.random((90, 40)) < np.where(other, 0.05, 0.4))
    plays = np.ceil(np.exp(1.5 * rng.standard_normal(len(user)) + 1.0))
    pd.DataFrame({"user": user, "item": item, "rating": plays}).to_csv(tmp_path / "plays.csv", index=False)
    titles = tmp_path / "titles.csv"
    titles.write_text("id,title\n" + "".join(f"{n},Song {n}\n" for n in range(40)))
    outcome = run_on(tmp_path, tmp_path / "plays.csv", names=titles)
    assert outcome.rows[-1]["model"] == "the most popular"
    assert float(str(outcome.rows[0]["ndcg"])) > 0.3
    assert outcome.notes[1].startswith("Means over 2 splits with 20% held out.")
    page: Any = opened(tmp_path)
    lists = pd.read_csv(tmp_path / "recommendations.csv")
    assert lists["item"][lists["user"] == 3].tolist() == [name for name, _ in page.model.recommend(3, 10)]


def test_texts_become_an_index_that_is_served(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    words = [[f"{kind}{number}" for number in range(30)] for kind in ("sea", "sun", "sky")]
    for number in range(60):
        kind = number % 3
        drawn = [*rng.choice(words[kind], 6), *rng.choice(np.ravel(words), 6)]
        place = tmp_path / "texts" / f"class{kind}"
        place.mkdir(parents=True, exist_ok=True)
        (place / f"{number}.txt").write_text(" ".join(drawn))
    outcome = run_on(tmp_path, tmp_path / "texts")
    assert {row["map"] > 0.6 for row in outcome.rows} == {True}
    searcher: Any = opened(tmp_path)
    _, rows = searcher.query("sea1 sea2 sea3", k=5)
    assert all(searcher.names[row].startswith("class0/") for row in rows[0])


def test_tables_of_features_and_of_labels_give_a_whole_pipeline(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((150, 6))
    kind = np.array(["ant", "bee", "cat"])[np.arange(150) % 3]
    X[:, 0] += 6.0 * (np.arange(150) % 3)
    frame = pd.DataFrame(X, columns=[*"abcdef"])
    frame.assign(kind=kind).to_csv(tmp_path / "classes.csv", index=False)
    outcome = run_on(tmp_path, f"{tmp_path / 'classes.csv'}::label=kind")
    assert winners(outcome) >= {outcome.rows[0]["model"]}
    model = joblib.load(tmp_path / "model.joblib")
    assert (model.predict(X) == kind).mean() > 0.9
    signs = {f"label_{number}": (X[:, number] > 3.0 * (number == 0)).astype(int) for number in range(4)}
    frame.assign(**signs).to_csv(tmp_path / "labels.csv", index=False)
    outcome = run_on(tmp_path, tmp_path / "labels.csv")
    assert outcome.rows[0]["map"] > 0.85
    scores = joblib.load(tmp_path / "model.joblib").decision_function(X)
    assert scores.shape == (150, 4)
    # Words are sparse rows, whatever the file.
    frame.gt(9.0).astype(int).assign(**signs).to_csv(tmp_path / "words.csv", index=False)
    run = Run("best", 0, tmp_path, quiet=True)
    found = [samples(load(tmp_path / name), run, name)[:2] for name in ("labels.csv", "words.csv")]
    assert [type(X) for X, _ in found] == [np.ndarray, sp.csr_array]
    assert all(y.dtype == int for _, y in found)
    with pytest.raises(InvalidInputError, match="no rivals are known"):
        run_on(tmp_path, "toy-tags")
