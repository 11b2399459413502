"""List what these docs measured, each with its commands, its date and its commit; or measure it again.

::

    python docs/measured/again.py                      # the list
    python docs/measured/again.py finite_sums metric   # these again
    python docs/measured/again.py --all                # everything again: a day or two

The tables of benchmarks are written by their commands into ``docs/measured/*.json``, from which the pages take
them. The numbers on other pages were copied by hand from what their commands print.
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

HERE = Path(__file__).parent
DOCS, ROOT = HERE.parent, HERE.parents[1]
# Other pages of this chapter whose numbers have commands.
MORE = ("reliability",)
COMMAND = re.compile(r"(?:\w+=\S+ )*(?:mpiexec -n \d+ )?(?:rmopt run|pytest) .+")


def benchmark(name: str) -> str:
    """Return the command that measures the tables of ``docs/measured/NAME.json`` and keeps them."""
    return f"pytest -o addopts= -s --keep tests/benchmarks/test_{name}.py"


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


def sources() -> Iterator[tuple[str, Path, list[str]]]:
    """Yield the names of what was measured, the files that hold the numbers, and the commands."""
    for path in sorted(HERE.glob("*.json")):
        yield path.stem, path, [benchmark(path.stem)]
    for path in (*sorted(HERE.glob("*.md")), *(DOCS / f"{name}.md" for name in MORE)):
        if path.stem != "index":
            yield path.stem, path, written(path)


def when(path: Path) -> tuple[str, str]:
    """Return the dates and commits of measurements; where they are not known, those of the file's last change."""
    last = subprocess.run(
        ["git", "log", "-1", "--format=%as %h", "--", path], cwd=ROOT, capture_output=True, text=True
    ).stdout.split() or ["–", "–"]
    if path.suffix != ".json":
        return last[0], last[1]
    tables = json.loads(path.read_text(encoding="utf-8"))["tables"].values()
    parts = [part for table in tables for part in table["parts"].values()]
    dates = sorted({part["date"] for part in parts})
    commits = dict.fromkeys(part.get("commit") or last[1] for part in parts)
    return " to ".join(dict.fromkeys((dates[0], dates[-1]))), ", ".join(commits)


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
        date, commit = when(path)
        verb = "measured" if path.suffix == ".json" else "last changed"
        print(f"{name}: {path.relative_to(ROOT)}, {verb} {date}, commit {commit}", flush=True)
        for command in commands:
            print(f"    {command}", flush=True)
            if asked.all or asked.names:
                # The programs of this environment come first.
                there = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
                words = ["env", *shlex.split(command)]
                failed += subprocess.run(words, cwd=ROOT, env=os.environ | {"PATH": there}).returncode != 0
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
