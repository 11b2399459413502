"""What benchmarks kept has a benchmark, a page that shows it, and a command that measures it again."""

import json
import re
import runpy
import shutil
import subprocess
from pathlib import Path
from statistics import median
from typing import Any

import pytest
from tabled import each_row

ROOT = Path(__file__).parents[2]
AGAIN = runpy.run_path(str(ROOT / "docs" / "measured" / "again.py"))
SOURCES = {name: (path, commands) for name, path, commands in AGAIN["sources"]()}
PAGES = {page: page.read_text(encoding="utf-8") for page in sorted((ROOT / "docs").rglob("*.md"))}
ALL_PAGES = "\n".join(PAGES.values())


@each_row("name", [name for name, (path, _) in SOURCES.items() if path.suffix == ".json"])
def test_what_is_kept_is_still_measured_and_shown(name: str) -> None:
    path, (command,) = SOURCES[name]
    benchmark = ROOT / command.split()[-1]
    tables = json.loads(path.read_text(encoding="utf-8"))["tables"]
    # Tables of 0.2 whose benchmark is gone say so.
    code = benchmark.read_text(encoding="utf-8") if benchmark.exists() else None
    assert code is None or not [test for test in tables if f"def {test}(measured: Any" not in code]
    shown = re.findall(rf"^```{{measured}} {name}\b(.*)$", ALL_PAGES, flags=re.MULTILINE)
    assert "" in shown or set(" ".join(shown).split()) == set(tables)


def test_every_page_of_numbers_has_a_command() -> None:
    pages = {name for name, (path, _) in SOURCES.items() if path.suffix == ".md"}
    assert pages >= {"coembedding", "metric", "ranking", "similarity", "subspace", "reliability", "scaling"}
    for name in pages:
        files = [file for command in SOURCES[name][1] for file in re.findall(r"tests/\S+\.py", command)]
        assert all((ROOT / file).exists() for file in files), name


def test_what_pages_show_is_kept() -> None:
    shown = set(re.findall(r"^```\{measured\} (\w+)", ALL_PAGES, flags=re.MULTILINE))
    assert shown <= set(SOURCES), f"Run these benchmarks with --keep: {shown - set(SOURCES)}."


@each_row("address", sorted(set(re.findall(r"\{measured\}`([^`]+)`", ALL_PAGES))))
def test_a_number_that_a_page_takes_is_kept(address: str) -> None:
    assert AGAIN["values"](address)


def test_claims_are_counted_with_their_marks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "docs" / "measured")
    found = runpy.run_path(str(ROOT / "docs" / "_ext" / "measured.py"))["claims"]()
    assert ("COMET", "✓", "W stays positive definite without projections") in {one[:3] for one in found}
    index = (ROOT / "docs" / "measured" / "index.md").read_text(encoding="utf-8")
    assert len(found) == len(re.findall(r"^\|.*\| [✓~✗–] \|$", index, flags=re.MULTILINE))


def of(row: str, *columns: str) -> list[Any]:
    return [AGAIN["values"](f"{row}; {column}")[0] for column in columns]


RATIOS = AGAIN["values"]("batch_solvers; pymanopt / rmopt")
RATED = "completion_time; test_five_splits; ml1m"
SEEN, KNOWN = ("RMSE", "CPU seconds"), "completion_time; test_which_are_known; ml100k"
OURS, PEER = "BayesianCompletion, rank 10, implicit, 20 + 100", "myfm, rank 10, implicit"
# What is written by hand, in the README or among numbers of other runs: page, words, kept numbers.
WRITTEN = [
    ("README.md", "best solver: {} to {}, median {} |", [min(RATIOS), max(RATIOS), median(RATIOS)]),
    ("README.md", "takes {} to {} times as long (median {})", [min(RATIOS), max(RATIOS), median(RATIOS)]),
    ("README.md", "RMSE {} in {} s; myfm", of(f"{RATED}; BayesianCompletion, 10 + 100", *SEEN)),
    ("README.md", "3 s; myfm {} in {} s.", of(f"{RATED}; myfm", *SEEN)),
    ("README.md", "what: {} in {} s;", of(f"{KNOWN}; {OURS}", *SEEN)),
    ("README.md", "1.2 s; myfm {} in {} s |", of(f"{KNOWN}; {PEER}", *SEEN)),
    ("README.md", "nDCG@10 {} in {} s;", of("recommendations; ImplicitALS", "nDCG@10", "CPU seconds")),
    ("README.md", "; implicit {} in {} s", of("recommendations; implicit", "nDCG@10", "CPU seconds")),
    ("README.md", "P@1 {} % in {} s;", of("two_losses; delicious; logistic", "test, P@1", "fit, CPU s")),
    (
        "README.md",
        "each class: mAP {};",
        of("defaults; test_similarities; news20; softmax over cosines", "map"),
    ),
    (
        "README.md",
        "of logistic regression {} |",
        of("defaults; test_similarities; news20; logistic posteriors", "map"),
    ),
    ("README.md", "600,000 triplets: mAP {};", of("whole_tasks; LORETA-1", "mAP")),
    ("docs/measured/similarity.md", "| cosine (tf-idf) | {} |", of("whole_tasks; cosine", "mAP")),
    ("docs/measured/similarity.md", "| LORETA-1, η = 10 | **{}** |", of("whole_tasks; LORETA-1", "mAP")),
    ("docs/measured/similarity.md", "LORETA-1-PSD reaches {} ", of("whole_tasks; LORETA-1-PSD", "mAP")),
    (
        "docs/measured/scaling.md",
        "| Bibtex, folds | {} |",
        of("two_losses; bibtex; logistic", "held out, P@1"),
    ),
    (
        "docs/measured/scaling.md",
        "| Bibtex, test rows | {} ±",
        of("two_losses; bibtex; logistic", "test, P@1"),
    ),
    (
        "docs/measured/scaling.md",
        "| Delicious, folds | {} |",
        of("two_losses; delicious; logistic", "held out, P@1"),
    ),
    (
        "docs/measured/scaling.md",
        "| Delicious, test rows | {} ±",
        of("two_losses; delicious; logistic", "test, P@1"),
    ),
]


@each_row(("page", "words", "kept"), WRITTEN)
def test_a_written_number_is_the_kept_one(page: str, words: str, kept: list[Any]) -> None:
    pattern = re.escape(words).replace(r"\{\}", r"([\d.]+)")
    (found,) = re.findall(pattern, (ROOT / page).read_text(encoding="utf-8"))
    for written, value in zip([found] if isinstance(found, str) else found, kept, strict=True):
        number, _, error = str(value).partition(" ± ")
        digits = len(written.partition(".")[2])
        assert abs(float(written) - float(number)) <= max(0.501 * 10**-digits, float(error or 0)), (
            written,
            value,
        )


@each_row("page", AGAIN["TABLED"])
def test_every_table_of_numbers_says_how_it_was_measured(page: Path) -> None:
    for table, below in AGAIN["tables"](page):
        commands = AGAIN["origin"](below)
        assert commands is not None, f"{page.name}: what is below this table does not say how:\n{table}"
        for command in commands:
            for file, test in re.findall(r"(tests/\S+\.py)(?: -k (\w+))?", command):
                assert f"{test}(" in (ROOT / file).read_text(encoding="utf-8"), command


def test_commits_that_pages_name_are_in_the_history() -> None:
    words = ["git", "-C", str(ROOT), "rev-list", "--abbrev-commit", "--abbrev=7", "HEAD"]
    known = (
        set(subprocess.run(words, capture_output=True, text=True).stdout.split())
        if shutil.which("git")
        else set()
    )
    if len(known) < 100:
        pytest.skip("the history of the project is not here; clone it whole")
    said = "\n".join(
        path.read_text(encoding="utf-8")
        for pattern in ("*.md", "*.json")
        for path in (ROOT / "docs").rglob(pattern)
    )
    commits = set(re.findall(r"\bcommit\W{1,4}([0-9a-f]{7,})\b", said))
    assert len(commits) > 5
    assert {commit[:7] for commit in commits} <= known


def test_the_list_and_a_name_that_is_none(capsys: pytest.CaptureFixture[str]) -> None:
    assert AGAIN["main"]([]) == 0
    said = capsys.readouterr().out
    found: list[Any] = re.findall(r"^([\w/]+): \S+, (?:measured|last changed) \S", said, flags=re.MULTILINE)
    assert found == list(SOURCES)
    with pytest.raises(SystemExit):
        AGAIN["main"](["no_such_benchmark"])
    assert "nothing is called no_such_benchmark" in capsys.readouterr().err
