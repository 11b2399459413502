"""Generated data: equal in blocks and as a whole, of the papers' shapes, and no better than their floor."""

import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.sparse import issparse

from problems.data import ClassBundle, Ratings, generated, load, stream
from problems.data.generated import SETS, Documents, Entries, Generated, Labels
from problems.ranking import mean_average_precision
from problems.subspace import BiasedALS
from rmopt.errors import InvalidInputError

DENSE = Labels("generated-dense", 2_100, per_block=1_500, features=40, labels=20, rank=5, test=700)
WORDS = Labels("generated-words", 2_100, per_block=1_500, features=80, labels=20, rank=5, words=8.0, test=700)
TEXTS = Documents("generated-texts", 300, per_block=200, features=100)
RATED = Entries("generated-rated", 1_200, per_block=1_000, items=200, per_row=40.0)
SMALL = (DENSE, WORDS, TEXTS, RATED)


def plain(table: Any) -> Any:
    return table.toarray() if issparse(table) else table


@pytest.mark.parametrize("made", SMALL, ids=lambda made: made.name)
class TestBlocks:
    def test_are_the_whole(self, made: Generated) -> None:
        whole, blocks = made.whole(), list(replace(made).blocks())
        assert len(blocks) == 2
        for name, table in whole.items():
            assert np.array_equal(plain(table), np.concatenate([plain(block[name]) for block in blocks]))

    def test_are_the_same_for_more_rows_and_others_for_another_seed(self, made: Generated) -> None:
        whole, more, other = (
            one.whole() for one in (made, replace(made, rows=made.per_block * 3), replace(made, seed=1))
        )
        for name, table in whole.items():
            first = made.per_block if made.cut else len(made.block(1)[name])
            assert np.array_equal(plain(table[:first]), plain(more[name][:first]))
            assert not np.array_equal(plain(table), plain(other[name])) or name == "user"

    def test_say_in_their_bundle_that_they_are_generated(self, made: Any) -> None:
        bundle = made.bundle()
        assert bundle.source.startswith("generated")
        assert bundle.name == made.name


def test_floors() -> None:
    block = RATED.block(1)
    assert np.std(block["rating"] - block["truth"]) == pytest.approx(RATED.noise, rel=0.02)
    bundle = RATED.bundle()
    assert len(bundle.values) == 1_200 * 40
    for at in (bundle.rows, bundle.columns):
        counts = np.sort(np.bincount(at))
        assert counts[len(counts) // 10 * 9 :].sum() > 0.25 * counts.sum()
    out, pairs = bundle.held_out(0), np.column_stack([bundle.rows, bundle.columns])
    model = BiasedALS(5, random_state=0).fit(pairs[~out], bundle.values[~out], shape=bundle.shape)
    assert RATED.noise < model.rmse(pairs[out], bundle.values[out]) < 1.15 * RATED.noise


@pytest.mark.parametrize("made", [DENSE, WORDS], ids=lambda made: made.name)
def test_labels_come_from_a_model_of_low_rank(made: Labels) -> None:
    block = made.block(1)
    assert np.linalg.matrix_rank(block["truth"]) == made.rank
    assert block["Y"].sum() / made.per_block == pytest.approx(made.mean_labels, rel=0.03)
    assert not made.words or block["X"].sum() / made.per_block == pytest.approx(made.words, rel=0.05)
    assert made.ceiling() == pytest.approx(mean_average_precision(block["truth"], block["Y"]))
    bundle = made.bundle()
    X, Y = (plain(table) for table in (bundle.X, bundle.Y))
    slopes = np.linalg.lstsq(X[bundle.train], Y[bundle.train], rcond=None)[0]
    found = mean_average_precision(X[bundle.test] @ slopes, Y[bundle.test])
    assert 0.8 * made.ceiling() < found < 1.03 * made.ceiling()


def test_files_hold_the_same(tmp_path: Path) -> None:
    for made in SMALL:
        made.write(tmp_path / made.name)
    for made in (DENSE, WORDS):
        chunks = stream(tmp_path / made.name, multilabel=True, batch_size=1_000)
        for at, name in enumerate("XY"):
            assert np.array_equal(
                np.concatenate([plain(chunk[at]) for chunk in chunks]), plain(made.whole()[name])
            )
    whole = TEXTS.bundle()
    part = load(tmp_path / TEXTS.name / "generated-texts-0000.npz", kind=ClassBundle)
    assert np.array_equal(part.X.toarray(), whole.X[:200].toarray())
    assert load(tmp_path / RATED.name / "generated-rated-0001.npz", kind=Ratings).values.size == 8_000


def test_shapes_of_the_papers() -> None:
    about = generated.school().summary()
    assert [about[name] for name in ("tasks", "samples", "features")] == [139, 15_362, 28]
    labels = {name: made for name, made in SETS.items() if isinstance(made, Labels)}
    shapes = {name.partition("-")[2]: (made.features, made.labels) for name, made in labels.items()}
    assert shapes == {
        "imagenet": (1_000, 1_660), "yeast": (103, 14), "mediamill": (120, 101), "corel5k": (499, 374)
    }  # fmt: skip
    for name in ("ml10m", "netflix"):
        made: Any = SETS[f"generated-{name}"]
        assert round(made.per_row * made.rows) == {"ml10m": 10_000_054, "netflix": 100_480_507}[name]


def test_experiments_know_all_by_name() -> None:
    text = (Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8")
    known = tomllib.loads(text)["project"]["entry-points"]["rmopt.datasets"]
    names = {name: target for name, target in known.items() if name.startswith("generated-")}
    assert names.keys() == SETS.keys() | {"generated-school"}
    assert all(target == f"problems.data.generated:{name[10:]}" for name, target in names.items())
    assert generated.yeast().name == "generated-yeast"
    with pytest.raises(InvalidInputError, match="'mine' is unknown; choose one of generated-imagenet"):
        generated.write("mine", Path("nowhere"))
