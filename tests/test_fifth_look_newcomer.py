"""What a newcomer met: each way that led astray, and beside it what must stay."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from problems.coembedding import LabelThresholds
from problems.comparison import Comparison
from problems.data import load
from problems.methods import chosen_methods
from problems.ranking import LoretaLabelRanker, LowRankLogisticRegression
from problems.similarity import LoretaSimilarity
from problems.subspace import BiasedALS, TimeSplit, entries
from problems.subspace.experiment import METHODS, completion
from rmopt import InvalidInputError, autograd_cost
from rmopt.checks import check_hessian
from rmopt.cli.output import OutputFolder
from rmopt.cli.run import _keep_and_show
from rmopt.core import Problem
from rmopt.experiments import Outcome, Run
from rmopt.manifolds import Sphere
from rmopt.solvers import LBFGS, ConjugateGradient, GradientDescent, TrustRegions

X = np.random.default_rng(0).standard_normal((60, 12))
y = np.arange(60) % 3


@pytest.mark.parametrize("psd", [False, True])
def test_a_start_that_no_row_touches_is_told(psd: bool) -> None:
    hashed: Any = np.hstack([np.zeros((60, 5)), X])
    model = LoretaSimilarity(6, psd=psd, max_iter=200, random_state=0)
    with pytest.warns(UserWarning, match="^5 of the 6 directions .* give init = 'gaussian'") as told:
        model.fit(hashed, y)
    assert told[0].filename == __file__
    with pytest.warns(UserWarning, match="^5 of the 6 directions") as told:
        model.fit_stream([(hashed[:30], y[:30]), (hashed[30:], y[30:])])
    assert told[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.fit(hashed[:, 3:], y)
        model.set_params(init="gaussian").fit(hashed, y)


def dated_ratings() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    users, items = np.nonzero(rng.random((12, 10)) < 0.6)
    return pd.DataFrame(
        {
            "user": [f"u{user}" for user in users],
            "item": [f"i{item}" for item in items],
            "rating": rng.integers(1, 6, len(users)),
            "date": np.datetime64("2024-01-01") + rng.permutation(len(users)),
        }
    )


def test_a_bundle_has_pairs_values_and_times_in_one_order() -> None:
    frame = dated_ratings()
    ratings = load(pd.concat([frame.assign(date=np.datetime64("2023-01-01")), frame]))
    pairs, values = entries(ratings)
    told = {(row.item, row.user): (row.rating, row.date) for row in frame.itertuples()}
    found = [told[ratings.row_names[i], ratings.column_names[u]] for i, u in pairs]
    assert values.tolist() == [rating for rating, _ in found]
    dates = np.array([date for _, date in found])
    for train, test in TimeSplit(3).split(pairs, groups=ratings.times):
        assert dates[train].max() < dates[test].min()
    assert load(frame[["user", "item", "rating"]]).times is None


def test_dates_that_cannot_be_read_are_told_with_their_row() -> None:
    frame = dated_ratings().astype({"date": str})
    frame.loc[3, "date"] = "31/12/2024"
    assert load(frame).times is None
    assert "row 4 has '31/12/2024'" in load(frame).odd()[0]
    with pytest.raises(InvalidInputError, match=r"dates such as 2024-12-31 .* row 4 has '31/12/2024'"):
        load(pd.concat([frame, frame]))


def test_predict_takes_the_names_that_fit_got() -> None:
    ratings = load(dated_ratings())
    model = BiasedALS(2, random_state=0).fit(ratings)
    pairs = np.column_stack([ratings.rows, ratings.columns])[:5]
    named = [(ratings.row_names[i], ratings.column_names[u]) for i, u in pairs]
    assert (model.predict(named) == model.predict(pairs)).all()
    assert (model.predict(*zip(*named, strict=True)) == model.predict(pairs)).all()
    assert model.predict("i3", ["u1", "u2"]).shape == (2,)
    with pytest.raises(InvalidInputError, match="columns 'u77' was not seen by fit"):
        model.predict([("i3", "u77")])
    model.set_params(handle_unknown="mean")
    with pytest.warns(UserWarning, match="1 of 2 pairs"):
        assert model.predict([("i3", "u77"), named[0]])[1] == model.predict(pairs[:1])[0]


def test_a_run_without_resume_sets_earlier_results_aside(tmp_path: Path, capsys: Any) -> None:
    run = Run("mine", 0, tmp_path)
    comparison = Comparison(run, False)
    comparison.cell({"method": "a"}, lambda settings: {"map": 1.0})
    kept = (tmp_path / "cells.jsonl").read_bytes()
    for name in ("cells.jsonl.before", "cells.jsonl.before-2"):
        Comparison(run, False).cell({"method": "a"}, lambda settings: {"map": 1.0})
        assert (tmp_path / name).read_bytes() == kept
        assert f"set aside as {name}; to go on with them" in " ".join(capsys.readouterr().out.split())
    assert Comparison(run, True).cell({"method": "a"}, lambda settings: {}) == {"map": 1.0}
    assert len(list(tmp_path.glob("cells*"))) == 3
    (tmp_path / "result.json").write_text('{"theirs": 1}')
    _keep_and_show(run, Outcome("digits", {}, [{"map": 1.0}]), OutputFolder(tmp_path, "mine"), None)
    assert (tmp_path / "result.json.before").read_text() == '{"theirs": 1}'
    assert "result.json of another experiment is set aside" in capsys.readouterr().out


def test_entries_that_are_all_the_same_are_not_compared(tmp_path: Path) -> None:
    file = tmp_path / "views.csv"
    file.write_text("user,item\n" + "\n".join(f"u{n % 9},i{n // 9}" for n in range(63)))
    with pytest.raises(InvalidInputError, match=r"all entries of .*views.csv are 1: .* --model implicit"):
        completion(Run("completion", 0, tmp_path), data=str(file))


def test_a_method_of_a_file_finds_modules_beside_it(tmp_path: Path) -> None:
    (tmp_path / "beside_the_method.py").write_text("LEVEL = 3.5\n")
    own = tmp_path / "own.py"
    own.write_text(
        "from sklearn.dummy import DummyRegressor\nfrom beside_the_method import LEVEL\n"
        "class Level(DummyRegressor):\n    level = LEVEL\n"
    )
    chosen = chosen_methods(METHODS, "biases", [f"{own}:Level"], "completion", ("predict",))
    assert chosen[f"{own}:Level"].estimator.level == 3.5


def test_keywords_of_other_libraries_are_answered() -> None:
    for make, said in [
        (lambda: Problem(Sphere(3), euclidean_gradient=abs), "Problem .* method gradient of the cost"),
        (lambda: TrustRegions(verbosity=2), r"TrustRegions .*Recorder\(progress=True\)"),
        (lambda: TrustRegions(Delta0=1.0), "first_radius"),
        (lambda: ConjugateGradient(beta_rule="PolakRibiere"), "ConjugateGradient .* first argument"),
        (lambda: GradientDescent(max_time=3), "MaxSeconds"),
    ]:
        with pytest.raises(TypeError, match=said):
            make()
    with pytest.warns(FutureWarning, match="max_iterations of LBFGS is now max_iter") as told:
        LBFGS(max_iterations=7)
    assert told[0].filename == __file__


def test_the_checkpoint_of_a_stream_shows_what_differs(tmp_path: Path) -> None:
    path = tmp_path / "state.npz"
    LoretaSimilarity(2, checkpoint=path, random_state=0).fit_stream([(X, y)])
    with pytest.raises(InvalidInputError, match="its rank is 2, not 3"):
        LoretaSimilarity(3, checkpoint=path, random_state=0).fit_stream([(X, y)])
    with pytest.raises(InvalidInputError, match="its init is 'identity', not 'gaussian'"):
        LoretaSimilarity(2, init="gaussian", checkpoint=path, random_state=0).fit_stream([(X, y)])


@pytest.mark.parametrize("tags", [[["a", "b"], ["a"], ["b"]], [["a", "b"], ["a", "c"], ["b", "c"]]])
@pytest.mark.parametrize(
    "model",
    [LoretaLabelRanker(2), LowRankLogisticRegression(2), LabelThresholds(LowRankLogisticRegression(2))],
)
def test_names_of_labels_lead_to_a_table_of_them(model: Any, tags: list[list[str]]) -> None:
    with pytest.raises(InvalidInputError, match=r"made by sklearn.preprocessing.MultiLabelBinarizer"):
        model.fit(X[:3], tags)


def test_a_picture_among_texts_is_said_to_be_no_text(tmp_path: Path) -> None:
    for name, content in (
        ("a/1.txt", b"one"),
        ("b/2.txt", b"two"),
        ("b/p.png", b"\x89PNG\r\n\x1a\n\x00\x00"),
    ):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(content)
    with pytest.raises(
        InvalidInputError, match=r"p.png is not utf-8 text .* it is no text, such as a picture"
    ):
        load(tmp_path)


def test_a_complex_start_is_said_to_be_complex() -> None:
    problem = Problem(Sphere(3), autograd_cost(lambda x: (x**4).sum()))
    with pytest.raises(InvalidInputError, match="is complex; points are real"):
        LBFGS().run(problem, np.array([1j, 0, 0]))
    assert "array" not in str(check_hessian(problem))
