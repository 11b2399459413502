"""Rows and curves of the completion experiment, from what is known of its models."""

from __future__ import annotations

from typing import Any

import numpy as np

from problems.cells import mean_and_sem
from problems.subspace.methods import METHODS

HEADINGS = {
    "test_rmse": "RMSE", "sem": "± s.e.m.", "train_mse": "train MSE", "disagreement": "distance",
    "updates": "updates", "train_seconds": "train s", "kilobytes_sent": "kB sent",
}  # fmt: skip


def shown(cell: dict[str, Any]) -> dict[str, Any]:
    """Return what a row says of one model."""
    return {
        "test_rmse": cell["test_rmse"], "train_mse": cell["train_mse"], "disagreement": cell["disagreement"],
        "updates": cell["updates"], "train_seconds": cell["seconds"], "kilobytes_sent": cell["kilobytes_sent"],
    }  # fmt: skip


def summary(cells: list[dict[str, Any]]) -> dict[str, Any]:
    """Return what a row says of a model on several splits."""
    mean, sem = mean_and_sem(cell["test_rmse"] for cell in cells)
    seconds = float(np.median([cell["seconds"] for cell in cells]))
    rest = shown(cells[0]) | {"test_rmse": mean, "train_seconds": seconds}
    return {"test_rmse": mean, "sem": sem} | rest


def error_curves(
    found: dict[Any, list[dict[str, Any]]],
) -> dict[str, list[tuple[float, float, float | None]]]:
    """Return for each method its errors by rank, or by number of agents where there is one rank."""
    ranks = {rank for _, _, rank in found}
    counts = sorted({n for _, n, _ in found})
    curves: dict[str, list[tuple[float, float, float | None]]] = {}
    for (name, n, rank), cells in found.items():
        label = METHODS[name].label
        if len(ranks) > 1 and METHODS[name].decentral:
            label += f", N = {n}"
        mean, sem = mean_and_sem(cell["test_rmse"] for cell in cells)
        # A batch solver has no agents: a level.
        places = [rank] if len(ranks) > 1 else [n] if METHODS[name].decentral else counts
        curves.setdefault(label, []).extend((place, mean, sem) for place in places)
    return curves
