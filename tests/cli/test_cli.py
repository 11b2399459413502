"""The command line, with experiments, data sets and checks that stand in for the real ones."""

import errno
import io
import json
import os
import re
import subprocess
import sys
import warnings
from dataclasses import dataclass
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Annotated, Any, Literal

import numpy as np
import pytest
import typer
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console
from tabled import each_row

import rmopt.cli.registry
from rmopt.checks import Check
from rmopt.cli import main
from rmopt.cli.registry import as_json
from rmopt.cli.result import cells_of, heading_of, print_rows
from rmopt.cli.run import OutputFolder
from rmopt.errors import DivergedError, InvalidInputError
from rmopt.experiments import Claim, Outcome, Run

NAN = float("nan")
ROWS: list[dict[str, Any]] = [
    {"method": "plain cosine", "map": 0.2231, "precision_at_1": 0.71, "train_seconds": None},
    {"method": "naive gradient descent", "map": 0.09831, "precision_at_1": NAN, "train_seconds": 12.3456},
    {"method": "LORETA-1", "map": np.float64(0.6458), "precision_at_1": 1.0, "updates": np.int64(600_000)},
]


def fake(
    run: Run,
    *,
    rank: Annotated[int, typer.Option(min=1, help="The rank [of the model].")] = 10,
    start: Annotated[Literal["zero", "random"], typer.Option(help="Where it begins.")] = "zero",
    names: Annotated[list[str] | None, typer.Option(help="Some names.")] = None,
) -> Outcome:
    """Compare three methods that learn nothing.

    A second paragraph.

    Parameters
    ----------
    run : Run
        Not for the user of the command line.
    """
    run.say(f"Loading [bold] … {run.experiment}")
    print("noise")
    run.path("model.txt").write_text(f"{run.seed} {rank}")
    claims = [Claim("it learns", None, "nothing")]
    return Outcome("digits", {"rank": rank, "start": start}, ROWS, {"updates": "number of updates"}, claims)


@dataclass
class Fields:
    """Take options as the fields of a class."""

    rank: Annotated[int, typer.Option(help="The rank.")] = 3

    def __call__(self, run: Run) -> Outcome:
        return Outcome(
            "digits", {"rank": self.rank}, [], claims=[Claim("(not in the paper) it learns", None, "")]
        )


def compared(run: Run, file: str, minutes: float, data_home: Path | None, names: Path | None) -> Outcome:
    """Stand in for what compares rivals."""
    return Outcome(file, {"minutes": minutes}, [{"model": "theirs", "rmse": 0.5}])


def unusable(run: Run) -> Outcome:
    """Refuse its input."""
    raise InvalidInputError("rank must be at most 10,\nnot 11; choose a smaller one.")


def interrupted(run: Run, *, saves: bool = False, resume: bool = False) -> Outcome:
    """Stop half-way."""
    if saves:
        run.path("checkpoint.npz").touch()
    raise KeyboardInterrupt


def full_disk(run: Run) -> Outcome:
    """Find no space."""
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def lost(run: Run) -> Outcome:
    """Look for a file that has nothing to do with the output."""
    raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), "/elsewhere/data.csv")


def diverging(run: Run) -> Outcome:
    """Leave the finite numbers."""
    raise DivergedError("diverged at step 7; choose a smaller step size.", step=7)


def forgetful(run: Run) -> None:
    """Return nothing."""


EXPERIMENTS = [
    "diverging", "Fields", "fake", "forgetful", "full_disk", "interrupted", "lost", "unusable",
]  # fmt: skip
REGISTERED = [
    *(EntryPoint(name, f"{__name__}:{name}", "rmopt.experiments") for name in EXPERIMENTS),
    EntryPoint("broken", "no_such_package:experiment", "rmopt.experiments"),
    EntryPoint("gone", "math:experiment", "rmopt.experiments"),
    EntryPoint("digits", "problems.data.sets:digits", "rmopt.datasets"),
    EntryPoint("best", f"{__name__}:compared", "rmopt.best"),
    EntryPoint("describe", "no_such_package:describe", "rmopt.data"),
    EntryPoint("serve", "no_such_package:serve", "rmopt.serve"),
]


@pytest.fixture(autouse=True)
def _in_a_new_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    for name in ("FORCE_COLOR", "TTY_COMPATIBLE", "TERMINAL_WIDTH"):
        monkeypatch.delenv(name, raising=False)
    entries = EntryPoints(REGISTERED)
    monkeypatch.setattr(rmopt.cli.registry, "entry_points", lambda group: entries.select(group=group))


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Any:
    def call(*arguments: str) -> SimpleNamespace:
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        printed = capsys.readouterr()
        return SimpleNamespace(status=int(ended.value.code or 0), out=printed.out, err=printed.err)

    return call


def test_run_prints_a_table_and_the_files(call: Any) -> None:
    Path("here").mkdir()
    Path("here/older.txt").touch()
    os.utime("here/older.txt", (0, 0))
    called = call("run", "fake", "--out", "here")
    lines = called.out.splitlines()
    assert (called.status, called.err) == (0, "")
    assert lines[:4] == ["Loading [bold] … fake", "noise", "fake on digits, seed 0", ""]
    table = [" ".join(line.split()) for line in lines[4:8]]
    assert table == [
        "method mAP P@1 train s number of updates", "plain cosine 0.2231 0.7100 – –",
        "naive gradient descent 0.0983 – 12.35 –", "LORETA-1 0.6458 1.0000 – 600,000",
    ]  # fmt: skip
    assert lines[8:] == [
        "", "Claims of the paper, tested on digits:", "- undecided: it learns (nothing)",
        "", "Written to here:", "  model.txt", "  result.json",
    ]  # fmt: skip
    assert max(map(len, lines)) <= 80


def test_result_has_one_shape_and_json_is_all_on_standard_output(call: Any) -> None:
    words = ("run", "fake", "--rank", "3", "--start", "random", "--seed", "5", "--out", "here", "--json")
    called = call(*words)
    result = json.loads(called.out)
    assert (called.status, called.err) == (0, "noise\n")
    assert result == json.loads(Path("here/result.json").read_text())
    assert list(result) == ["experiment", "data", "parameters", "seed", "versions", "rows", "claims"]
    assert result["parameters"] == {"rank": 3, "start": "random"}
    assert (result["experiment"], result["data"], result["seed"]) == ("fake", "digits", 5)
    assert result["versions"]["numpy"] == np.__version__
    assert result["rows"][1]["precision_at_1"] is None
    assert result["rows"][2] == ROWS[2]
    assert Path("here/model.txt").read_text() == "5 3"


def test_fields_of_a_class_are_options(call: Any) -> None:
    assert json.loads(call("run", "Fields", "--rank", "7", "--json").out)["parameters"] == {"rank": 7}
    assert "--rank N" in call("run", "Fields", "--help").out
    assert "\nClaims, tested on digits:\n" in call("run", "Fields").out


def test_quiet_prints_the_folder_which_is_a_new_one(call: Any) -> None:
    folders = [Path(call("run", "fake", "--quiet").out.removesuffix("\n")) for _ in range(3)]
    assert len(set(folders)) == 3
    for folder in folders:
        assert folder.parent == Path("rmopt-runs")
        assert folder.name.startswith("fake-")
        assert (folder / "result.json").exists()


@pytest.mark.parametrize("command", ["", "run", "fit", "run fake", "serve", "data", "check", "list"])
def test_help_says_what_a_command_is_for_and_no_types_of_python(call: Any, command: str) -> None:
    called = call(*command.split(), "--help")
    assert called.status == 0
    assert max(map(len, called.out.splitlines())) <= 80
    for word in ("<int", "<str", "<list", "<path", "<Path", "<float", "..."):
        assert word not in called.out.replace("[ARGS]...", "").replace("[NAME]...", "")


def test_help_of_an_experiment_shows_its_options_and_the_common_ones(call: Any) -> None:
    text = call("run", "fake", "--help").out
    for expected in ("rmopt run fake", "second paragraph", "The rank [of the model].", "zero", "random"):
        assert expected in text
    for option in ("--rank N", "--names TEXT", "--start", "--seed N", "--out FOLDER", "--quiet", "--json"):
        assert option in text
    assert "Not for the user" not in text


def test_no_command_is_help_and_names_the_experiments(call: Any) -> None:
    for arguments in ([], ["run"], ["run", "--help"]):
        called = call(*arguments)
        assert (called.status, called.err) == (0, "")
        assert called.out.startswith("Usage: rmopt")
    assert "  fake         Compare three methods that learn nothing.\n" in called.out
    commands = call().out.partition("Commands:\n")[2]
    named = [line.split()[0] for line in commands.splitlines()]
    assert named == ["best", "fit", "serve", "data", "run", "list", "check"]
    assert call("--version").out.startswith("rmopt ")


@each_row(
    ("name", "expected"),
    [
        ("fakes", "rmopt: there is no 'fakes'; did you mean 'fake'? There are: Fields, broken, "),
        ("zzz", "rmopt: there is no 'zzz'. There are: Fields, broken, diverging, "),
        ("broken", "'broken', which is no_such_package:experiment, cannot be imported (No module named"),
        ("gone", "cannot be imported (module 'math' has no attribute"),
        ("unusable", "rmopt: rank must be at most 10, not 11; choose a smaller one."),
        ("diverging", "rmopt: diverged at step 7; choose a smaller step size."),
        ("full_disk", "rmopt: cannot write (No space left"),
        ("forgetful", "rmopt: 'forgetful' returned a NoneType"),
    ],
)
def test_an_error_is_one_line_and_leaves_no_empty_folder(call: Any, name: str, expected: str) -> None:
    called = call("run", name)
    assert (called.status, called.out.strip()) == (2, "")
    assert expected in called.err
    assert called.err.count("\n") == 1
    assert not Path("rmopt-runs").exists()


def test_no_experiments_at_all(call: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rmopt.cli.registry, "entry_points", lambda group: EntryPoints())
    assert "there is no 'fake'. There are: none." in call("run", "fake").err
    assert "Experiments:\n  none" in call("run").out
    assert call("list").out.split() == ["Experiments:", "none", "Data", "sets:", "none"]


def test_best_is_a_command_with_the_options_of_experiments(call: Any) -> None:
    called = call("best", "a.csv", "--minutes", "2", "--seed", "3", "--out", "here", "--json")
    found = json.loads(called.out)
    assert (found["data"], found["parameters"], found["seed"]) == ("a.csv", {"minutes": 2.0}, 3)
    assert json.loads(Path("here/result.json").read_text()) == found
    help_text = call("best", "--help").out
    assert "FILE: ratings, texts or a table, as for rmopt data." in help_text
    assert "--quiet" in help_text


def test_errors_of_the_program_keep_their_traceback() -> None:
    with pytest.raises(FileNotFoundError, match="elsewhere"):
        main(["run", "lost"])


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ([], "nothing was saved."),
        (["--saves"], "saved in here: checkpoint.npz; continue with --resume --out here."),
    ],
)
def test_an_interrupted_run_says_what_is_left(call: Any, options: list[str], expected: str) -> None:
    called = call("run", "interrupted", "--out", "here", *options)
    assert (called.status, called.err) == (130, f"rmopt: interrupted; {expected}\n")
    assert Path("here").exists() == bool(options)


@pytest.mark.parametrize("out", ["a-file", "a-file/below"])
def test_unwritable_output_is_refused_before_the_work(call: Any, out: str) -> None:
    Path("a-file").touch()
    called = call("run", "fake", "--out", out)
    assert (called.status, called.out) == (2, "")
    assert called.err.startswith(f"rmopt: --out: cannot write into {out} (")


@pytest.mark.parametrize("words", ["--rang 3", "--rank 0", "--rank one", "--seed -1", "--out=", "--start x"])
def test_a_wrong_option_is_a_usage_error(call: Any, words: str) -> None:
    called = call("run", "fake", *words.split())
    assert called.status == 2
    assert words.split("=")[0].split()[0] in called.err
    assert "rmopt run fake --help" in called.err
    assert not re.search(r"<\w", called.err)


def test_a_result_of_another_experiment_is_set_aside(call: Any) -> None:
    for name in ("fake", "fake", "Fields"):
        assert call("run", name, "--out", "here").status == 0
    assert json.loads(Path("here/result.json.before").read_text())["experiment"] == "fake"
    assert not Path("here/result.json.before-2").exists()


def test_two_runs_do_not_share_a_folder() -> None:
    with OutputFolder(Path("here"), "one") as folder:
        folder.path.joinpath("file").touch()
        with pytest.raises(Exception, match="another run"):
            OutputFolder(Path("here"), "two")
    with OutputFolder(Path("here"), "two"):
        pass


def test_list_says_what_data_sets_are_and_which_plug_in_is_broken(call: Any) -> None:
    called = call("list")
    text = " ".join(called.out.split())
    assert called.status == 0
    assert "fake Compare three methods that learn nothing." in text
    assert "broken cannot be loaded: ModuleNotFoundError: No module named 'no_such_package'" in text
    assert "Data sets: digits 1797 handwritten digits" in text
    assert max(map(len, called.out.splitlines())) <= 80
    content = json.loads(call("list", "--json").out)
    assert [entry["name"] for entry in content["datasets"]] == ["digits"]
    assert {entry["name"] for entry in content["experiments"]} == {*EXPERIMENTS, "broken", "gone"}


def test_what_the_source_describes_is_listed_without_an_import(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "slow_package"
    package.mkdir()
    (package / "__init__.py").write_text("")
    source = (
        'raise RuntimeError("imported")\ndef plain(run):\n    """Run at once.\n\n    More."""\nmade = plain\n'
    )
    (package / "runs.py").write_text(source)
    (package / "wrong.py").write_text("def plain(run:\n")
    monkeypatch.syspath_prepend(tmp_path)

    def listed(value: str) -> str:
        entries = EntryPoints([EntryPoint("x", f"slow_package.{value}", "g")])
        monkeypatch.setattr(rmopt.cli.registry, "entry_points", lambda group: entries)
        return rmopt.cli.registry.describe("g")[0]["description"]

    assert listed("runs:plain") == "Run at once."
    # What only an import can tell is imported.
    assert listed("runs:made") == "cannot be loaded: RuntimeError: imported"
    assert "ModuleNotFoundError" in listed("none:plain")
    assert "SyntaxError" in listed("wrong:plain")


@pytest.fixture
def catalogue(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Stand in for the catalogue of checks; return the arguments it is called with."""
    calls: list[Any] = []
    steps = np.array([1.0, 0.1])
    checks = (
        Check("order", "Sphere(3)", True, 2.01, 2.0, "", steps, steps),
        Check("order", "Torus/2", False, NAN, 2.0, "slope [1] of 2", steps, steps),
        Check("zero", "Plane", False, 1.0212125884292985e-06, 1e-12, "it adds"),
    )

    def run_catalogue(names: list[str], seed: int) -> list[Check]:
        calls.append((names, seed))
        return [check for check in checks if check.subject in (names or ("Sphere(3)", "Torus/2"))]

    module = ModuleType("rmopt.checks")
    module.run_catalogue = run_catalogue  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "rmopt.checks", module)
    return calls


def test_check_fails_when_a_check_fails(call: Any, catalogue: list[Any]) -> None:
    called = call("check", "--seed", "3")
    assert (called.status, catalogue) == (1, [([], 3)])
    assert called.out.splitlines() == [
        "passed  order of Sphere(3): slope 2.01, needs about 2 or more",
        "FAILED  order of Torus/2: (slope [1] of 2)", "1 of 2 checks passed.",
    ]  # fmt: skip
    called = call("check", "Sphere(3)")
    assert (called.status, called.out.splitlines()[1:]) == (0, ["1 of 1 checks passed."])
    assert "FAILED  zero of Plane: 1.021e-06, at most 1e-12 (it" in call("check", "Plane").out


def test_check_for_scripts(call: Any, catalogue: list[Any]) -> None:
    called = call("check", "--json")
    rows = json.loads(called.out)["rows"]
    assert called.status == 1
    assert [row["passed"] for row in rows] == [True, False]
    assert rows[1]["measured"] is None
    called = call("check", "Cube")
    assert called.status == 2
    assert called.err.startswith("rmopt: no check matches Cube")


def test_a_warning_is_a_line_without_a_place_in_the_source(call: Any) -> None:
    call("list")
    code = "import warnings; from rmopt.cli import main; from rmopt.cli.commands import app\n"
    code += "app.command('warn')(lambda: warnings.warn('it is late')); main(['warn'])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stderr == "rmopt: warning: it is late\n"
    assert "<lambda>" not in warnings.formatwarning.__qualname__


def test_streams_that_the_shell_closed() -> None:
    done = subprocess.run(f"{sys.executable} -m rmopt.cli --version >&- 2>&-", shell=True)
    assert done.returncode == 0


@each_row(
    ("key", "heading"),
    [
        ("method", "method"), ("map", "mAP"), ("test_map", "test mAP"), ("precision_at_10", "P@10"),
        ("test_precision_at_1", "test P@1"), ("train_seconds", "train s"), ("step_size", "step size"),
    ],
)  # fmt: skip
def test_headings(key: str, heading: str) -> None:
    assert heading_of(key) == heading


@each_row(
    ("values", "key", "expected"),
    [
        ([0.64583, 0.09831, 0.0], "map", ["0.6458", "0.0983", "0.0000"]),
        ([12.3456, -3.21], "cost", ["12.35", "-3.21"]),
        ([123456.7, 2000.0], "cost", ["123,457", "2,000"]),
        ([0.5, 1.23456e-14], "error", ["0.5", "1.235e-14"]),
        ([2e12], "cost", ["2e+12"]),
        ([600_000, None], "updates", ["600,000", "–"]),
        ([1234.567, 0.0], "train_seconds", ["1,234.57", "0.00"]),
    ],
)
def test_numbers(values: list[Any], key: str, expected: list[str]) -> None:
    assert cells_of([{key: value} for value in values], key) == expected


WORDS = st.text("abcdefghij", min_size=1, max_size=14)
CELLS = st.one_of(
    st.lists(WORDS, min_size=1, max_size=2).map(" ".join),
    st.floats(-1e6, 1e6),
    st.integers(0, 10**9),
    st.none(),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.dictionaries(WORDS, CELLS, max_size=9), max_size=4), st.integers(60, 90))
def test_a_table_cuts_no_word_of_short_texts_and_fits(rows: list[dict[str, Any]], width: int) -> None:
    console = Console(width=width, record=True, quiet=False, file=io.StringIO())
    print_rows(console, rows, {})
    text = console.export_text()
    assert max(map(len, text.splitlines()), default=0) <= width
    printed = text.split()
    for row in rows:
        for key, value in row.items():
            assert value is None or heading_of(key) in printed
            for word in value.split() if isinstance(value, str) else ():
                assert word in printed


def test_json_takes_numbers_of_numpy_and_refuses_what_it_cannot_hold() -> None:
    value = {
        "rate": np.float32(0.5),
        "grid": (1, float("inf")),
        "array": np.arange(2),
        "path": Path("a"),
        "no": None,
    }
    expected = {"rate": 0.5, "grid": [1, None], "array": [0, 1], "path": "a", "no": None}
    assert json.loads(as_json(value)) == expected
    with pytest.raises(InvalidInputError, match="object"):
        as_json({"grid": [object()]})
