"""Solvers that look at the whole cost in each step."""
