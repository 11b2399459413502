"""Solvers that use the full cost in each step."""
