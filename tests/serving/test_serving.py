"""Search of learned similarities: exact, from a folder, and on a page."""

import json
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.feature_extraction.text import TfidfVectorizer

from problems.serve import serve
from problems.serving import Found, Searcher, SimilarityIndex, TextSearch, make_app, top_k
from problems.serving import index as search
from problems.serving.texts import passage
from problems.similarity import ContrastiveSimilarity, LoretaSimilarity
from rmopt import InvalidInputError
from rmopt.errors import StorageError

Array = np.ndarray
WORDS = {"fruit": ["apple", "pear", "plum", "fig"], "space": ["rocket", "orbit", "moon", "star"]}
EVIL = "<script>alert('moon')</script>"
MODELS = {
    "contrastive": ContrastiveSimilarity(rank=3, n_epochs=20, random_state=0),
    "loreta": LoretaSimilarity(rank=2, max_iter=500, init="gaussian", random_state=0),
    "loreta-psd": LoretaSimilarity(rank=2, max_iter=500, psd=True, random_state=0),
}


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
def index(corpus: Any) -> SimilarityIndex:
    texts, classes = corpus
    terms = TfidfVectorizer().fit(texts)
    X, names = terms.transform(texts), [f"text {n} & <b>{n}</b>" for n in range(len(texts))]
    return (
        clone(MODELS["loreta"]).fit(X, classes).index(X, names, texts=texts, vectorizer=terms, labels=classes)
    )


@pytest.mark.parametrize(("k", "block"), [(1, 7), (10, 64), (10, 8192), (500, 100)])
def test_the_largest_are_those_of_a_sort(table: Any, k: int, block: int, monkeypatch: Any) -> None:
    monkeypatch.setattr(search, "ITEMS", block)
    for kind in (np.float32, np.float64):
        scores, indices = top_k(table[0], table[1].astype(kind), k)
        every = table[0] @ table[1].T
        order = np.argsort(-every, axis=1, kind="stable")[:, :k]
        assert scores.dtype == kind
        np.testing.assert_array_equal(indices, order)
        np.testing.assert_array_equal(scores, np.take_along_axis(every, order, axis=1))


def test_a_file_is_searched_as_memory_is(table: Any, tmp_path: Path) -> None:
    queries, items = table
    np.save(tmp_path / "items.npy", items)
    mapped = np.load(tmp_path / "items.npy", mmap_mode="r")
    for values, expected in zip(top_k(queries, mapped, 9), top_k(queries, items, 9), strict=True):
        np.testing.assert_array_equal(values, expected)


@pytest.mark.parametrize(
    "changed",
    [
        {"k": 501}, {"queries": np.ones((1, 5))}, {"queries": [[np.nan] * 6]}, {"items": np.ones((3, 6), dtype=int)},
        {"items": [[1.0]]}, {"items": np.full((20, 6), np.nan)},
    ],
)  # fmt: skip
def test_what_cannot_be_searched_is_refused(table: Any, changed: dict[str, Any]) -> None:
    with pytest.raises(InvalidInputError, match=next(iter(changed)).removesuffix("s")):
        top_k(**{"queries": table[0][:1], "items": table[1], "k": 4} | changed)


@pytest.mark.parametrize("name", MODELS)
def test_an_index_ranks_as_the_model_does(name: str, corpus: Any) -> None:
    X = TfidfVectorizer().fit_transform(corpus[0])
    model = clone(MODELS[name]).fit(X, corpus[1])
    index = model.index(X)
    expected = model.similarity(X[:5], X)
    scores, indices = index.query(X[:5], k=4)
    np.testing.assert_allclose(scores, np.take_along_axis(expected, indices, axis=1), atol=1e-6)
    np.testing.assert_allclose(scores, -np.sort(-expected, axis=1)[:, :4], atol=1e-6)


def test_a_folder_brings_the_same_back(index: SimilarityIndex, tmp_path: Path) -> None:
    index.save(tmp_path / "new")
    back = SimilarityIndex.load(tmp_path / "new")
    assert isinstance(back.embeddings, np.memmap)
    assert (back.names, back.texts) == (index.names, index.texts)
    for values, expected in zip(back.query(["the moon"]), index.query(["the moon"]), strict=True):
        np.testing.assert_array_equal(values, expected)
    back.save(tmp_path / "new")
    whole = (tmp_path / "new" / search.FILE).read_bytes()
    (tmp_path / "new" / search.FILE).write_bytes(whole[: len(whole) // 2])
    for folder in ("new", "nothing"):
        with pytest.raises(StorageError, match="index"):
            SimilarityIndex.load(tmp_path / folder)


def test_names_and_texts_are_as_many_as_documents(index: SimilarityIndex) -> None:
    for changed in ({"names": ["a"]}, {"texts": ["a"] * 39}, {"labels": ["a"]}):
        with pytest.raises(InvalidInputError, match=next(iter(changed))):
            replace(index, **changed)


def test_queries_are_texts_or_rows_of_the_same_features(index: SimilarityIndex) -> None:
    texts = [index.texts[3], "nothing of this is known"]
    for query in (texts, tuple(texts), np.array(texts), texts[0]):
        several = [query] if isinstance(query, str) else list(query)
        wanted = index.query(index.vectorizer.transform(several), k=4)
        for values, expected in zip(index.query(query, k=4), wanted, strict=True):
            np.testing.assert_array_equal(values, expected)
    # Nor are all documents shown where an index is.
    assert texts[0] not in repr(index)
    rows = np.ones((2, index.model.n_features_in_))
    for refused in (np.ones((1, 4)), rows[0]):
        with pytest.raises(ValueError, match=r"X|2D"):
            index.query(refused)


@pytest.fixture(scope="module")
def server(index: SimilarityIndex, tmp_path_factory: Any) -> Iterator[Any]:
    """``rmopt serve``, in a process of its own; the address is `server.address`."""
    folder = tmp_path_factory.mktemp("A & B") / "A & B"
    index.save(folder)
    command = [sys.executable, "-u", "-m", "rmopt.cli", "serve", str(folder), "--port", "0"]
    process: Any = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    line = process.stdout.readline()
    assert line.startswith(f"{folder} is at http://127.0.0.1:"), process.stderr.read()
    process.address = line.partition(" is at ")[2].split()[0].removesuffix("/")
    yield process
    process.kill()
    process.communicate()


def ask(server: Any, target: str, **headers: str) -> tuple[int, Any, str]:
    request = urllib.request.Request(f"{server.address}{target}", headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=20) as reply:
            return reply.status, reply.headers, reply.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.headers, error.read().decode()


def together(index: SimilarityIndex, query: str) -> Array:
    """Return a tenth of the learned scores over the largest one, and nine tenths of BM25 by its textbook formula."""
    texts = [f"{name} {name} {text}".lower() for name, text in zip(index.names, index.texts, strict=True)]
    words = [re.findall(r"[a-z0-9]+|\W+", text) for text in texts]
    words = [[word for word in text if word.isalnum()] for text in words]
    mean, rows = sum(map(len, words)) / len(words), np.zeros(len(words))
    for word in set(re.findall("[a-z]+", query)):
        number = sum(word in text for text in words)
        rare = np.log(1 + (len(words) - number + 0.5) / (number + 0.5))
        for row, text in enumerate(words):
            count = text.count(word)
            rows[row] += rare * count * 2.2 / (count + 1.2 * (0.25 + 0.75 * len(text) / mean))
    learned, (scores, order) = np.zeros(len(index)), index.query(query, len(index))
    learned[order[0]] = scores[0]
    return 0.1 * learned / abs(learned).max() + 0.9 * rows / rows.max()


def test_words_find_their_text_and_a_model_similar_ones(index: SimilarityIndex) -> None:
    names = [f"{n // 10}ofTen_{n:02}" for n in range(40)]
    find = TextSearch(replace(index, names=names)).find
    # Words in their order, or parts of the name.
    for query, rows in {"alert script": [0], "3OF": [*range(30, 40)], "ten_07": [7], "ten 07": [7]}.items():
        assert sorted(one["row"] for one in find({"q": query}, len(rows)).results) == rows, query
    # A name that ends so is first, and is shown as it was typed.
    other = TextSearch(replace(index, names=["moon.a", *names[1:39], "b.moon"], texts=["a"] * 40)).find
    assert [one["name"] for one in other({"q": "moon"}, 1).results + other({"q": "MOON.A"}, 1).results] == [
        "b.moon",
        "moon.a",
    ]
    found = find({"q": "a rokcet"}, 20)
    assert found.message == "No text has a or rokcet. Searched for: a rocket"
    assert all("rocket" in one["text"] for one in found.results[:5])
    assert find({"q": "xyz"}, 40) == Found("xyz", message="No text has xyz.")
    assert find({}, 40).message == "40 texts."
    # Documents like one have its label; equal ones are shown once.
    like = find({"like": "4"}, 19).results
    assert [one["label"] for one in like] == [index.labels[4]] * 19
    twins = (
        TextSearch(replace(index, texts=[*index.texts[:38], "a plum", "a plum"]))
        .find({"q": "a plum"}, 1)
        .results
    )
    assert [one["why"] for one in twins] == [[{"term": index.names[39]}]]


def test_programs_get_what_the_index_finds(server: Any, index: SimilarityIndex) -> None:
    status, headers, content = ask(server, f"/search?q={quote('the moon & a rocket')}&k=3")
    assert (status, headers["Content-Type"]) == (200, "application/json")
    answer = json.loads(content)
    scores = together(index, "the moon & a rocket")
    rows = np.argsort(-scores, kind="stable")[:3]
    assert answer["query"] == "the moon & a rocket"
    assert [result["row"] for result in answer["results"]] == rows.tolist()
    assert [result["name"] for result in answer["results"]] == [index.names[row] for row in rows]
    assert {result["label"] for result in answer["results"]} == {"space"}
    np.testing.assert_allclose([result["score"] for result in answer["results"]], scores[rows])
    # Documents like one are others.
    like = json.loads(ask(server, "/search?like=4&k=100")[2])
    assert sorted(result["row"] for result in like["results"]) == [row for row in range(40) if row != 4]
    named = json.loads(ask(server, f"/search?q={quote(index.names[4])}&k=1")[2])
    assert [result["row"] for result in named["results"]] == [4]


def test_people_get_a_page_where_nothing_from_outside_is_html(server: Any) -> None:
    status, headers, page = ask(server, f"/?q={quote(EVIL + chr(34) + ' apple')}&k=40")
    assert (status, headers["Content-Type"]) == (200, "text/html; charset=utf-8")
    assert "default-src 'none'" in headers["Content-Security-Policy"]
    assert '<meta name="viewport" content="width=device-width' in page
    assert "<script" not in page
    assert "<title>A &amp; B</title>" in page
    assert 'value="&lt;script&gt;alert(&#39;moon&#39;)&lt;/script&gt;&#34; apple"' in page
    assert page.count("<li>") == 40
    assert "text 0 &amp; &lt;b&gt;0&lt;/b&gt;" in page
    assert "<li>" not in ask(server, "/")[2]
    assert ask(server, "/page.css")[1]["Content-Type"].startswith("text/css")


@pytest.mark.parametrize(
    ("target", "status"),
    [
        ("/search?q=zebra", 200), ("/search?q=%ff%00", 200), ("/search?q=moon&k=0", 400),
        ("/search?q=moon&k=many", 400), ("/search?q=moon&k=101", 400), ("/search?like=40", 400), ("/?like=-1", 400),
        ("/../etc/passwd", 404), ("/pages/page.html", 404),
    ],
    ids=lambda value: str(value)[:24],
)  # fmt: skip
def test_what_cannot_be_answered_is_told(server: Any, target: str, status: int) -> None:
    assert ask(server, target)[0] == status


def test_names_of_other_hosts_are_refused(server: Any) -> None:
    """A web page whose name is bound to 127.0.0.1 later would read the answers."""
    for host, status in {
        "attacker.example.com": 400,
        "localhost:80": 200,
        "127.0.0.1": 200,
        "[::1]:8000": 200,
    }.items():
        assert ask(server, "/search?q=moon", Host=host)[0] == status, host


def test_slow_clients_hold_up_nobody_and_the_end_comes_at_once(server: Any) -> None:
    host, _, port = server.address.removeprefix("http://").partition(":")
    slow = [socket.create_connection((host, int(port))) for _ in range(60)]
    for client in slow:
        client.sendall(b"GET / HTTP/1.1\r\nHost: local")
    with ThreadPoolExecutor(40) as pool:
        assert [status for status, *_ in pool.map(lambda _: ask(server, "/search?q=moon"), range(40))] == [
            200
        ] * 40
    begun = time.monotonic()
    server.send_signal(signal.SIGTERM)
    assert server.stderr.readline() == "rmopt: terminated.\n"
    assert time.monotonic() - begun < 1.0
    assert server.wait(10) == 143
    for client in slow:
        client.close()


def test_ctrl_c_ends_without_a_word(index: SimilarityIndex, tmp_path: Path) -> None:
    index.save(tmp_path)
    code = "import signal, sys; signal.signal(2, signal.default_int_handler)\n"
    code += "from rmopt.cli import main; main(['serve', sys.argv[1], '--port', '0'])"
    process = subprocess.Popen(
        [sys.executable, "-u", "-c", code, str(tmp_path)], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    assert b" is at " in process.stdout.readline()
    time.sleep(0.3)
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=20) == (b"", b"")
    assert process.returncode == 0


def test_a_server_that_cannot_be_is_refused(index: SimilarityIndex, tmp_path: Path, monkeypatch: Any) -> None:
    index.save(tmp_path)
    with (
        closing(socket.create_server(("127.0.0.1", 0))) as taken,
        pytest.raises(InvalidInputError, match="listen"),
    ):
        serve(tmp_path, "127.0.0.1", taken.getsockname()[1], print)
    with pytest.raises(InvalidInputError, match="texts or a vectorizer"):
        make_app(replace(index, texts=None))
    with pytest.raises(InvalidInputError, match="Searcher"):
        make_app("index")
    monkeypatch.setitem(sys.modules, "starlette", None)
    with pytest.raises(InvalidInputError, match="pip install"):
        make_app(index)


def test_a_document_is_no_answer_to_itself(index: SimilarityIndex) -> None:
    alone = replace(index, embeddings=index.embeddings[:1], labels=None, names=["a"], texts=["moon"])
    assert TextSearch(alone).find({"like": "0"}, 1).results == []  # type: ignore[arg-type]


def test_a_passage_is_where_the_words_are_and_needs_no_spaces() -> None:
    assert passage("月" * 500, set()) == "月" * 239 + "…"
    assert passage(" a\n b ", {"b"}) == "a b"
    shown = passage(f"a moon {'and ' * 99} one rocket to the moon {'and ' * 99}", {"moon", "rocket"})
    assert "one rocket to the moon" in shown
    assert len(shown) <= 241


class One(Searcher):
    prompt = "Anything"

    def find(self, fields: Any, k: int) -> Found:
        return Found(
            "",
            [
                {
                    "name": "a",
                    "row": np.int64(3),
                    "score": np.float32(0.5),
                    "links": {"b": [("q", "ü&"), ("q", 2)]},
                }
            ],
            kept=[("likes", 3)],
            liked={"<a>": [("q", "x")]},
        )


def test_a_search_of_ones_own_may_hold_numbers_of_numpy_and_answers_head() -> None:
    import uvicorn

    listener = socket.create_server(("127.0.0.1", 0))
    server: Any = uvicorn.Server(uvicorn.Config(make_app(One()), log_level="critical"))
    thread = threading.Thread(target=server.run, args=([listener],))
    thread.start()
    server.address = f"http://127.0.0.1:{listener.getsockname()[1]}"
    try:
        assert json.loads(ask(server, "/search?q=a")[2])["results"] == [{"name": "a", "row": 3, "score": 0.5}]
        request = urllib.request.Request(server.address, method="HEAD")
        with urllib.request.urlopen(request, timeout=20) as reply:
            assert (reply.status, reply.read()) == (200, b"")
            assert int(reply.headers["Content-Length"]) > 0
        page = ask(server, "/")[2]
        assert "<strong>a</strong>" in page
        assert '<a href="/?q=%C3%BC%26&amp;q=2">b</a>' in page
        assert '<input type="hidden" name="likes" value="3">' in page
        assert '<b>&lt;a&gt;</b> <a href="/?q=x" aria-label="remove &lt;a&gt;">remove</a>' in page
    finally:
        server.should_exit = True
        thread.join()
        listener.close()
