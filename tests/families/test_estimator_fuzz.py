"""No estimator, and no function beside them, ends in a raw error, a silent NaN or never, whatever it is given."""

import random
import re
from functools import cache
from inspect import signature
from pathlib import Path

import numpy as np
import pytest
from estimator_parts import FUNCTIONS, LABELS, PARTS, public_estimators
from estimator_parts import cases_of as all_cases
from fuzzing import Case, outcome, tried
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import has_fit_parameter
from tabled import each_row


@cache
def cases_of(name: str) -> list[Case]:
    """Return all cases of an estimator or of a function."""
    if name in PARTS:
        part = PARTS[name]
        # What is compiled is compiled here: a compiler that is interrupted is of no use afterwards.
        for method, given in part.uses.items():
            getattr(part.make().fit(**part.data), method)(*given)
    return list(all_cases(name))


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some parameters name files."""
    monkeypatch.chdir(tmp_path)


def test_the_table_holds_every_public_estimator() -> None:
    assert public_estimators() <= set(PARTS)


@pytest.mark.parametrize("name", [*PARTS, *FUNCTIONS])
def test_a_few_strange_inputs_of_each(name: str) -> None:
    _, bad = tried(random.Random(name).sample(cases_of(name), 15))
    assert not bad, "\n".join(bad)


@pytest.mark.slow
@pytest.mark.parametrize("name", [*PARTS, *FUNCTIONS])
def test_all_strange_inputs(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    counts, bad = tried(cases_of(name))
    with capsys.disabled():
        print(f"\n{name}: {counts.total()} cases: {dict(counts.most_common())}")
    assert not bad, "\n".join(bad)


# Cases that did not end well, and that a few of each may miss.
ONCE_BAD = {
    "LabelThresholds(cv=tuple of one)": "rmopt's sentence",
    "LabelThresholds(cv=fold beyond the rows)": "rmopt's sentence",
    "CoembeddingClassifierCV(cv=pair)": "rmopt's sentence",
    "CoembeddingClassifierCV(cv=number as array)": "rmopt's sentence",
    "CoembeddingClassifierCV(betas=sparse)": "rmopt's sentence",
    "LabelThresholds.fit(X=dates)": "rmopt's sentence",
    "LabelThresholds.fit(X=empty string)": "rmopt's sentence",
    "LabelThresholds.fit(X=text of any length)": "rmopt's sentence",
    "CalibratedLabelRanking.fit(X=dict of columns)": "rmopt's sentence",
    "MultitaskSubspace.fit(y=a gap among objects)": "rmopt's sentence",
    "MultitaskSubspace.fit(y=text of any length)": "rmopt's sentence",
    "CoembeddingClassifier(tol=zero)": "fine",
    "CoembeddingClassifier.fit(Y=strange objects)": "rmopt's sentence",
    "CoembeddingClassifier.score(strange objects at 1)": "rmopt's sentence",
    "CoembeddingClassifierCV.fit(Y=strange objects)": "rmopt's sentence",
    "CoembeddingClassifierCV.score(strange objects at 1)": "rmopt's sentence",
    "CalibratedLabelRanking.fit(Y=strange objects)": "rmopt's sentence",
    "CalibratedLabelRanking.score(strange objects at 1)": "rmopt's sentence",
    "CalibratedLabelRanking(estimator=list)": "rmopt's sentence",
    "TagRecommender.fit(X=dict)": "rmopt's sentence",
    "PairwiseInteractionTags.predict(empty string at 0)": "rmopt's sentence",
    "LinkPredictor.score(zeros at 1)": "rmopt's sentence",
    "BiasedALS.rmse(times 1e+300 at 0)": "fine",
    "ImplicitALS(lam=huge)": "rmopt's sentence",
}


@each_row(("name", "end"), ONCE_BAD.items())
def test_what_was_bad_is_good(name: str, end: str) -> None:
    (case,) = [case for case in cases_of(re.split(r"[.(]", name)[0]) if case.name == name]
    assert outcome(case)[0] == end


@each_row("name", PARTS)
def test_what_is_no_finite_number_is_refused(name: str) -> None:
    odd = r"[(=](nan|inf|minus inf)( at \d)?\)|[(](X|Y|links|ratings)=(dates|dict of columns)|Subspace.fit\(y=dates"
    # Users and items may be called by dates.
    odd = odd.replace("X|", "") if "Tag" in name else odd
    bad = [case for case in cases_of(name) if re.search(odd, case.name)]
    taken = [case.name for case in bad if outcome(case)[0] == "fine"]
    assert bad
    assert not taken


@each_row("name", [name for name, part in PARTS.items() if "step_size" in part.kind._parameters])
def test_a_fit_that_ends_can_predict(name: str) -> None:
    """Scores are products of what steps change: too large ones are told by fit, where the cure is at hand."""
    part = PARTS[name]
    for step_size in 10.0 ** np.array([2, 6, 76, 154, 308]):
        model = part.make(step_size=step_size)
        if outcome(Case("fit", lambda: model.fit(**part.data)))[0] == "rmopt's sentence":  # noqa: B023
            continue
        for method, given in part.uses.items():
            if "fit" not in method:
                case = Case(f"{method} after steps of {step_size}", lambda: getattr(model, method)(*given))  # noqa: B023
                assert outcome(case)[0] == "fine", case.name


@each_row("name", PARTS)
def test_weights_of_samples_are_refused(name: str) -> None:
    part = PARTS[name]
    fitted = part.make().fit(**part.data)
    methods = {"fit": part.data} | {
        method: dict(zip(signature(getattr(fitted, method)).parameters, given, strict=False))
        for method, given in part.uses.items()
        if method in ("partial_fit", "score")
    }
    for method, given in methods.items():
        if "sample_weight" not in signature(getattr(fitted, method)).parameters:
            with pytest.raises(TypeError, match="sample_weight"):
                getattr(fitted, method)(**given, sample_weight=np.ones(24))
    assert not has_fit_parameter(fitted, "sample_weight")


@each_row("name", [name for name in PARTS if {"y", "tasks"} & set(PARTS[name].data)])
def test_labels_of_any_type_are_the_same(name: str) -> None:
    """Text of any length, and numbers in an array of objects, of which scikit-learn knows neither."""
    part, text = PARTS[name], np.array(["mild", "none", "severe"])[LABELS]
    place = "tasks" if "tasks" in part.data else "y"
    for plain, strange in (
        (text, text.astype(np.dtypes.StringDType())),
        (LABELS + 5, (LABELS + 5).astype(object)),
    ):
        one, other = (part.make().fit(**part.data | {place: labels}) for labels in (plain, strange))
        for known in ("classes_", "tags_", "tasks_"):
            assert np.array_equal(getattr(one, known, None), getattr(other, known, None))


@each_row("name", PARTS)
def test_methods_before_fit_say_so(name: str, tmp_path: Path) -> None:
    part = PARTS[name]
    uses = part.uses | ({"save": (tmp_path / "model.npz",)} if hasattr(part.kind, "save") else {})
    for method, given in uses.items():
        if "fit" not in method:
            with pytest.raises(NotFittedError, match="not fitted"):
                getattr(part.make(), method)(*given)


@each_row("name", PARTS)
def test_every_parameter_is_declared(name: str) -> None:
    part = PARTS[name]
    assert set(part.kind._parameters) == set(part.make().get_params(deep=False))
