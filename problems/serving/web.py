"""A page in the browser and an address for programs, for an index of texts or your own search."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from operator import methodcaller
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.feature_extraction.text import TfidfTransformer

from problems.serving.index import SimilarityIndex, blended
from problems.validation import package
from rmopt.core.arguments import instance, integer
from rmopt.errors import InvalidInputError

# The default and largest number of results, and of characters of a text.
RESULTS, MOST_RESULTS, EXCERPT = 10, 100, 240
# The least number of letters of a part of a name.
PART = 3
# Other pages in the browser cannot read the answers by another name of this machine.
HERE = ("localhost", "127.0.0.1", "[::1]")
HEADERS = {
    "X-Content-Type-Options": "nosniff",
    # No scripts run, and nothing is fetched from elsewhere.
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; form-action 'self'; frame-ancestors 'none'",
}


@dataclass(frozen=True)
class Found:
    """The answer to a query.

    Attributes
    ----------
    query : str
        The text in the field.
    results : list of dict
        Each with ``name``, and possibly ``row``, ``score``, ``std``, ``label``, ``text``, and ``why``, dicts with
        ``term``. ``links``, for the page alone, has labels with the address fields of their targets.
    message : str
        A remark on them, or why there are none.
    kept : list of tuple
        Fields of the address, with their values, that the form on the page sends along.
    liked : mapping
        Items that a person likes, with the address fields of the page without each.
    """

    query: str
    results: list[dict[str, Any]] = field(default_factory=list)
    message: str = ""
    kept: Sequence[tuple[str, Any]] = ()
    liked: Mapping[Any, Sequence[tuple[str, Any]]] = field(default_factory=dict)


class Searcher(ABC):
    """The search behind a page.

    Examples
    --------
    >>> from problems.serving import Found, Searcher, make_app
    >>> class Words(Searcher):
    ...     prompt = "The beginning of a word"
    ...
    ...     def find(self, fields, k):
    ...         begin = fields.get("q", "")
    ...         words = [word for word in ("rank", "retraction") if word.startswith(begin)]
    ...         return Found(begin, [{"name": word} for word in words[:k]])
    >>> app = make_app(Words())
    """

    #: The prompt of the field, and the text before the reasons for a result.
    prompt: str
    because: str = ""

    @abstractmethod
    def find(self, fields: Any, k: int) -> Found:
        """Return at most k results for the fields of an address, with q the typed text.

        Raises
        ------
        InvalidInputError
            If the fields cannot be used.
        """


def whole_number(name: str, text: str, least: int, most: int) -> int:
    """Return the number in a field of an address."""
    return integer(name, int(text) if text.isdecimal() and len(text) < 19 else text, least, most)


def make_app(searched: Any, title: str = "Search", hosts: Sequence[str] = HERE) -> Any:
    """Return a web application for a search, for example in an index of texts. ``uvicorn.run(app)`` serves it.

    ``/`` is a page for people, and ``/search?q=TEXT&k=10`` answers programs in JSON. It is for your own machine or
    network, without users or encryption.

    Parameters
    ----------
    searched : SimilarityIndex or Searcher
        An index with texts and a vectorizer, ``problems.subspace.ItemSearch(model)``, or a search of your own.
    title : str
        The heading of the page.
    hosts : sequence of str
        The accepted host names, ``*`` for any. Defaults to this machine's names for itself.

    Returns
    -------
    starlette.applications.Starlette

    Raises
    ------
    InvalidInputError
        If the index lacks texts or a vectorizer, or a package is missing (``pip install "rmopt[serve]"``).

    Examples
    --------
    >>> from problems.serving import make_app
    >>> from problems.similarity import ContrastiveSimilarity
    >>> from sklearn.feature_extraction.text import TfidfVectorizer
    >>> texts = ["red apple", "red cherry", "fast car", "fast train"]
    >>> words = TfidfVectorizer().fit(texts)
    >>> X = words.transform(texts)
    >>> model = ContrastiveSimilarity(rank=2, n_epochs=20, random_state=0)
    >>> index = model.fit(X, [0, 0, 1, 1]).index(X, texts=texts, vectorizer=words)
    >>> app = make_app(index)
    """
    package("starlette", "rmopt[serve]", instead="query the index from Python")
    from jinja2 import Environment, FileSystemLoader
    from starlette.applications import Starlette
    from starlette.middleware import Middleware
    from starlette.middleware.trustedhost import TrustedHostMiddleware
    from starlette.responses import FileResponse, Response
    from starlette.routing import Route

    pages = Path(__file__).parent / "pages"
    template = Environment(loader=FileSystemLoader(pages), autoescape=True).get_template("page.html")
    search = TextSearch(searched) if isinstance(searched, SimilarityIndex) else searched
    instance(
        "searched", search, Searcher, "a SimilarityIndex, or a Searcher: problems.subspace.ItemSearch(model)"
    )

    def answer(request: Any) -> Response:
        fields = request.query_params
        try:
            k = whole_number("k", fields.get("k", str(RESULTS)), 1, MOST_RESULTS)
            found, status = search.find(fields, k), 200
        except InvalidInputError as error:
            found, status = Found("", message=str(error)), 400
        if request.url.path == "/":
            content, kind = template.render(found=found, search=search, title=title), "text/html"
        else:
            results = [{key: result[key] for key in result if key != "links"} for result in found.results]
            reply = {"query": found.query, "results": results, "message": found.message}
            # Numbers may be of numpy types.
            content, kind = json.dumps(reply, default=methodcaller("item")), "application/json"
        # Texts may hold lone surrogates.
        return Response(content.encode(errors="replace"), status, HEADERS, kind)

    return Starlette(
        routes=[
            Route("/", answer),
            Route("/search", answer),
            Route("/page.css", lambda request: FileResponse(pages / "page.css", headers=HEADERS)),
        ],
        middleware=[Middleware(TrustedHostMiddleware, allowed_hosts=list(hosts), www_redirect=False)],
    )


def excerpt(text: str) -> str:
    """Return the beginning of a text, on one line."""
    line = " ".join(text.split())
    return line if len(line) <= EXCERPT else line[: EXCERPT - 1].rstrip() + "…"


class TextSearch(Searcher):
    """The documents most similar to a text, or to one of them, by a learned similarity and by their words.

    A quarter of a score is the learned one, as a share of the largest, and the rest is the cosine of words,
    which count less the more texts have them.
    Documents whose name holds the query come first.

    Parameters
    ----------
    index : SimilarityIndex
        With texts and a vectorizer.
    """

    prompt = "Text to search for"

    def __init__(self, index: SimilarityIndex) -> None:
        if index.texts is None or index.vectorizer is None:
            raise InvalidInputError(
                "the index lacks texts or a vectorizer, without which a page has nothing to show; make it by "
                "model.index(X, names, texts=…, vectorizer=…)."
            )
        self.index = index
        self._names = [str(name).casefold() for name in index.names]
        both = map(" ".join, zip(map(str, index.names), index.texts, strict=True))
        # A column for each document: a query reads the rows of its own words.
        self._weights = TfidfTransformer()
        self._words = self._weights.fit_transform(index.vectorizer.transform(both)).T.tocsr()

    def find(self, fields: Any, k: int) -> Found:
        index, query, said = self.index, fields.get("q", ""), ""
        wanted = query.strip().casefold()
        row = self._names.index(wanted) if wanted in self._names else -1
        if "like" in fields:
            row = whole_number("like", fields["like"], 0, len(index) - 1)
            said, wanted = f"Similar to {index.names[row]}:", ""
        # Short words are parts of many names.
        named = np.array([len(wanted) >= PART and wanted in name for name in self._names])
        x = index.vectorizer.transform([query if row < 0 else index.texts[row]])
        known = bool(abs(x).sum())
        if not known and not named.any():
            return Found(query, message="No word of this is known to the model." if wanted else "")
        words = (self._weights.transform(x) @ self._words).toarray()
        scores = blended(index.embedded(x) @ index.embeddings.T, words)[0]
        first = scores + 2.0 * named
        if row >= 0:
            # A document is not an answer to itself, but the first one to its name.
            first[row] = -np.inf if said else np.inf
        order = np.argsort(-first, kind="stable")[: min(k, int(np.sum((first > -np.inf) & (known | named))))]
        results = [
            {"row": one, "name": index.names[one], "text": excerpt(index.texts[one]), "score": float(scores[one]),
             "links": {"similar": [("like", one)]}} | ({} if index.labels is None else {"label": index.labels[one]})
            for one in order.tolist()
        ]  # fmt: skip
        return Found("" if said else query, results, said)
