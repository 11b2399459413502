"""Nobody gets a raw error, a silent NaN or an endless run from the core, whatever parts are put together."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest
from core_parts import Part, argument_cases, combinations, parts
from fuzzing import tried
from tabled import each_row

PARTS = {part.name: part for part in parts()}


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some arguments name files."""
    monkeypatch.chdir(tmp_path)


@each_row("part", PARTS.values())
def test_arguments_that_work_do(part: Part) -> None:
    part.use(part.make(**part.valid))


def test_a_few_strange_arguments() -> None:
    cases = [
        case
        for part in PARTS.values()
        for cases in [list(argument_cases(part))]
        for case in random.Random(part.name).sample(cases, min(5, len(cases)))
    ]
    _, bad = tried(cases)
    assert not bad, "\n".join(bad)


def test_a_few_strange_combinations() -> None:
    _, bad = tried(list(combinations(0, 150)))
    assert not bad, "\n".join(bad)


@pytest.mark.slow
def test_all_strange_arguments_and_many_combinations(capsys: pytest.CaptureFixture[str]) -> None:
    whole: Counter[str] = Counter()
    complaints = []
    for name, cases in [
        *((name, list(argument_cases(part))) for name, part in PARTS.items()),
        ("combinations", list(combinations(1, 4000))),
    ]:
        counts, bad = tried(cases)
        whole += counts
        complaints += bad
        with capsys.disabled():
            print(f"\n{name}: {counts.total()} cases: {dict(counts.most_common())}", flush=True)
    with capsys.disabled():
        print(f"\nall: {whole.total()} cases: {dict(whole.most_common())}")
    assert not complaints, "\n".join(complaints)
