"""A page in the browser, and an address for programs, that search an index of texts."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from html import escape
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import numpy as np
from scipy.sparse import csr_array

from problems.serving.index import SimilarityIndex
from rmopt.core.arguments import instance, integer
from rmopt.errors import InvalidInputError

# Results of a query: unless asked, and at most.
RESULTS, MOST_RESULTS = 10, 100
# Characters of a query, and of a text that is shown.
LONGEST_QUERY, EXCERPT = 5000, 240
# Terms that say why a document was found.
REASONS = 6

STYLE = """
body { font: 16px/1.45 system-ui, sans-serif; max-width: 46rem; margin: 2rem auto; padding: 0 1rem; color: #222 }
input { font: inherit; padding: .4rem .6rem } input[name=q] { width: 70% }
li { margin: 0 0 1.2rem } .score { color: #666; float: right } .why { color: #666 } .why b { color: #06c }
p { margin: .2rem 0 } .message { color: #a00 }
"""


@dataclass(frozen=True)
class Found:
    """The answer to a query: results, or why there are none."""

    query: str
    results: list[dict[str, Any]]
    message: str = ""


def search_texts(
    index: SimilarityIndex, query: str, k: int = RESULTS, exclude: list[int] | None = None
) -> Found:
    """Return the texts that are most similar to a text, and the terms that speak most for each.

    A reason is a term of the document, what it adds to the score, and whether the query has it too. The contributions
    of all terms of a document sum to its score.
    """
    x = csr_array(index.vectorizer.transform([query]))
    if not x.nnz:
        return Found(query, [], "No word of this is known to the model." if query.strip() else "")
    hidden = exclude or []
    k = min(k, len(index) - len(hidden))
    if k < 1:
        return Found(query, [], "There is no other document.")
    scores, indices = index.query(x, k, exclude=[hidden])
    terms, asked = index.terms, set(x.indices.tolist())
    texts = [index.texts[row] for row in indices[0]]
    parts = index.contributions(x, index.vectorizer.transform(texts))
    results = []
    for place, (row, score, text) in enumerate(
        zip(indices[0].tolist(), scores[0].tolist(), texts, strict=True)
    ):
        columns, values = (
            one[parts.indptr[place] : parts.indptr[place + 1]] for one in (parts.indices, parts.data)
        )
        most = [at for at in np.argsort(-values, kind="stable")[:REASONS] if values[at] > 0.0]
        why = [
            {
                "term": str(terms[columns[at]]),
                "contribution": float(values[at]),
                "shared": int(columns[at]) in asked,
            }
            for at in most
        ]
        results.append(
            {"row": row, "name": index.names[row], "score": score, "text": excerpt(text), "why": why}
        )
    return Found(query, results)


def excerpt(text: str) -> str:
    """Return the beginning of a text, on one line."""
    line = " ".join(text.split())
    return line if len(line) <= EXCERPT else line[: EXCERPT - 1].rstrip() + "…"


def as_page(found: Found, title: str) -> str:
    """Return the page: a form, and what was found; whatever comes from outside is escaped."""
    items = "".join(map(_as_item, found.results))
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        f"<style>{STYLE}</style></head><body><h1>{escape(title)}</h1>"
        f'<form action="/"><input name="q" value="{escape(found.query)}" maxlength="{LONGEST_QUERY}" '
        'aria-label="Text to search for" autofocus> <input type="submit" value="Search"></form>'
        f'<p class="message" role="status">{escape(found.message)}</p><ol>{items}</ol></body></html>'
    )


def _as_item(result: dict[str, Any]) -> str:
    why = ", ".join(
        f"<b>{escape(one['term'])}</b>" if one["shared"] else escape(one["term"]) for one in result["why"]
    )
    like = escape("/?" + urlencode({"like": result["row"]}))
    return (
        f'<li><span class="score">{result["score"]:.3f}</span><strong>{escape(str(result["name"]))}</strong> '
        f'<a href="{like}">similar</a><p>{escape(result["text"])}</p><p class="why">{why}</p></li>'
    )


def make_server(
    index: SimilarityIndex, host: str = "127.0.0.1", port: int = 8000, *, title: str = "Search"
) -> ThreadingHTTPServer:
    """Return a web server that searches an index of texts; its ``serve_forever`` runs until it is stopped.

    ``/`` is a page for people, ``/search?q=TEXT&k=10`` answers programs in JSON; both take ``like=ROW`` in the place
    of ``q``. It is made for one's own machine or network: there are neither users nor encryption.

    Parameters
    ----------
    index : SimilarityIndex
        With texts and a vectorizer.
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
    instance("index", index, SimilarityIndex, "a SimilarityIndex, as model.index(X) makes it")
    lacking = [name for name in ("texts", "vectorizer") if getattr(index, name) is None]
    if lacking:
        raise InvalidInputError(
            f"the index has no {' and no '.join(lacking)}, without which a page has nothing to show; make it by "
            "model.index(X, names, texts=…, vectorizer=…)."
        )
    port = integer("port", port, 0, 65535)

    class Handler(_Handler):
        answer = staticmethod(lambda target: answer(index, title, target))

    try:
        return ThreadingHTTPServer((host, port), Handler)
    except OSError as error:
        raise InvalidInputError(
            f"cannot listen at {host}, port {port} ({error.strerror or error}); choose another host or port, or port "
            "0 for a free one."
        ) from error


def answer(index: SimilarityIndex, title: str, target: str) -> tuple[int, str, str]:
    """Return the status, the type and the content for a request's target."""
    try:
        url = urlsplit(target)
    except ValueError as error:
        return 400, "text/plain", f"The address cannot be read ({error}).\n"
    if url.path not in ("/", "/search"):
        return 404, "text/plain", "There is nothing here but / and /search?q=TEXT&k=10.\n"
    try:
        status, found = 200, _asked(index, url.query)
    except InvalidInputError as error:
        status, found = 400, Found("", [], str(error))
    if url.path == "/":
        return status, "text/html", as_page(found, title)
    told = {"query": found.query, "results": found.results}
    return (
        status,
        "application/json",
        json.dumps(told | ({"message": found.message} if found.message else {})),
    )


def _asked(index: SimilarityIndex, query: str) -> Found:
    try:
        fields = parse_qs(query, max_num_fields=10, errors="replace")
    except ValueError as error:
        raise InvalidInputError(f"the address has too many parts ({error}).") from None
    k = _number("k", fields.get("k", [str(RESULTS)])[0], 1, MOST_RESULTS)
    if "like" in fields:
        row = _number("like", fields["like"][0], 0, len(index) - 1)
        found = search_texts(index, index.texts[row], k, [row])
        return Found("", found.results, found.message or f"Similar to {index.names[row]}:")
    text = fields.get("q", [""])[0]
    if len(text) > LONGEST_QUERY:
        raise InvalidInputError(f"q has {len(text)} characters; give at most {LONGEST_QUERY}.")
    return search_texts(index, text, k)


def _number(name: str, text: str, least: int, most: int) -> int:
    return integer(
        name, int(text) if text.isascii() and text.isdigit() and len(text) < 19 else text, least, most
    )


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
        self.wfile.write(body)

    def log_message(self, format: str, *values: Any) -> None:
        """Say nothing: what people look for is theirs."""


def serve(folder: Path, host: str, port: int, opened: Callable[[str], None]) -> None:
    """Serve the index in a folder until the process is interrupted; `opened` is called with the address."""
    index = SimilarityIndex.load(folder)
    with make_server(index, host, port, title=Path(folder).resolve().name) as server:
        opened(f"http://{host}:{server.server_address[1]}/")
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            # The way to end it.
            return
