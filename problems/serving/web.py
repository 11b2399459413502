"""A page in the browser, and an address for programs: of an index of texts, or of what is somebody else's."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from html import escape
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from operator import methodcaller
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import numpy as np
from scipy.sparse import csr_array

from problems.serving.index import SimilarityIndex
from rmopt.core.arguments import instance, integer
from rmopt.errors import InvalidInputError

# Results of a query: unless asked, and at most; terms that say why a document was found.
RESULTS, MOST_RESULTS, REASONS = 10, 100, 6
# Characters of a query, and of a text that is shown; parts of an address.
LONGEST_QUERY, EXCERPT, MOST_FIELDS = 5000, 240, 100

STYLE = """
body { font: 16px/1.45 system-ui, sans-serif; max-width: 46rem; margin: 2rem auto; padding: 0 1rem; color: #222 }
input { font: inherit; padding: .4rem .6rem } input[name=q] { width: 70% }
li { margin: 0 0 1.2rem } .score { color: #666; float: right } .why { color: #666 } .why b { color: #06c }
p { margin: .2rem 0 } li a { margin-left: .4rem } .message { color: #444 } .error { color: #a00 }
"""

# The values of each field of an address: q=TEXT&k=10.
Fields = Mapping[str, list[str]]


@dataclass(frozen=True)
class Result:
    """One result.

    Attributes
    ----------
    told : dict
        For programs, and shown: name, row, and where there are such score, std, text, and why, a list of dicts with
        term and shared (is it in the query).
    links : dict
        What stands beside it, and the fields of the address that each leads to.

    See Also
    --------
    Searcher : finds it.

    Examples
    --------
    >>> from problems.serving import Result
    >>> Result({"name": "Film 3", "score": 4.5}, {"similar": {"like": 3}}).told["name"]
    'Film 3'
    """

    told: dict[str, Any]
    links: dict[str, dict[str, Any]] = field(default_factory=dict)


@dataclass(frozen=True)
class Found:
    """The answer to a query.

    Attributes
    ----------
    query : str
        What stands in the field.
    results : list of Result
    message : str
        What is to be said of them, or why there are none.
    failed : bool
        Whether there are none because of the query.

    See Also
    --------
    Searcher : returns it.

    Examples
    --------
    >>> from problems.serving import Found
    >>> Found("zoe", [], "There is no such user.", failed=True).results
    []
    """

    query: str
    results: list[Result]
    message: str = ""
    failed: bool = False


class Searcher(ABC):
    """Something that a page searches.

    See Also
    --------
    make_server : shows it.

    Examples
    --------
    >>> from problems.serving import Found, Result, Searcher, make_server
    >>> class Words(Searcher):
    ...     prompt = "The beginning of a word"
    ...
    ...     def find(self, fields, k):
    ...         begin = fields.get("q", [""])[0]
    ...         words = [
    ...             one for one in ("rank", "retraction", "solver") if one.startswith(begin)
    ...         ]
    ...         return Found(begin, [Result({"name": one}) for one in words[:k]])
    >>> with make_server(Words(), port=0) as server:
    ...     server.server_address[0]
    '127.0.0.1'
    """

    #: What is to be typed into the field, and what stands before the reasons for a result.
    prompt: str
    because: str = ""

    @abstractmethod
    def find(self, fields: Fields, k: int) -> Found:
        """Return at most k results for the fields of an address, of which q is what people type.

        Raises
        ------
        InvalidInputError
            When the fields cannot be used.
        """


def excerpt(text: str) -> str:
    """Return the beginning of a text, on one line."""
    line = " ".join(text.split())
    return line if len(line) <= EXCERPT else line[: EXCERPT - 1].rstrip() + "…"


def whole_number(name: str, text: str, least: int, most: int) -> int:
    """Return the number that a field of an address holds."""
    return integer(
        name, int(text) if text.isascii() and text.isdigit() and len(text) < 19 else text, least, most
    )


def as_page(found: Found, title: str, prompt: str, because: str) -> str:
    """Return the page: a form, and what was found; whatever comes from outside is escaped."""
    items = "".join(_as_item(one, because) for one in found.results)
    kind = "error" if found.failed else "message"
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        f"<style>{STYLE}</style></head><body><h1>{escape(title)}</h1>"
        f'<form action="/"><input name="q" value="{escape(found.query)}" maxlength="{LONGEST_QUERY}" '
        f'placeholder="{escape(prompt)}" aria-label="{escape(prompt)}" autofocus> '
        '<input type="submit" value="Search"></form>'
        f'<p class="{kind}" role="status">{escape(found.message)}</p><ol>{items}</ol></body></html>'
    )


def _as_item(result: Result, because: str) -> str:
    told = result.told
    reasons = [
        f"<b>{escape(one['term'])}</b>" if one["shared"] else escape(one["term"])
        for one in told.get("why", ())
    ]
    why = f"{escape(because)} {', '.join(reasons)}" if reasons else ""
    score = f"{told['score']:.3f}" if "score" in told else ""
    spread = f" ± {told['std']:.2f}" if "std" in told else ""
    links = "".join(
        f'<a href="{escape("/?" + urlencode(fields, doseq=True))}">{escape(label)}</a> '
        for label, fields in result.links.items()
    )
    return (
        f'<li><span class="score">{score}{spread}</span><strong>{escape(str(told["name"]))}</strong> {links}'
        f'<p>{escape(told.get("text", ""))}</p><p class="why">{why}</p></li>'
    )


def listening(search: Searcher, host: str, port: int, title: str) -> ThreadingHTTPServer:
    """Return a web server of a search, which listens but does not answer yet."""
    instance("host", host, str, "an address, such as 127.0.0.1"), instance("title", title, str, "text")

    class Handler(_Handler):
        answer = staticmethod(lambda target: answer(search, title, target))

    try:
        return ThreadingHTTPServer((host, port), Handler)
    except OSError as error:
        raise InvalidInputError(
            f"cannot listen at {host}, port {port} ({error.strerror or error}); choose another host or port, or port "
            "0 for a free one."
        ) from error


def answer(search: Searcher, title: str, target: str) -> tuple[int, str, str]:
    """Return the status, the type and the content for a request's target."""
    try:
        url = urlsplit(target)
    except ValueError as error:
        return 400, "text/plain", f"The address cannot be read ({error}).\n"
    if url.path not in ("/", "/search"):
        return 404, "text/plain", "There is nothing here but / and /search?q=TEXT&k=10.\n"
    try:
        status, found = 200, _asked(search, url.query)
    except InvalidInputError as error:
        status, found = 400, Found("", [], str(error), failed=True)
    if url.path == "/":
        return status, "text/html", as_page(found, title, search.prompt, search.because)
    told = {"query": found.query, "results": [one.told for one in found.results]}
    message = {"message": found.message} if found.message else {}
    # Numbers may be those of numpy.
    return status, "application/json", json.dumps(told | message, default=methodcaller("item"))


def _asked(search: Searcher, query: str) -> Found:
    try:
        fields = parse_qs(query, max_num_fields=MOST_FIELDS, errors="replace")
    except ValueError as error:
        raise InvalidInputError(f"the address has too many parts ({error}).") from None
    k = whole_number("k", fields.get("k", [str(RESULTS)])[0], 1, MOST_RESULTS)
    length = len(fields.get("q", [""])[0])
    if length > LONGEST_QUERY:
        raise InvalidInputError(f"q has {length} characters; give at most {LONGEST_QUERY}.")
    return search.find(fields, k)


class _Handler(BaseHTTPRequestHandler):
    # Seconds after which a connection that says nothing is closed.
    timeout = 30
    server_version, sys_version = "rmopt", ""
    answer: Callable[[str], tuple[int, str, str]]

    def do_GET(self) -> None:
        status, kind, content = self.answer(self.path)
        # Texts may hold halves of characters.
        body = content.encode(errors="replace")
        self.send_response(status)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("X-Content-Type-Options", "nosniff")
        # No script runs, wherever it came from, and nothing is fetched from elsewhere.
        self.send_header(
            "Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; form-action 'self'"
        )
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    do_HEAD = do_GET

    def log_message(self, format: str, *values: Any) -> None:
        """Say nothing: what people look for is theirs."""


class TextSearch(Searcher):
    """The documents most similar to a text, or to one of them, each with the terms that speak for it.

    Parameters
    ----------
    index : SimilarityIndex
        With texts and a vectorizer.

    Raises
    ------
    InvalidInputError
        When the index has no texts or no vectorizer.
    """

    prompt = "Text to search for"

    def __init__(self, index: SimilarityIndex) -> None:
        lacking = [name for name in ("texts", "vectorizer") if getattr(index, name) is None]
        if lacking:
            raise InvalidInputError(
                f"the index has no {' and no '.join(lacking)}, without which a page has nothing to show; make it by "
                "model.index(X, names, texts=…, vectorizer=…)."
            )
        self.index = index

    def find(self, fields: Fields, k: int) -> Found:
        index = self.index
        if "like" not in fields:
            return self.nearest(fields.get("q", [""])[0], k)
        row = whole_number("like", fields["like"][0], 0, len(index) - 1)
        found = self.nearest(index.texts[row], k, [row])
        return Found("", found.results, found.message or f"Similar to {index.names[row]}:")

    def nearest(self, query: str, k: int = RESULTS, exclude: list[int] | None = None) -> Found:
        """Return the texts that are most similar to a text, and the terms that speak most for each.

        A reason is a term of the document, what it adds to the score, and whether the query has it too. The
        contributions of all terms of a document sum to its score.
        """
        index = self.index
        x = csr_array(index.vectorizer.transform([query]))
        if not x.nnz:
            return Found(
                query, [], "No word of this is known to the model." if query.strip() else "", failed=True
            )
        hidden = exclude or []
        k = min(k, len(index) - len(hidden))
        if k < 1:
            return Found(query, [], "There is no other document.")
        scores, indices = index.query(x, k, exclude=[hidden])
        terms, asked = index.terms, set(x.indices.tolist())
        texts = [index.texts[row] for row in indices[0]]
        parts = index.contributions(x, index.vectorizer.transform(texts))
        results = []
        ends, found = parts.indptr, zip(indices[0].tolist(), scores[0].tolist(), texts, strict=True)
        for begin, end, (row, score, text) in zip(ends[:-1], ends[1:], found, strict=True):
            columns, values = parts.indices[begin:end], parts.data[begin:end]
            most = [at for at in np.argsort(-values, kind="stable")[:REASONS] if values[at] > 0.0]
            about = ((int(columns[at]), float(values[at])) for at in most)
            why = [
                {"term": str(terms[column]), "contribution": value, "shared": column in asked}
                for column, value in about
            ]
            told = {"row": row, "name": index.names[row], "score": score, "text": excerpt(text), "why": why}
            results.append(Result(told, {"similar": {"like": row}}))
        return Found(query, results)


def make_server(
    searched: Any, host: str = "127.0.0.1", port: int = 8000, *, title: str = "Search"
) -> ThreadingHTTPServer:
    """Return a web server that searches an index of texts, say; its ``serve_forever`` runs until it is stopped.

    ``/`` is a page for people, ``/search?q=TEXT&k=10`` answers programs in JSON. It is made for one's own machine or
    network: there are neither users nor encryption.

    Parameters
    ----------
    searched : SimilarityIndex or Searcher
        An index with texts and a vectorizer; ``problems.subspace.ItemSearch(model)``, for recommendations; or a
        search of your own.
    host : str
        The address to listen at; "0.0.0.0" is seen from other machines.
    port : int
        0 takes a free one, which ``server_address`` tells.
    title : str
        What stands above the page.

    Returns
    -------
    http.server.ThreadingHTTPServer

    Raises
    ------
    InvalidInputError
        When the index lacks texts or a vectorizer, or the address cannot be used.

    See Also
    --------
    SimilarityIndex : searches from Python.
    problems.subspace.ItemSearch : recommends to a user, or to somebody who likes some items.

    Examples
    --------
    >>> import json, threading, urllib.request
    >>> from problems.serving import make_server
    >>> from problems.similarity import ContrastiveSimilarity
    >>> from sklearn.feature_extraction.text import TfidfVectorizer
    >>> texts = ["red apple", "red cherry", "fast car", "fast train"]
    >>> words = TfidfVectorizer().fit(texts)
    >>> X = words.transform(texts)
    >>> model = ContrastiveSimilarity(rank=2, n_epochs=20, random_state=0)
    >>> index = model.fit(X, [0, 0, 1, 1]).index(X, texts=texts, vectorizer=words)
    >>> with make_server(index, port=0) as server:
    ...     threading.Thread(target=server.handle_request).start()
    ...     address = f"http://127.0.0.1:{server.server_address[1]}/search?like=0&k=1"
    ...     found = json.load(urllib.request.urlopen(address))["results"]
    >>> [one["text"] for one in found]
    ['red cherry']
    """
    search = TextSearch(searched) if isinstance(searched, SimilarityIndex) else searched
    wanted = (
        "a SimilarityIndex, as model.index(X) makes it, or a Searcher: problems.subspace.ItemSearch(model)"
    )
    return listening(
        instance("searched", search, Searcher, wanted), host, integer("port", port, 0, 65535), title
    )
