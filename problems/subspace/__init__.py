"""Subspace learning: gossip between agents, matrix completion and multitask features, with rivals."""
