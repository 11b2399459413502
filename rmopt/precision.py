"""A name for some parts of `rmopt.namespaces`."""

from rmopt.namespaces import coarseness, limits, matched, rank_of, real_type, slack

__all__ = ["coarseness", "limits", "matched", "rank_of", "real_type", "slack"]
