"""Headings, numbers and tables of the command line, and what ``result.json`` can hold."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console
from tabled import each_row

from rmopt.cli.result import plain
from rmopt.cli.table import format_numbers, heading_of, print_rows
from rmopt.errors import InvalidInputError


@each_row(
    ("key", "heading"),
    [
        ("method", "method"),
        ("map", "mAP"),
        ("test_map", "test mAP"),
        ("precision_at_10", "P@10"),
        ("test_precision_at_1", "test P@1"),
        ("train_seconds", "train s"),
        ("step_size", "step size"),
    ],
)
def test_headings(key: str, heading: str) -> None:
    assert heading_of(key) == heading


@each_row(
    ("values", "key", "expected"),
    [
        ([0.64583, 0.09831, 0.0], "map", ["0.6458", "0.0983", "0.0000"]),
        ([1.0, 0.5], "map", ["1.0000", "0.5000"]),
        ([12.3456, -3.21], "cost", ["12.35", "-3.21"]),
        ([123456.7, 2000.0], "cost", ["123,457", "2,000"]),
        ([0.5, 1.23456e-14], "error", ["0.5000", "1.235e-14"]),
        ([12345.6, 0.0, 1e-9], "error", ["12,346", "0", "1.000e-09"]),
        ([2e12], "cost", ["2.000e+12"]),
        ([600_000, 7], "updates", ["600,000", "7"]),
        ([1234.567, 0.0, 3.2e-3], "train_seconds", ["1,234.57", "0.00", "0.003200"]),
        # Less than a clock can tell.
        ([1234.567, 3.2e-6], "train_seconds", ["1,234.57", "0.00"]),
    ],
)
def test_numbers(values: list[float], key: str, expected: list[str]) -> None:
    assert format_numbers(values, key) == expected


@pytest.mark.parametrize("width", [40, 60, 80, 200])
def test_wide_table_is_split_and_loses_nothing(width: int, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [
        {"method": f"method {n}", **{f"a_longer_name_{key}": n + key / 8 for key in range(9)}}
        for n in range(2)
    ]
    print_rows(Console(width=width), rows)
    text = capsys.readouterr().out
    numbers = [word for word in text.split() if word[0].isdigit() and "." in word]
    assert sorted(map(float, numbers)) == sorted(n + key / 8 for n in range(2) for key in range(9))
    assert max(map(len, text.splitlines())) <= width
    assert text.count("method 1") == text.count("method 0") == text.count("──\n")


@each_row(
    ("init", "rank", "led"),
    [
        (["zero", "zero", "one"], [1, 2, 1], ["method", "init", "rank"]),
        (["zero", "one", "two"], [1, 1, 1], ["method", "init"]),
        (["zero " * 20, "one", "two"], [1, 1, 1], ["method"]),
    ],
)
def test_each_part_of_a_wide_table_tells_its_rows_apart(init: Any, rank: Any, led: Any, capsys: Any) -> None:
    wide = {f"measure_{n}": n / 8 for n in range(9)}
    rows = [{"method": "same", "init": one, "rank": k} | wide for one, k in zip(init, rank, strict=True)]
    print_rows(Console(width=60), rows)
    heads = [line.split() for line in capsys.readouterr().out.splitlines() if line.startswith("method")]
    assert len(heads) > 1
    assert heads[-1][: len(led)] == led
    assert heads[-1][len(led)].startswith("measure")


def test_no_rows_print_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    print_rows(Console(width=80), [])
    assert capsys.readouterr().out == ""


def test_plain_values() -> None:
    value = {
        "rate": np.float32(0.5),
        "grid": (1, math.inf),
        "array": np.arange(2),
        "path": Path("a"),
        "no": None,
    }
    expected = {"rate": 0.5, "grid": [1, None], "array": [0, 1], "path": "a", "no": None}
    assert plain(value, "parameters") == expected
    with pytest.raises(InvalidInputError, match=r"parameters\['grid'\] is a object"):
        plain({"grid": [object()]}, "parameters")
