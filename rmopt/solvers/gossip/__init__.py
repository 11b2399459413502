"""Solvers of several agents or workers."""
