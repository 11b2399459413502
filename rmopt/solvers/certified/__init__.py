"""Solvers whose result comes with a bound."""
