"""Learned similarities where they are used: exact and approximate search, and a page for the browser."""

from problems.serving.exchange import to_onnx
from problems.serving.index import Searchable, SimilarityIndex, top_k
from problems.serving.web import Found, Result, Searcher, make_server

__all__ = ["Found", "Result", "Searchable", "Searcher", "SimilarityIndex", "make_server", "to_onnx", "top_k"]
