"""List what these docs measured, each with its commands, its date and its commit; or measure it again.

::

    python docs/measured/again.py                      # the list
    python docs/measured/again.py finite_sums metric   # these again
    python docs/measured/again.py --all                # everything again: a day or two

The tables of benchmarks are written by their commands into ``docs/measured/*.json``, from which the pages take tables
and single numbers when they are built; a test holds those of the README. Only what no such file holds is copied from
what commands print. In the README and in the guide the paragraph below each table of numbers says when and how it was
measured.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
DOCS, ROOT = HERE.parent, HERE.parents[1]
COMMAND = re.compile(r"(?:\w+=\S+ )*(?:mpiexec -n \d+ )?(?:rmopt run|pytest) .+")
# Pages with tables of numbers among other things.
TABLED = (ROOT / "README.md", *sorted((DOCS / "guide").glob("*.md")))
# What is measured has decimals or a unit.
NUMBER = re.compile(r"\d\.\d|\d (?:s|ms|µs|ns|%|MB|MiB|times)\b")
# Which parameters to start with, and which section of a paper is where.
ADVICE = re.compile(r"\| (?:parameter|in the paper) ")
ORIGIN = re.compile(
    r"Measured (\d{4}-\d\d-\d\d), commit ([0-9a-f]{7,})(?:, by ((?:`[^`]+`(?: and )?)+)|; no command does it again)"
)
OTHERS = re.compile(r"`python docs/measured/again\.py ((?:[\w/]+ ?)+)`")


def benchmark(name: str) -> str:
    """Return the command that measures the tables of ``docs/measured/NAME.json`` and keeps them."""
    return f"pytest -o addopts= -s --keep tests/benchmarks/test_{name}.py"


def kept(name: str) -> dict[str, Any]:
    """Return what ``docs/measured/NAME.json`` holds."""
    return json.loads((HERE / f"{name}.json").read_text(encoding="utf-8"))


def rows_of(table: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the rows of all parts of a table."""
    return [row for part in table["parts"].values() for row in part["rows"]]


def values(address: str) -> list[Any]:
    """Return what ``NAME; WORD; ...; COLUMN`` means: a file, words that rows or the names of tables are, a column."""
    name, *words, column = address.split("; ")
    found = [
        row[column]
        for table, content in kept(name)["tables"].items()
        for row in rows_of(content)
        if row.get(column) is not None and {*words} <= {table, *map(str, row.values())}
    ]
    if not found:
        raise LookupError(f"docs/measured/{name}.json has no column {column!r} with {words}")
    return found


def written(page: Path) -> list[str]:
    """Return the commands that a page shows; those with a placeholder in them are left out."""
    text = page.read_text(encoding="utf-8")
    blocks = "\n".join(re.findall(r"```sh\n(.*?)```", text, flags=re.DOTALL)).replace("\\\n", " ")
    found = [line.partition("  #")[0] for line in blocks.splitlines()]
    found += re.findall(r"(?<!`)`([^`]+)`(?!`)", text)
    # The folder of the data is that of RMOPT_DATA_HOME.
    found = [" ".join(line.replace("--data-home FOLDER", "").split()) for line in found]
    # What is kept in files has names of its own, and the index repeats the other pages.
    kept = [benchmark(path.stem).rpartition("/")[2] for path in HERE.glob("*.json")]
    other = ("FILE", "--help", *kept)
    commands = [line for line in dict.fromkeys(found) if COMMAND.fullmatch(line)]
    return [
        line for line in commands if not line.endswith("tests/benchmarks") and not any(map(line.count, other))
    ]


def named(page: Path) -> str:
    """Return what the list calls a page of `TABLED`."""
    return page.relative_to(ROOT if page.parent == ROOT else DOCS).with_suffix("").as_posix()


def tables(page: Path) -> list[tuple[str, str]]:
    """Return the tables of measured numbers on a page, each with the paragraph below it."""
    found = re.findall(
        r"((?:^\|.*\n){3,})\n?((?:^(?!\|).+\n)*)", page.read_text(encoding="utf-8"), flags=re.MULTILINE
    )
    return [
        (table, " ".join(below.split()))
        for table, below in found
        if not ADVICE.match(table) and NUMBER.search(table)
    ]


def origin(below: str) -> list[str] | None:
    """Return the commands of a table from the paragraph below it, or None where that says nothing of how."""
    if others := OTHERS.search(below):
        known = {path.stem for path in HERE.iterdir()} | set(map(named, TABLED))
        return [others[0].strip("`")] if set(others[1].split()) <= known else None
    said = ORIGIN.search(below)
    return None if said is None else re.findall(r"`([^`]+)`", said[3] or "")


def sources() -> Iterator[tuple[str, Path, list[str]]]:
    """Yield the names of what was measured, the files that hold the numbers, and the commands."""
    for path in sorted(HERE.glob("*.json")):
        yield path.stem, path, [benchmark(path.stem)]
    for path in sorted(HERE.glob("*.md")):
        # The index repeats the other pages, and some pages show what is kept in files alone.
        if path.stem != "index" and (commands := written(path)):
            yield path.stem, path, commands
    for path in TABLED:
        if below := [text for _, text in tables(path)]:
            commands = [command for text in below for command in origin(text) or ()]
            yield named(path), path, list(dict.fromkeys(commands))


def when(path: Path) -> str:
    """Say when and at which commit numbers were measured or, where that is not known, their file was changed."""
    log = ["git", "log", "-1", "--format=%as %h", "--", path]
    last = subprocess.run(log, cwd=ROOT, capture_output=True, text=True).stdout.split() or ["–", "–"]
    said = []
    if path.suffix == ".json":
        kept = json.loads(path.read_text(encoding="utf-8"))["tables"].values()
        parts = [part for table in kept for part in table["parts"].values()]
        said = [(part["date"], part.get("commit") or last[1]) for part in parts]
    elif path in TABLED:
        said = [found.groups()[:2] for _, below in tables(path) if (found := ORIGIN.search(below))]
    dates, commits = zip(*(said or [last]), strict=True)
    days, places = dict.fromkeys((min(dates), max(dates))), dict.fromkeys(commits)
    return f"{'measured' if said else 'last changed'} {' to '.join(days)}, commit {', '.join(places)}"


def main(arguments: list[str]) -> int:
    """List, or run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="what to measure again")
    parser.add_argument("--all", action="store_true", help="measure everything again")
    asked = parser.parse_args(arguments)
    known = {name: (path, commands) for name, path, commands in sources()}
    if wrong := [name for name in asked.names if name not in known]:
        parser.error(f"nothing is called {', '.join(wrong)}; known are {', '.join(known)}")
    failed = 0
    for name in known if asked.all or not asked.names else asked.names:
        path, commands = known[name]
        print(f"{name}: {path.relative_to(ROOT)}, {when(path)}", flush=True)
        for command in commands:
            print(f"    {command}", flush=True)
            # Where everything is run, that of other names is.
            if asked.names or (asked.all and not OTHERS.search(f"`{command}`")):
                # The programs of this environment come first.
                there = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
                words = ["env", *shlex.split(command)]
                failed += subprocess.run(words, cwd=ROOT, env=os.environ | {"PATH": there}).returncode != 0
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
