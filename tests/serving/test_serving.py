"""Search of learned similarities: exact, in graphs of other packages, from a folder, and on a page."""

from __future__ import annotations

import copy
import http.client
import importlib.util
import json
import pickle
import shutil
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.error import HTTPError
from urllib.parse import quote
from urllib.request import urlopen

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.decomposition import TruncatedSVD
from sklearn.exceptions import NotFittedError
from sklearn.feature_extraction.text import HashingVectorizer, TfidfVectorizer
from sklearn.neighbors import NearestNeighbors
from sklearn.pipeline import make_pipeline

from problems.metric import EuclideanMetric
from problems.ranking import LoretaLabelRanker, LowRankLogisticRegression
from problems.serving import Found, Result, Searcher, SimilarityIndex, make_server, to_onnx, top_k
from problems.serving import index as search
from problems.serving.web import TextSearch, answer
from problems.similarity import ContrastiveSimilarity, LoretaSimilarity
from rmopt import InvalidInputError
from rmopt.errors import StorageError

Array = np.ndarray

WORDS = {"fruit": ["apple", "pear", "plum", "fig"], "space": ["rocket", "orbit", "moon", "star"]}
EVIL = "<script>alert('moon')</script>"


def by_sorting(queries: Array, items: Array, k: int) -> tuple[Array, Array]:
    scores = queries @ items.T
    order = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    return np.take_along_axis(scores, order, axis=1), order


@pytest.fixture(scope="module")
def table() -> tuple[Array, Array]:
    """Queries and items whose scores are exact in single precision, with many equal ones."""
    rng = np.random.default_rng(0)
    return tuple(rng.integers(-3, 4, size=(n, 6)).astype(np.float32) for n in (70, 500))  # type: ignore[return-value]


@pytest.fixture(scope="module")
def corpus() -> tuple[list[str], list[str]]:
    rng = np.random.default_rng(0)
    pairs = [
        (" ".join(rng.choice([*own, "the", "of"], 12)), kind)
        for kind, own in WORDS.items()
        for _ in range(20)
    ]
    texts, classes = zip(*pairs, strict=True)
    # The second one holds half a character.
    return [f"{texts[0]} {EVIL}", f"{texts[1]} \ud800", *texts[2:]], list(classes)


@pytest.fixture(scope="module")
def terms(corpus: Any) -> TfidfVectorizer:
    return TfidfVectorizer().fit(corpus[0])


MODELS = {
    "contrastive": ContrastiveSimilarity(rank=3, n_epochs=20, random_state=0),
    "loreta": LoretaSimilarity(rank=2, max_iter=500, init="gaussian", random_state=0),
    "loreta-psd": LoretaSimilarity(rank=2, max_iter=500, psd=True, random_state=0),
}


@pytest.fixture(scope="module")
def index(corpus: Any, terms: TfidfVectorizer) -> SimilarityIndex:
    texts, classes = corpus
    X, names = terms.transform(texts), [f"text {n} & <b>{n}</b>" for n in range(len(texts))]
    return clone(MODELS["loreta"]).fit(X, classes).index(X, names, texts=texts, vectorizer=terms)


@pytest.fixture(scope="module")
def address(index: SimilarityIndex) -> Iterator[str]:
    server = make_server(index, port=0, title="A & B")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.parametrize("few", [5, search.FEW])
@pytest.mark.parametrize(("k", "block_size"), [(1, 7), (10, 64), (10, 8192), (500, 100)])
def test_the_largest_are_those_of_a_sort(
    table: Any, k: int, block_size: int, few: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    queries, items = table
    monkeypatch.setattr(search, "FEW", few)
    for kind in (np.float32, np.float64):
        found = top_k(queries, items.astype(kind), k, block_size=block_size)
        assert found[0].dtype == kind
        for one, expected in zip(found, by_sorting(queries, items, k), strict=True):
            np.testing.assert_array_equal(one, expected)


def test_all_items_are_in_the_order_of_a_sort() -> None:
    items = np.random.default_rng(0).standard_normal((30_000, 2))
    scores, indices = top_k(items[:1], items, len(items))
    np.testing.assert_array_equal(indices[0], np.argsort(-(items @ items[0]), kind="stable"))
    np.testing.assert_array_equal(scores[0], (items @ items[0])[indices[0]])


def test_exclude_and_mask_are_those_of_a_sort(table: Any) -> None:
    queries, items = table
    rng = np.random.default_rng(1)
    exclude = [rng.choice(500, size=n % 5, replace=False).tolist() for n in range(len(queries))]
    mask = rng.random(500) < 0.5
    scores, indices = top_k(queries, items, 9, exclude=exclude, mask=mask, block_size=37)
    for n, query in enumerate(queries):
        left = np.setdiff1d(np.flatnonzero(mask), exclude[n])
        order = left[np.argsort(-(items[left] @ query), kind="stable")[:9]]
        np.testing.assert_array_equal(indices[n], order)
        np.testing.assert_array_equal(scores[n], items[order] @ query)


def test_a_file_is_searched_where_it_lies_and_neighbours_are_scikit_learns(tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    items = rng.standard_normal((300, 5))
    items /= np.linalg.norm(items, axis=1, keepdims=True)
    np.save(tmp_path / "items.npy", items)
    scores, indices = top_k(items[:4], np.load(tmp_path / "items.npy", mmap_mode="r"), 3, block_size=50)
    distances, neighbours = (
        NearestNeighbors(metric="cosine", algorithm="brute").fit(items).kneighbors(items[:4], 3)
    )
    np.testing.assert_array_equal(indices, neighbours)
    np.testing.assert_allclose(1.0 - scores, distances, atol=1e-12)


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"k": 501}, "k = 501 must be an integer of at least 1 and at most 500"),
        ({"queries": np.ones((1, 5))}, "as the items have"),
        ({"queries": [[np.nan] * 6]}, "NaN or infinity"),
        ({"items": np.ones((3, 6), dtype=int)}, "float32 or float64"),
        ({"items": [[1.0]]}, "an array or a memmap"),
        ({"exclude": [[1], [2]]}, "for each of 1 queries, got 2"),
        ({"exclude": [[500]]}, "numbers of items, 0 to 499"),
        ({"exclude": [[True]]}, "numbers of items"),
        ({"exclude": [3]}, "must be a sequence"),
        ({"mask": np.ones(499, dtype=bool)}, "500 booleans"),
        ({"mask": np.ones(500)}, "500 booleans"),
        ({"mask": np.arange(500) < 3}, "only 3 items with a finite score"),
        ({"items": np.full((20, 6), np.nan)}, "only 0 items with a finite score"),
        ({"block_size": 0}, "block_size"),
    ],
    ids=lambda value: None if isinstance(value, dict) else value[:20],
)  # fmt: skip
def test_what_cannot_be_searched_is_refused(table: Any, changed: dict[str, Any], sentence: str) -> None:
    given = {"queries": table[0][:1], "items": table[1], "k": 4} | changed
    with pytest.raises(InvalidInputError, match=sentence):
        top_k(**given)


@pytest.mark.parametrize("name", MODELS)
def test_an_index_ranks_as_the_model_does_and_terms_sum_to_its_scores(
    name: str, corpus: Any, terms: TfidfVectorizer
) -> None:
    X = terms.transform(corpus[0])
    model = clone(MODELS[name]).fit(X, corpus[1])
    index = model.index(X)
    expected = model.similarity(X[:5], X)
    scores, indices = index.query(X[:5], k=4)
    np.testing.assert_allclose(scores, np.take_along_axis(expected, indices, axis=1), atol=1e-6)
    np.testing.assert_allclose(scores, -np.sort(-expected, axis=1)[:, :4], atol=1e-6)
    assert index.most_similar(X[:5], k=4) == [
        list(zip(*row, strict=True)) for row in zip(indices.tolist(), scores.tolist(), strict=True)
    ]
    _, others = index.query(X[:5], k=39, exclude=[[n] for n in range(5)])
    assert [sorted(row) for row in others.tolist()] == [[m for m in range(40) if m != n] for n in range(5)]
    parts = index.contributions(X[3], X)
    np.testing.assert_allclose(parts.sum(axis=1), expected[3], atol=1e-12)
    assert not parts.toarray()[X.toarray() == 0.0].any()


@pytest.mark.parametrize("mmap", [True, False])
def test_a_folder_brings_the_same_back(index: SimilarityIndex, tmp_path: Path, mmap: bool) -> None:
    index.save(tmp_path / "new")
    back = SimilarityIndex.load(tmp_path / "new", mmap=mmap)
    assert isinstance(back.embeddings, np.memmap) == mmap
    assert (back.names, back.texts, back.normalize) == (index.names, index.texts, index.normalize)
    X = index.vectorizer.transform(["the moon", "a plum"])
    for one, expected in zip(back.query(X), index.query(X), strict=True):
        np.testing.assert_array_equal(one, expected)
    assert TextSearch(back).nearest("the moon") == TextSearch(index).nearest("the moon")
    # Into its own folder, and without what it had before.
    back.texts = back.vectorizer = None
    back.save(tmp_path / "new")
    bare = SimilarityIndex.load(tmp_path / "new", mmap=mmap)
    assert bare.texts is None
    assert bare.vectorizer is None
    np.testing.assert_array_equal(bare.query(X)[0], index.query(X)[0])


def test_what_cannot_be_loaded_is_told(index: SimilarityIndex, tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="does not exist"):
        SimilarityIndex.load(tmp_path / "nothing")
    index.save(tmp_path)
    terms = copy.deepcopy(index.vectorizer)
    terms.preprocessor = lambda text: text
    with pytest.raises((pickle.PicklingError, AttributeError), match="lambda"):
        replace(index, vectorizer=terms).save(tmp_path)
    assert len(SimilarityIndex.load(tmp_path)) == len(index)
    for name in ("embeddings.npy", "query_map.npy", "texts.json", "vectorizer.joblib", "index.json"):
        whole = (tmp_path / name).read_bytes()
        (tmp_path / name).write_bytes(whole[: len(whole) // 2])
        with pytest.raises(StorageError, match=name):
            SimilarityIndex.load(tmp_path)
        (tmp_path / name).write_bytes(whole)
    about = json.loads((tmp_path / "index.json").read_text())
    (tmp_path / "index.json").write_text(json.dumps(about | {"format": 2}))
    with pytest.raises(StorageError, match="format 2"):
        SimilarityIndex.load(tmp_path)
    (tmp_path / "index.json").write_text(json.dumps(about | {"names": ["one"]}))
    with pytest.raises(StorageError, match="one for each document"):
        SimilarityIndex.load(tmp_path)


@pytest.mark.parametrize("kind", ["hnswlib", "faiss", "usearch"])
def test_graphs_find_what_a_sort_finds(kind: str) -> None:
    if importlib.util.find_spec(kind) is None:
        pytest.skip(f"{kind} is not installed; pip install rmopt[serve] brings it")
    rng = np.random.default_rng(3)
    items, eye = rng.standard_normal((400, 8)).astype(np.float32), np.eye(8)
    exact = SimilarityIndex(items, eye, eye, False)
    graph = exact.to_index(kind, M=16, ef=200)
    queries = rng.standard_normal((50, 8))
    exclude = [[int(n)] for n in exact.query(queries, 1)[1][:, 0]]
    for options in ({}, {"exclude": exclude}):
        (scores, indices), (_, truth) = (one.query(queries, 10, **options) for one in (graph, exact))
        recall = np.mean(
            [len({*a} & {*b}) / 10 for a, b in zip(indices.tolist(), truth.tolist(), strict=True)]
        )
        assert recall > 0.98
        np.testing.assert_allclose(scores, np.einsum("qd,qkd->qk", queries, items[indices]), atol=1e-5)
        assert (np.diff(scores, axis=1) <= 0.0).all()
    np.testing.assert_array_equal(graph.query(queries[:1])[1], graph.query(queries)[1][:1])
    for again in (pickle.loads(pickle.dumps(graph)), copy.deepcopy(graph)):
        np.testing.assert_array_equal(again.query(queries)[1], graph.query(queries)[1])
    with pytest.raises(InvalidInputError, match="mask is for the exact index"):
        graph.query(queries, mask=np.ones(400, dtype=bool))
    np.testing.assert_array_equal(graph.to_index("exact").query(queries)[1], exact.query(queries)[1])


def test_a_query_without_a_known_feature_is_told() -> None:
    index = SimilarityIndex(np.eye(3, dtype=np.float32), np.eye(3), np.eye(3), False)
    with pytest.warns(UserWarning, match="2 of 3 queries have no feature .* query 1:"):
        index.query([[0.0, 1.0, 0.0], [0.0, 0.0, 0.0], [0.0, 0.0, 0.0]], 2)


def test_onnx_files_give_what_models_give(tmp_path: Path) -> None:
    if importlib.util.find_spec("onnx") is None or importlib.util.find_spec("onnxruntime") is None:
        pytest.skip("onnx or onnxruntime is not installed; pip install rmopt[onnx] brings them")
    import onnxruntime

    rng = np.random.default_rng(5)
    X = rng.random((60, 9)) * (rng.random((60, 9)) < 0.5)
    X[7] = 0.0
    classes, labels = np.arange(60) % 3, (rng.random((60, 5)) < 0.4).astype(int)
    path = tmp_path / "model.onnx"

    def outputs(model: Any) -> dict[str, Array]:
        to_onnx(model, path)
        session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        return dict(
            zip([one.name for one in session.get_outputs()], session.run(None, {"X": X}), strict=True)
        )

    for name, model in MODELS.items():
        model = clone(model).fit(X, classes)
        found = outputs(model)
        by_query = model.transform if name == "contrastive" else model.transform_queries
        assert set(found) == {"queries", "documents"}
        np.testing.assert_allclose(found["queries"], by_query(X), rtol=1e-6, atol=1e-12)
        np.testing.assert_allclose(found["documents"], model.transform(X), rtol=1e-6, atol=1e-12)
    logistic = LowRankLogisticRegression(2, n_epochs=3, random_state=0).fit(X, labels)
    found = outputs(logistic)
    assert set(found) == {"scores", "probabilities"}
    np.testing.assert_allclose(found["scores"], logistic.decision_function(X), rtol=1e-6)
    np.testing.assert_allclose(found["probabilities"], logistic.predict_proba(X), rtol=1e-6)
    ranker = LoretaLabelRanker(2, n_epochs=3, random_state=0).fit(X, labels)
    np.testing.assert_allclose(outputs(ranker)["scores"], ranker.decision_function(X), rtol=1e-6, atol=1e-12)


def test_what_cannot_be_written_as_onnx(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnx", None)
    path, X = tmp_path / "model.onnx", np.eye(4)
    with pytest.raises(NotFittedError):
        to_onnx(LoretaLabelRanker(), path)
    with pytest.raises(
        InvalidInputError, match=r"EuclideanMetric.* cannot be written as ONNX; take a similarity"
    ):
        to_onnx(EuclideanMetric().fit(X, [0, 0, 1, 1]), path)
    with pytest.raises(InvalidInputError, match="pip install onnx, or use the matrices themselves"):
        to_onnx(LowRankLogisticRegression(1, n_epochs=1).fit(X, np.eye(4, 2)), path)
    assert not path.exists()


class Forgetful:
    """A search that a stranger brings: it finds nothing of the second half."""

    def __call__(self, queries: Array, k: int) -> Array:
        found = np.tile(np.arange(k), (len(queries), 1))
        found[:, k // 2 :] = -1
        return found


def test_a_graph_that_finds_too_few_and_one_that_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    eye = np.eye(3)
    index = SimilarityIndex(np.ones((9, 3), dtype=np.float32), eye, eye, False, search=Forgetful())
    with pytest.raises(InvalidInputError, match="fewer than k = 4 documents; raise ef"):
        index.query(eye, 4)
    monkeypatch.setitem(sys.modules, "hnswlib", None)
    for kind, options, sentence in (
        ("hnswlib", {}, "pip install hnswlib"),
        ("hnswlib", {"m": 3}, "did you mean|unknown"),
        ("hnswlib", {"M": 1}, "M = 1"),
        ("exact", {"M": 3}, "no options"),
        ("hnsw", {}, "did you mean 'hnswlib'"),
    ):
        with pytest.raises(InvalidInputError, match=sentence):
            index.to_index(kind, **options)


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"embeddings": np.ones((40, 2))}, "float32"),
        ({"query_map": np.ones((5, 3))}, "must have shape"),
        ({"names": ["a"]}, "one for each document"),
        ({"names": np.arange(40).astype("datetime64[D]")}, "strings or numbers, and .* is neither"),
        ({"texts": ["a"] * 39}, "one for each document"),
        ({"texts": [3] * 40}, "a string"),
        ({"vectorizer": TfidfVectorizer()}, "Vocabulary not fitted|fitted"),
        ({"vectorizer": TfidfVectorizer().fit(["one", "two"])}, "2 features"),
        ({"vectorizer": "tfidf"}, "get_feature_names_out"),
        ({"vectorizer": HashingVectorizer()}, "of one that hashes give its rows to query"),
        ({"normalize": "no"}, "normalize"),
    ],
)
def test_what_makes_no_index_is_refused(
    index: SimilarityIndex, changed: dict[str, Any], sentence: str
) -> None:
    given = {name: getattr(index, name) for name in ("embeddings", "query_map", "document_map", "normalize")}
    with pytest.raises(InvalidInputError, match=sentence):
        SimilarityIndex(**given | changed)


def test_a_query_is_text_where_there_is_a_vectorizer(index: SimilarityIndex, terms: TfidfVectorizer) -> None:
    texts = [index.texts[3], "nothing of this is known"]
    for query in (texts, tuple(texts), np.array(texts), texts[0]):
        scores, rows = index.query(query, k=4)
        several = [query] if isinstance(query, str) else list(query)
        wanted = index.query(terms.transform(several), k=4)
        np.testing.assert_array_equal(scores, wanted[0])
        np.testing.assert_array_equal(rows, wanted[1])
    with pytest.raises(InvalidInputError, match="no vectorizer"):
        replace(index, vectorizer=None).query(texts[0])
    # Nor are all documents shown where an index is.
    assert texts[0] not in repr(index)


def test_a_query_of_other_features_is_refused(index: SimilarityIndex) -> None:
    with pytest.raises(InvalidInputError, match="X has 4 features"):
        index.query(np.ones((1, 4)))
    rows = np.ones((2, len(index.query_map)))
    with pytest.raises(InvalidInputError, match="must be a table"):
        index.query(rows[0])
    with pytest.raises(InvalidInputError, match="x must be one query, got 2 rows"):
        index.contributions(rows, rows)


def test_features_that_are_not_sparse_and_numbers_as_names(corpus: Any, tmp_path: Path) -> None:
    texts, classes = corpus
    topics = make_pipeline(TfidfVectorizer(), TruncatedSVD(4, random_state=0))
    X = topics.fit_transform(texts)
    model = clone(MODELS["contrastive"]).fit(X, classes)
    index = model.index(X, range(100, 140), texts=texts, vectorizer=topics)
    index.save(tmp_path)
    stored = SimilarityIndex.load(tmp_path)
    search = TextSearch(stored)
    best = search.nearest(texts[3], 1).results[0].told
    assert best["row"] == index.query(X[3:4], 1)[1][0, 0]
    assert best["name"] == 100 + best["row"]
    assert answer(search, "", "http://[/")[:2] == (400, "text/plain")
    # Cosines do not see lengths.
    np.testing.assert_array_equal(index.query(X * 2.0**600, 5)[1], index.query(X, 5)[1])
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match="choose another folder"):
        index.save(tmp_path / "file")


def ask(address: str, target: str) -> tuple[int, dict[str, str], str]:
    try:
        with urlopen(f"{address}{target}", timeout=10) as reply:
            return reply.status, dict(reply.headers), reply.read().decode()
    except HTTPError as error:
        return error.code, dict(error.headers), error.read().decode()


def test_programs_get_what_the_index_finds(address: str, index: SimilarityIndex) -> None:
    status, headers, content = ask(address, f"/search?q={quote('the moon & a rocket')}&k=3")
    assert (status, headers["Content-Type"]) == (200, "application/json; charset=utf-8")
    told = json.loads(content)
    x = index.vectorizer.transform(["the moon & a rocket"])
    scores, indices = index.query(x, 3)
    assert told["query"] == "the moon & a rocket"
    assert [one["row"] for one in told["results"]] == indices[0].tolist()
    assert [one["name"] for one in told["results"]] == [index.names[row] for row in indices[0]]
    np.testing.assert_allclose([one["score"] for one in told["results"]], scores[0])
    for one in told["results"]:
        assert [reason["shared"] for reason in one["why"]] == [
            reason["term"] in ("the", "moon", "rocket") for reason in one["why"]
        ]
    # Documents like one are others.
    like = json.loads(ask(address, "/search?like=4&k=100")[2])
    assert sorted(one["row"] for one in like["results"]) == [row for row in range(40) if row != 4]


def test_people_get_a_page_where_nothing_from_outside_is_html(address: str) -> None:
    status, headers, page = ask(address, f"/?q={quote(EVIL + chr(34) + ' apple')}&k=40")
    assert (status, headers["Content-Type"]) == (200, "text/html; charset=utf-8")
    assert "default-src 'none'" in headers["Content-Security-Policy"]
    assert "<script" not in page
    assert "<title>A &amp; B</title>" in page
    assert 'value="&lt;script&gt;alert(&#x27;moon&#x27;)&lt;/script&gt;&quot; apple"' in page
    assert page.count("<li>") == 40
    assert "text 0 &amp; &lt;b&gt;0&lt;/b&gt;" in page
    assert "<li>" not in ask(address, "/")[2]


@pytest.mark.parametrize(
    ("target", "status", "sentence"),
    [
        ("/search?q=zebra", 200, "No word of this is known"),
        ("/search?q=moon&k=0", 400, "k = 0 must be an integer"),
        ("/search?q=moon&k=many", 400, "k = 'many' must be an integer"),
        ("/search?q=moon&k=101", 400, "at most 100"),
        ("/search?like=40", 400, "like = 40"),
        ("/?like=-1", 400, "like = "),
        (f"/search?q={'moon+' * 1500}", 400, "characters; give at most"),
        (f"/search?{'&'.join('q=a' for _ in range(200))}", 400, "too many parts"),
        ("/search?q=%ff%00", 200, "No word of this is known"),
        ("/../etc/passwd", 404, "nothing here"),
        ("/favicon.ico", 404, "nothing here"),
    ],
    ids=lambda value: value[:24] if isinstance(value, str) else None,
)
def test_what_cannot_be_answered_is_told(address: str, target: str, status: int, sentence: str) -> None:
    found, _, content = ask(address, target)
    assert found == status
    assert sentence in content


def test_a_server_that_cannot_be_is_refused(index: SimilarityIndex) -> None:
    with (
        make_server(index, port=0) as server,
        pytest.raises(InvalidInputError, match="cannot listen at"),
    ):
        make_server(index, port=server.server_address[1])
    for how in ({"host": 5}, {"title": None}):
        with pytest.raises(InvalidInputError, match=f"{next(iter(how))} = .* must be"):
            make_server(index, port=0, **how)  # type: ignore[arg-type]
    bare = SimilarityIndex(index.embeddings, index.query_map, index.document_map, index.normalize)
    with pytest.raises(InvalidInputError, match="no texts and no vectorizer"):
        make_server(bare, port=0)
    alone = SimilarityIndex(
        index.embeddings[:1], index.query_map, index.document_map, index.normalize,
        texts=["moon"], vectorizer=index.vectorizer,
    )  # fmt: skip
    assert "no other document" in answer(TextSearch(alone), "", "/?like=0")[2]


def test_the_command_line(
    index: SimilarityIndex,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    from http.server import ThreadingHTTPServer
    from importlib.metadata import EntryPoint

    from rmopt.cli import main

    # As it is registered where this checkout is installed.
    entry = EntryPoint("serve", "problems.serve:serve", "rmopt.serve")
    monkeypatch.setattr("rmopt.cli.registry.registered", lambda group: [entry])
    served = []

    def interrupted(server: ThreadingHTTPServer) -> None:
        served.append(server.server_address)
        raise KeyboardInterrupt

    monkeypatch.setattr(ThreadingHTTPServer, "serve_forever", interrupted)
    index.save(tmp_path)
    for folder, code in ((tmp_path, 0), (tmp_path / "nothing", 2)):
        with pytest.raises(SystemExit) as ended:
            main(["serve", str(folder), "--port", "0"])
        assert (ended.value.code or 0) == code
    said = capsys.readouterr()
    assert f"http://127.0.0.1:{served[0][1]}/" in said.out.replace("\n", "")
    assert "does not exist" in said.err


def test_a_browser_types_a_query_and_reads_the_results(address: str) -> None:
    if importlib.util.find_spec("selenium") is None or not (
        shutil.which("chromium") and shutil.which("chromedriver")
    ):
        pytest.skip(
            "a browser is not installed; pip install selenium and apt install chromium-driver bring one"
        )
    from selenium import webdriver
    from selenium.webdriver.common.by import By
    from selenium.webdriver.support.expected_conditions import (
        text_to_be_present_in_element as shows,
    )
    from selenium.webdriver.support.wait import WebDriverWait

    items = (By.TAG_NAME, "li")
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium")
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(argument)
    service = webdriver.ChromeService(executable_path=shutil.which("chromedriver"))
    with webdriver.Chrome(options=options, service=service) as browser:
        browser.get(address)
        wait = WebDriverWait(browser, 60)
        # Return sends the form and does not wait for the answer.
        browser.find_element(By.NAME, "q").send_keys("rocket moon\n")
        wait.until(lambda page: len(page.find_elements(*items)) == 10)
        results = browser.find_elements(*items)
        assert all(any(word in one.text for word in WORDS["space"]) for one in results)
        browser.find_element(By.LINK_TEXT, "similar").click()
        wait.until(shows((By.CSS_SELECTOR, "[role=status]"), "Similar to text"))
        wait.until(lambda page: len(page.find_elements(*items)) == 10)


class Nothing(Searcher):
    prompt = "Anything"

    def find(self, fields: Any, k: int) -> Found:
        return Found("", [])


def test_results_may_hold_numbers_of_numpy() -> None:
    class One(Nothing):
        def find(self, fields: Any, k: int) -> Found:
            return Found("", [Result({"name": "a", "row": np.int64(3), "score": np.float32(0.5)})])

    found = json.loads(answer(One(), "", "/search?q=a")[2])["results"]
    assert found == [{"name": "a", "row": 3, "score": 0.5}]


def test_a_page_answers_head() -> None:
    server = make_server(Nothing(), port=0)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        connection = http.client.HTTPConnection(*server.server_address[:2])
        connection.request("HEAD", "/")
        answer = connection.getresponse()
        assert (answer.status, answer.read()) == (200, b"")
        assert int(answer.headers["Content-Length"]) > 0
        connection.close()
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
