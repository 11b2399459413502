"""Manifolds to optimise on."""

from rmopt.manifolds.fixed_rank_embedded import FixedRankEmbedded

__all__ = ["FixedRankEmbedded"]
