"""A page in the browser and an address for programs, for an index of texts or your own search."""

import json
from collections.abc import Sequence
from operator import methodcaller
from pathlib import Path
from typing import Any

from problems.serving.index import SimilarityIndex
from problems.serving.searcher import Found, Searcher, whole_number
from problems.serving.texts import TextSearch
from problems.validation import package
from rmopt.core.arguments import instance
from rmopt.errors import InvalidInputError

# The default and largest number of results.
RESULTS, MOST_RESULTS = 10, 100
# What the page alone shows of a result.
OF_PAGE = ("links", "whole")
# Other pages in the browser cannot read the answers by another name of this machine.
HERE = ("localhost", "127.0.0.1", "[::1]")
HEADERS = {
    "X-Content-Type-Options": "nosniff",
    # No scripts run, and nothing is fetched from elsewhere.
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; form-action 'self'; frame-ancestors 'none'",
}


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
            results = [{key: result[key] for key in result if key not in OF_PAGE} for result in found.results]
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
