"""No estimator, and no function beside them, ends in a raw error, a silent NaN or never, whatever it is given."""

from __future__ import annotations

import random
import re
from itertools import chain
from pathlib import Path

import pytest
from estimator_parts import (
    FUNCTIONS,
    PARTS,
    data_cases,
    function_cases,
    parameter_cases,
    public_estimators,
    use_cases,
)
from fuzzing import Case, outcome, tried
from sklearn.exceptions import NotFittedError
from tabled import each_row


def cases_of(name: str) -> list[Case]:
    """Return all cases of an estimator or of a function."""
    if name in FUNCTIONS:
        return list(function_cases(name))
    part = PARTS[name]
    # What is compiled is compiled here: a compiler that is interrupted is of no use afterwards.
    for method, given in part.uses.items():
        getattr(part.make().fit(**part.data), method)(*given)
    return list(chain(parameter_cases(part), data_cases(part), use_cases(part)))


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some parameters name files."""
    monkeypatch.chdir(tmp_path)


def test_the_table_holds_every_public_estimator() -> None:
    assert public_estimators() <= set(PARTS)


@pytest.mark.parametrize("name", [*PARTS, *FUNCTIONS])
def test_a_few_strange_inputs_of_each(name: str) -> None:
    _, bad = tried(random.Random(name).sample(cases_of(name), 25))
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
    "CoembeddingClassifier(tol=zero)": "fine",
    "CoembeddingClassifier.fit(Y=strange objects)": "rmopt's sentence",
    "CoembeddingClassifier.score(strange objects at 1)": "rmopt's sentence",
    "CoembeddingClassifierCV.fit(Y=strange objects)": "rmopt's sentence",
    "CoembeddingClassifierCV.score(strange objects at 1)": "rmopt's sentence",
    "CalibratedLabelRanking.fit(Y=strange objects)": "rmopt's sentence",
    "CalibratedLabelRanking.score(strange objects at 1)": "rmopt's sentence",
}


@each_row(("name", "end"), ONCE_BAD.items())
def test_what_was_bad_is_good(name: str, end: str) -> None:
    (case,) = [case for case in cases_of(re.split(r"[.(]", name)[0]) if case.name == name]
    assert outcome(case)[0] == end


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
