"""Fitted estimators in files: the same parameters and predictions, and a sentence for each file that is not whole."""

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from estimator_parts import PARTS
from sklearn.exceptions import NotFittedError
from tabled import each_row

from problems.data import Ratings, load
from problems.ranking import LowRankLogisticRegression
from problems.saving import Saved
from problems.similarity import ContrastiveSimilarity, LoretaSimilarity
from problems.subspace import RTRMC, BayesianCompletion, BiasedALS, ImplicitALS
from rmopt.core import InvalidInputError, StorageError
from rmopt.files import load_arrays, save_arrays

SAVED = {name: part for name, part in PARTS.items() if issubclass(part.kind, Saved)}


def same(one: Any, other: Any) -> bool:
    if sp.issparse(one):
        return same(one.toarray(), other.toarray())
    if isinstance(one, np.ndarray):
        return one.dtype == other.dtype and np.array_equal(one, other)
    return type(one) is type(other) and one == other


def made(name: str, **options: Any) -> Any:
    part = SAVED[name]
    return part.make(**options).fit(**part.data)


def ratings(named: bool) -> Ratings:
    rng = np.random.default_rng(0)
    rows, columns = np.nonzero(rng.random((14, 11)) < 0.6)
    names: dict[str, Any] = {}
    if named:
        names = {
            "row_names": np.array([f"Фильм {i}" for i in range(14)]),
            "column_names": np.arange(11) * 10 + 7,
        }
    return Ratings(
        "r", "made up", rows, columns, rng.integers(1, 6, len(rows)) * 1.0, (14, 11), (1.0, 5.0), **names
    )


def test_all_that_can_be_saved_are_here() -> None:
    assert {"BayesianCompletion", "BiasedALS", "ImplicitALS", "ContrastiveSimilarity"} < set(SAVED)
    assert {"LowRankLogisticRegression", "RTRMC", "RCGMC"} < set(SAVED)


@pytest.mark.parametrize("name", SAVED)
def test_a_file_holds_all_parameters_and_attributes_and_gives_the_same_results(
    name: str, tmp_path: Path
) -> None:
    model = made(name)
    model.save(tmp_path / "new" / "model.npz")
    back = type(model).load(tmp_path / "new" / "model.npz")
    assert back.get_params() == model.get_params()
    lost = {"agents_", "history_"} & set(vars(model))
    assert set(vars(model)) - set(vars(back)) == lost
    held = set(vars(model)) - lost - {"model_"}
    assert [key for key in held if not same(vars(model)[key], vars(back)[key])] == []
    # Saved again, it is the same file.
    back.save(tmp_path / "again.npz")
    first, second = (load_arrays(tmp_path / file) for file in ("new/model.npz", "again.npz"))
    assert first[1] == second[1]
    assert all(same(first[0][key], second[0][key]) for key in first[0])
    for method, arguments in SAVED[name].uses.items():
        found, wanted = (getattr(one, method)(*arguments) for one in (back, model))
        if wanted is not model:
            np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("named", [False, True])
@each_row(
    "model",
    [
        BiasedALS(2, limits=(1.0, 5.0), random_state=np.int64(3)),
        ImplicitALS(2, handle_unknown="mean"),
        RTRMC(2, random_state=0),
        BayesianCompletion(2, n_samples=4, implicit=True, random_state=0),
    ],
)
def test_names_and_recommendations_outlive_a_file(model: Any, named: bool, tmp_path: Path) -> None:
    bundle = ratings(named)
    fitted = model.fit(bundle)
    fitted.save(tmp_path / "model.npz")
    back = type(model).load(tmp_path / "model.npz")
    user = 37 if named else 3
    assert back.recommend(user, 3) == fitted.recommend(user, 3)
    assert isinstance(back.recommend(user, 1)[0][0], str if named else int)
    values = {fitted.row_names_[row]: value for row, value in ((2, 4.0), (5, 1.0))}
    assert back.recommend_to_new(values) == fitted.recommend_to_new(values)
    assert back.get_params()["limits"] == model.limits


def test_names_that_are_numbers_from_0_are_names_in_a_file_too(tmp_path: Path) -> None:
    table = {"item": [0, 0, 1, 1, 2, 2], "user": [0, 1, 1, 2, 0, 2], "rating": [1.0, 2.0, 3.0, 4.0, 5.0, 2.0]}
    model = BiasedALS(1, random_state=0).fit(load(table))
    model.save(tmp_path / "model.npz")
    arrays, about = load_arrays(tmp_path / "model.npz")
    back = BiasedALS.load(tmp_path / "model.npz")
    part = load({name: table[name][3:] for name in table})
    assert back.rmse(part) == model.rmse(part)
    with pytest.raises(InvalidInputError, match="column 3 was not seen"):
        back.rmse(load({**table, "user": [1, 2, 2, 3, 1, 3]}))
    # Version 0.2 did not say whether there were names.
    del about["numbers"]["_named"]
    save_arrays(tmp_path / "old.npz", arrays, about)
    with pytest.raises(StorageError, match="_named"):
        BiasedALS.load(tmp_path / "old.npz")


@pytest.mark.parametrize("name", ["GossipMatrixCompletion", "BayesianCompletion"])
def test_the_largest_seed_that_may_be_drawn_is_taken_and_kept(name: str, tmp_path: Path) -> None:
    # Of None; a generator draws up to half of it.
    made(name, random_state=2**64 - 1).save(tmp_path / "model.npz")
    assert SAVED[name].kind.load(tmp_path / "model.npz").random_state == 2**64 - 1


def test_labels_that_are_text_and_names_of_features_are_kept(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    part = SAVED["ContrastiveSimilarity"]
    X = pandas.DataFrame(part.data["X"], columns=[f"term {i}" for i in range(part.data["X"].shape[1])])
    model = part.make().fit(X, np.array([f"class {c}" for c in part.data["y"]], dtype=object))
    model.save(tmp_path / "model.npz")
    back = ContrastiveSimilarity.load(tmp_path / "model.npz")
    assert back.classes_.tolist() == model.classes_.tolist()
    assert back.feature_names_in_.tolist() == list(X.columns)
    np.testing.assert_array_equal(back.transform(X), model.transform(X))
    with pytest.raises(ValueError, match="feature names"):
        back.transform(X[X.columns[::-1]])


def test_what_a_file_cannot_hold_is_refused_before_it_is_written(tmp_path: Path) -> None:
    path = tmp_path / "model.npz"
    with pytest.raises(InvalidInputError, match="an integer as random_state"):
        made("BiasedALS", random_state=np.random.RandomState(0)).save(path)
    with pytest.raises(NotFittedError):
        BiasedALS().save(path)
    assert not path.exists()


def test_what_an_older_version_fitted_and_pickled_is_to_be_fitted_again() -> None:
    model = made("BiasedALS")
    # Version 0.1 kept no entries.
    del model.known_
    old = pickle.loads(pickle.dumps(model))
    for one in (old, BiasedALS()):
        with pytest.raises(NotFittedError, match=r"is not fitted yet\. Call 'fit'"):
            one.predict(0, 1)


def test_a_file_of_another_estimator_is_refused(tmp_path: Path) -> None:
    made("BiasedALS").save(tmp_path / "model.npz")
    with pytest.raises(InvalidInputError, match="holds 'BiasedALS' and no ImplicitALS"):
        ImplicitALS.load(tmp_path / "model.npz")
    with pytest.raises(
        InvalidInputError, match="holds 'BiasedALS' and no LoretaSimilarity; load it by its own"
    ):
        LoretaSimilarity.load(tmp_path / "model.npz")
    save_arrays(tmp_path / "else.npz", {"a": np.ones(2)}, {})
    with pytest.raises(InvalidInputError, match="holds 'another thing' and no LowRankLogisticRegression"):
        LowRankLogisticRegression.load(tmp_path / "else.npz")
    with pytest.raises(StorageError, match="does not exist"):
        ImplicitALS.load(tmp_path / "none.npz")


@pytest.mark.parametrize("name", SAVED)
def test_arrays_and_numbers_that_do_not_belong_together_are_refused(name: str, tmp_path: Path) -> None:
    path, damaged = tmp_path / "model.npz", tmp_path / "damaged.npz"
    made(name).save(path)
    arrays, about = load_arrays(path)

    def refused(arrays: Any, about: Any) -> None:
        save_arrays(damaged, arrays, about)
        with pytest.raises(StorageError):
            SAVED[name].kind.load(damaged)

    for key, array in arrays.items():
        if key not in SAVED[name].kind._optional:
            refused({other: value for other, value in arrays.items() if other != key}, about)
        if key == "classes_":  # there may be as many as there are
            continue
        refused(arrays | {key: array[:-1]}, about)
        refused(arrays | {key: np.concatenate([array, array[-1:]])}, about)
        if array.dtype.kind == "f" and array.size:
            refused(arrays | {key: np.full_like(array, np.nan)}, about)
    for part in ("parameters", "numbers"):
        for key in about[part]:
            refused(arrays, about | {part: about[part] | {key: {"a": 1}}})
        refused(arrays, {other: value for other, value in about.items() if other != part})
        refused(arrays, about | {part: [1]})
    refused(arrays, about | {"parameters": about["parameters"] | {"colour": 1}})
    refused(arrays, about | {"numbers": {}})


def test_places_of_known_entries_that_do_not_exist_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.npz"
    made("BiasedALS").save(path)
    arrays, about = load_arrays(path)
    for change in (
        {"known_indices": arrays["known_indices"] + 99},
        {"known_indptr": arrays["known_indptr"][::-1]},
    ):
        save_arrays(path, arrays | change, about)
        with pytest.raises(StorageError, match="known"):
            BiasedALS.load(path)


@pytest.mark.parametrize("name", ["BiasedALS", "ContrastiveSimilarity"])
def test_a_file_that_was_cut_or_changed_gives_the_model_or_a_sentence(name: str, tmp_path: Path) -> None:
    path, broken = tmp_path / "model.npz", tmp_path / "broken.npz"
    model = made(name)
    model.save(path)
    content, rng = path.read_bytes(), np.random.default_rng(0)
    refused = 0
    for place in rng.integers(len(content), size=60).tolist():
        flipped = bytearray(content)
        flipped[place] ^= 0xFF
        for bad in (content[:place], bytes(flipped)):
            broken.write_bytes(bad)
            try:
                back = type(model).load(broken)
            except (StorageError, InvalidInputError):
                refused += 1
            else:
                assert all(same(value, vars(back)[key]) for key, value in vars(model).items())
    assert refused > 60


SENT = ["BiasedALS", "CometMetric", "LoretaSimilarity", "MultitaskSubspace", "TagRecommender"]


@pytest.mark.parametrize("name", SENT)
def test_estimators_make_a_round_trip_by_skops(name: str, tmp_path: Path) -> None:
    skops = pytest.importorskip("skops.io")
    part = PARTS[name]
    model = part.make().fit(**part.data)
    skops.dump(model, tmp_path / "model.skops")
    trusted = skops.get_untrusted_types(file=tmp_path / "model.skops")
    # What the reader is asked to trust are classes of this package, and sparse arrays.
    ours = ("problems.", "rmopt.", "estimator_parts.", "scipy.sparse.")
    assert [kind for kind in trusted if not kind.startswith(ours)] == []
    back = skops.load(tmp_path / "model.skops", trusted=trusted)
    for method, arguments in part.uses.items():
        wanted, found = (getattr(one, method)(*arguments) for one in (model, back))
        if wanted is not model:
            np.testing.assert_array_equal(found, wanted)
