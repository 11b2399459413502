"""The use of learned similarities: exact and approximate search, and a page for the browser."""

from problems.serving.index import Searchable, SimilarityIndex, top_k
from problems.serving.searcher import Found, Searcher
from problems.serving.texts import TextSearch
from problems.serving.web import make_app

__all__ = ["Found", "Searchable", "Searcher", "SimilarityIndex", "TextSearch", "make_app", "top_k"]
