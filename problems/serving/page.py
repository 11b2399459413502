"""A page that searches an index of texts: by a text, or by one of the documents."""

from __future__ import annotations

from http.server import ThreadingHTTPServer
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from problems.serving.index import SimilarityIndex
from problems.serving.web import RESULTS, Fields, Found, Result, Searcher, excerpt, listening, whole_number
from rmopt.core.arguments import instance, integer
from rmopt.errors import InvalidInputError

# Terms that say why a document was found.
REASONS = 6


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
