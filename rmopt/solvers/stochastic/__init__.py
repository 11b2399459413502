"""Solvers that use some terms, blocks or entries of a cost in each step."""
