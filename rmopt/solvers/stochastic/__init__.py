"""Solvers that look at some terms, blocks or entries of a cost in each step."""
