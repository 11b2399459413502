"""The data sets: what is read, from where, and what is refused."""

from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from real_data import REAL, real
from scipy.sparse import csr_array
from tabled import each_row

import problems.data.registry as registry
import problems.data.sets as datasets
from problems.data import ClassBundle, MultilabelBundle, Ratings, data_folder, load
from problems.data.sets import digits, news20, news20_full
from problems.subspace import BiasedALS
from rmopt.errors import InvalidInputError

POSTS = ["apples and pears", "apples or plums", "the rockets fly", "rockets fly far"]
COUNTS = np.array([[2, 0, 1], [0, 0, 3], [1, 1, 0], [0, 4, 0]])


def parts(X: Any = COUNTS, y: Any = (0, 1, 0, 1), test: Any = (False, False, True, True)) -> dict[str, Any]:
    sparse = csr_array(np.asarray(X, dtype=np.float32))
    return {
        "X_data": sparse.data,
        "X_indices": sparse.indices,
        "X_indptr": sparse.indptr,
        "X_shape": np.array(sparse.shape, dtype=np.int32),
        "y": np.array(y, dtype=np.uint8),
        "is_test": np.array(test, dtype=np.uint8),
    }


def bundle(**changes: Any) -> ClassBundle:
    given: dict[str, Any] = {
        "name": "toy",
        "source": "memory",
        "X": np.arange(8.0).reshape(4, 2),
        "y": np.array([0, 1, 0, 1]),
        "test": np.array([False, False, True, True]),
    }
    return ClassBundle(**(given | changes))


@pytest.fixture
def posts(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Four posts in place of the network; the list counts the fetches."""
    fetched: list[str] = []

    def fetch(subset: str, **_: Any) -> SimpleNamespace:
        fetched.append(subset)
        rows = [0, 2] if subset == "train" else [1, 3]
        return SimpleNamespace(data=[POSTS[row] for row in rows], target=np.array([0, 1]))

    monkeypatch.setattr("sklearn.datasets.fetch_20newsgroups", fetch)
    return fetched


class TestBundle:
    @each_row(
        ("changes", "says"),
        [
            ({"X": np.ones(4)}, "Expected 2D array"), ({"X": np.ones((4, 0))}, "0 feature"),
            ({"X": np.full((4, 2), np.nan)}, "X contains NaN"),
            ({"X": csr_array(np.diag([1.0, 2.0, 3.0, np.inf]))}, "X holds NaN or infinity"),
            ({"y": np.array([0, 1, 0])}, r"y must be an int64 array of shape \(4,\)"),
            ({"y": np.array([0.0, 1.0, 0.0, 1.0])}, "y must be an int64"),
            ({"y": np.array([1, 2, 1, 2])}, "0 .. n_classes - 1"),
            ({"y": np.array([0, 2**62, 0, 1])}, "0 .. n_classes - 1"),
            ({"y": np.zeros(4, dtype=np.int64)}, "at least two classes"),
            ({"test": np.array([0, 0, 1, 1])}, "test must be a bool"),
            ({"class_names": ("a",)}, "class_names must be 2, got 1"),
            ({"test": np.zeros(4, dtype=bool)}, "both parts need"),
            ({"test": np.ones(4, dtype=bool)}, "both parts need"),
        ],
    )  # fmt: skip
    def test_refuses(self, changes: dict[str, Any], says: str) -> None:
        with pytest.raises(InvalidInputError, match=f"'toy' .from memory. cannot be used.*{says}"):
            bundle(**changes)

    def test_a_sparse_table_becomes_canonical_and_what_was_given_stays(self) -> None:
        given = csr_array((np.ones(5), [1, 0, 0, 0, 1], [0, 2, 3, 5, 5]), shape=(4, 2))
        found = bundle(X=given)
        assert found.X.has_canonical_format
        assert found.X.indices.dtype == np.int32
        assert given.indices.tolist() == [1, 0, 0, 0, 1]
        assert bundle(X=given.tocsc()).fingerprint() == found.fingerprint()

    def test_resplit_keeps_proportions_and_repeats(self) -> None:
        y = np.repeat([0, 1, 2], [100, 40, 60])
        whole = bundle(X=np.ones((200, 1)), y=y, test=np.arange(200) < 10)
        again = whole.resplit(3, 0.35)
        assert np.bincount(y[again.test]).tolist() == [35, 14, 21]
        assert np.array_equal(again.test, whole.resplit(3).test)
        assert not np.array_equal(again.test, whole.resplit(4).test)
        assert again.X is whole.X
        assert whole.test.sum() == 10


class TestDataFolder:
    def test_argument_before_environment_before_cache(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        import pooch

        (tmp_path / "set").mkdir()
        monkeypatch.setenv("RMOPT_DATA_HOME", str(tmp_path / "set"))
        assert data_folder(tmp_path) == tmp_path
        assert data_folder() == tmp_path / "set"
        monkeypatch.setenv("RMOPT_DATA_HOME", "")
        assert data_folder() == Path(pooch.os_cache("rmopt"))


class TestLoad:
    def test_unknown_names_get_the_list_and_a_close_match(self) -> None:
        assert np.array_equal(load("digits").X, digits().X)
        with pytest.raises(
            InvalidInputError, match=r"no data set 'digit', .*; known .*news20.*mean 'digits'"
        ):
            load("digit")
        with pytest.raises(InvalidInputError, match=r"known data sets: .*news20-full.*\.$"):
            load("zzz")

    def test_a_loader_that_gives_no_bundle_is_named(self, monkeypatch: pytest.MonkeyPatch) -> None:
        entry = EntryPoint("broken", "builtins:str", "rmopt.datasets")
        monkeypatch.setattr(registry, "entry_points", lambda group: EntryPoints([entry]).select(group=group))
        with pytest.raises(InvalidInputError, match="gave a str, not a Bundle"):
            load("broken")


class TestNewsgroups:
    def test_reads_the_published_file_without_writing(self, tmp_path: Path) -> None:
        np.savez(tmp_path / datasets.NEWS20_FILE, **parts(y=(1, 2, 1, 2)))
        tmp_path.chmod(0o500)
        loaded = news20(tmp_path)
        tmp_path.chmod(0o700)
        assert loaded.name == "news20"
        assert loaded.source == datasets.NEWS20_FILE
        assert isinstance(loaded.X, csr_array)
        assert np.array_equal(loaded.X.toarray(), COUNTS)
        assert loaded.y.tolist() == [0, 1, 0, 1]
        assert loaded.test.tolist() == [False, False, True, True]
        assert [path.name for path in tmp_path.iterdir()] == [datasets.NEWS20_FILE]

    def test_full_vocabulary_loses_its_stop_words(self, tmp_path: Path) -> None:
        words = np.frombuffer(b"apple\nthe\nzebra", dtype=np.uint8)
        np.savez(tmp_path / datasets.NEWS20_FULL_FILE, vocabulary_utf8=words, **parts())
        assert np.array_equal(news20_full(tmp_path).X.toarray(), COUNTS[:, [0, 2]])

    def test_is_fetched_and_counted_where_the_file_is_missing(self, tmp_path: Path, posts: list[str]) -> None:
        found = news20(tmp_path)
        assert posts == ["train", "test"]
        assert found.source == "scikit-learn"
        # Terms of two posts, no stop words: apples, fly, rockets; training posts first.
        assert found.X.toarray().tolist() == [[1, 0, 0], [0, 1, 1], [1, 0, 0], [0, 1, 1]]
        assert found.y.tolist() == [0, 1, 0, 1]
        assert found.test.tolist() == [False, False, True, True]

    @real(datasets.NEWS20_FILE, datasets.NEWS20_FULL_FILE)
    def test_the_real_files_have_their_published_sizes(self) -> None:
        cai, full = load("news20", REAL), load("news20-full", REAL)
        assert cai.X.shape == (18846, 26214)
        assert cai.X.nnz == 1687590
        assert full.X.shape[0] == 18846
        assert 61000 < full.X.shape[1] < 61849
        for loaded in (cai, full):
            assert loaded.n_classes == 20
            assert (loaded.train.sum(), loaded.test.sum()) == (11314, 7532)


def ratings(**names: Any) -> Ratings:
    rows, columns = np.array([[0, 1, 2, 0], [0, 0, 1, 1]], dtype=np.int32)
    return Ratings("r", "memory", rows, columns, np.array([1.0, 5, 3, 2]), (3, 2), (1.0, 5.0), **names)


def test_training_rows_are_as_many_as_there_are() -> None:
    whole = MultilabelBundle("m", "memory", np.eye(3), csr_array(np.eye(3)), np.arange(3) > 1)
    assert whole.with_training_rows(1, 0).train.sum() == 1
    for rows in (-1, 3):
        with pytest.raises(InvalidInputError, match=f"n_train = {rows} must be"):
            whole.with_training_rows(rows, 0)


def test_names_of_a_bundle_are_its_own_and_of_any_kind_of_text() -> None:
    given = np.array(["x", "y", "z"], dtype=object)
    bundle = ratings(row_names=given)
    given[0] = "changed"
    assert {name for name, _ in BiasedALS(1, random_state=0).fit(bundle).recommend(1)} == {"y"}
