"""The command line, with experiments, data sets and checks that stand in for the real ones."""

import enum
import errno
import json
import os
import subprocess
import sys
import warnings
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Annotated, Any

import numpy as np
import pytest
import typer
from tabled import each_row

import rmopt.cli.plugins
from rmopt.checks import Check
from rmopt.cli import main
from rmopt.cli.output import OutputFolder
from rmopt.errors import DivergedError, InvalidInputError
from rmopt.experiments import Outcome, Run

NAN = float("nan")
ROWS: list[dict[str, Any]] = [
    {"method": "plain cosine", "map": 0.2231, "precision_at_1": 0.71, "train_seconds": None},
    {
        "method": "naive factored gradient descent",
        "map": 0.09831,
        "precision_at_1": NAN,
        "train_seconds": 12.3456,
    },
    {"method": "LORETA-1", "map": np.float64(0.6458), "precision_at_1": 1.0, "updates": np.int64(600_000)},
]


class Start(enum.StrEnum):
    ZERO = "zero"
    RANDOM = "random"


def fake(
    run: Run,
    *,
    rank: Annotated[int, typer.Option(help="The rank [of the model].")] = 10,
    start: Start = Start.ZERO,
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
    return Outcome("digits", {"rank": rank, "start": start}, ROWS, headings={"updates": "number of updates"})


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


def worried(run: Run) -> Outcome:
    """Warn of one thing twice, as solvers do in loops."""
    for text in ("it is late", "it is late", "it is later"):
        sys.stderr.write(warnings.formatwarning(text, UserWarning, __file__, 1))
    return Outcome("digits", {}, [])


def forgetful(run: Run) -> None:
    """Return nothing."""


def greedy(run: Run, *, seed: int = 1) -> Outcome:
    """Declare an option that is not its own."""
    return Outcome("digits", {}, [])


def shapeless(run: Run, **options: int) -> Outcome:
    """Take anything."""
    return Outcome("digits", options, [])


def no_run(*, rank: int = 1) -> Outcome:
    """Take no run."""
    return Outcome("digits", {"rank": rank}, [])


def vague(run: Run, *, rank: int = 1) -> Outcome:
    """Say by a name of nothing what an option is."""
    return Outcome("digits", {"rank": rank}, [])


vague.__annotations__["rank"] = "Rank"
EXPERIMENTS = [
    *("fake", "unusable", "interrupted", "full_disk", "lost", "diverging"),
    *("worried", "forgetful", "greedy", "shapeless", "no_run", "vague"),
]
REGISTERED = [
    *(EntryPoint(name, f"{__name__}:{name}", "rmopt.experiments") for name in EXPERIMENTS),
    EntryPoint("number", f"{__name__}:NAN", "rmopt.experiments"),
    EntryPoint("broken", "no_such_package:experiment", "rmopt.experiments"),
    EntryPoint("gone", "math:experiment", "rmopt.experiments"),
    EntryPoint("twice", f"{__name__}:fake", "rmopt.experiments"),
    EntryPoint("twice", f"{__name__}:lost", "rmopt.experiments"),
    EntryPoint("digits", f"{__name__}:fake", "rmopt.datasets"),
    EntryPoint("describe", "no_such_package:describe", "rmopt.data"),
    EntryPoint("serve", "no_such_package:serve", "rmopt.serve"),
]


@pytest.fixture(autouse=True)
def _in_a_new_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    for name in ("FORCE_COLOR", "TTY_COMPATIBLE", "TERMINAL_WIDTH"):
        monkeypatch.delenv(name, raising=False)
    found = EntryPoints(REGISTERED)
    monkeypatch.setattr(rmopt.cli.plugins, "entry_points", lambda group: found.select(group=group))


class Called(SimpleNamespace):
    status: int
    out: str
    err: str


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Any:
    def call(*arguments: str) -> Called:
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        printed = capsys.readouterr()
        return Called(status=ended.value.code, out=printed.out, err=printed.err)

    return call


def test_run_prints_a_table_and_the_files(call: Any, tmp_path: Path) -> None:
    called = call("run", "fake", "--out", "here")
    assert (called.status, called.err) == (0, "")
    assert called.out.splitlines()[:4] == ["Loading [bold] … fake", "noise", "fake on digits, seed 0", ""]
    table = called.out.splitlines()[4:]
    assert table[0].split() == ["method", "mAP", "P@1", "train", "s", "number", "of", "updates"]
    assert table[2].split() == ["plain", "cosine", "0.2231", "0.7100", "–", "–"]
    assert table[3].split() == ["naive", "factored", "gradient", "descent", "0.0983", "–", "12.35", "–"]
    assert table[4].split() == ["LORETA-1", "0.6458", "1.0000", "–", "600,000"]
    assert len(set(map(len, table[2:5]))) == 1
    assert table[5:] == ["", "Written to here:", "  model.txt", "  result.json"]
    assert max(map(len, called.out.splitlines())) <= 80


def test_result_has_one_shape(call: Any) -> None:
    assert call("run", "fake", "--rank", "3", "--start", "random", "--seed", "5", "--out", "here").status == 0
    result = json.loads(Path("here/result.json").read_text())
    assert list(result) == ["experiment", "data", "parameters", "seed", "versions", "rows"]
    assert result["parameters"] == {"rank": 3, "start": "random"}
    assert (result["experiment"], result["data"], result["seed"]) == ("fake", "digits", 5)
    assert list(result["versions"]) == ["python", "rmopt", "numpy", "scipy", "numba", "scikit-learn"]
    assert result["versions"]["numpy"] == np.__version__
    assert result["rows"][1]["precision_at_1"] is None
    assert result["rows"][2] == {
        "method": "LORETA-1",
        "map": 0.6458,
        "precision_at_1": 1.0,
        "updates": 600_000,
    }
    assert Path("here/model.txt").read_text() == "5 3"


def test_json_is_all_there_is_on_standard_output(call: Any) -> None:
    called = call("run", "fake", "--json", "--out", "here")
    assert json.loads(called.out) == json.loads(Path("here/result.json").read_text())
    assert called.err == "noise\n"


def test_quiet_prints_the_folder(call: Any) -> None:
    called = call("run", "fake", "--quiet")
    folder = Path(called.out.removesuffix("\n"))
    assert folder.parent == Path("rmopt-runs")
    assert folder.name.startswith("fake-")
    assert (folder / "result.json").exists()


def test_default_folder_is_always_a_new_one() -> None:
    folders = [OutputFolder(None, "fake").path for _ in range(3)]
    assert len(set(folders)) == 3
    assert all(folder.is_dir() for folder in folders)


def test_only_new_and_changed_files_are_listed(call: Any) -> None:
    Path("here").mkdir()
    Path("here/older.txt").touch()
    Path("here/model.txt").touch()
    called = call("run", "fake", "--out", "here")
    assert called.out.endswith("Written to here:\n  model.txt\n  result.json\n")


def test_help_of_an_experiment_shows_its_options_and_the_common_ones(call: Any) -> None:
    text = call("run", "fake", "--help").out
    for expected in (
        "rmopt run fake",
        "second paragraph",
        "The rank [of the model].",
        "[default: 10]",
        "random",
    ):
        assert expected in text
    for option in ("--rank", "--start", "--seed", "--out", "--quiet", "--json"):
        assert option in text
    assert "Not for the user" not in text


@pytest.mark.parametrize("arguments", [["run"], ["run", "--help"]])
def test_help_of_run_names_the_experiments(call: Any, arguments: list[str]) -> None:
    called = call(*arguments)
    assert called.status == 0
    assert "unusable" in called.out
    assert "fake" in called.out


@each_row(
    ("name", "expected"),
    [
        ("fakes", "rmopt: there is no experiment 'fakes'; did you mean 'fake'? Experiments: broken, "),
        ("zzz", "rmopt: there is no experiment 'zzz'. Experiments: broken, diverging, "),
        ("broken", "rmopt: experiment 'broken' of an unknown package cannot be imported (No module named"),
        ("gone", "cannot be imported (module 'math' has no attribute"),
        ("twice", "rmopt: experiment 'twice' is registered by an unknown package and"),
        ("number", "which is not a function."),
        ("unusable", "rmopt: rank must be at most 10, not 11; choose a smaller one."),
        ("diverging", "rmopt: diverged at step 7; choose a smaller step size."),
        ("full_disk", "rmopt: cannot write into rmopt-runs/full_disk-"),
        ("forgetful", "rmopt: experiment 'forgetful' returned a NoneType; it must return"),
        ("greedy", "rmopt: experiment 'greedy' declares the common option 'seed'; take it from the run"),
        ("shapeless", "rmopt: experiment 'shapeless' takes **options: int; give each option a name."),
        ("no_run", "rmopt: experiment 'no_run' must take the run as its first parameter."),
        ("vague", "rmopt: the annotations of experiment 'vague' cannot be read: name 'Rank' is not defined"),
        ("--seed", "rmopt: the experiment's name comes before its options: rmopt run NAME --seed"),
    ],
)
def test_an_error_is_one_line_and_leaves_no_empty_folder(call: Any, name: str, expected: str) -> None:
    called = call("run", name)
    assert called.status == 2
    assert called.out.strip() == ""
    assert expected in called.err
    assert called.err.count("\n") == 1
    assert not Path("rmopt-runs").exists()


def test_data_and_pages_of_a_package_that_cannot_be_imported(call: Any) -> None:
    for command, name in (("data", "describe"), ("serve", "serve")):
        called = call(command, "here")
        assert called.status == 2
        assert f"{name!r} of an unknown package cannot be imported (No module named" in called.err


def test_no_experiments_at_all(call: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rmopt.cli.plugins, "entry_points", lambda group: EntryPoints())
    assert "there is no experiment 'fake', nor any other" in call("run", "fake").err
    assert call("run").out.endswith("Experiments: none\n")
    assert call("list").out.split() == ["Experiments", "none", "Data", "sets", "none"]


def test_errors_of_the_program_keep_their_traceback() -> None:
    with pytest.raises(FileNotFoundError, match="elsewhere"):
        main(["run", "lost"])


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ([], "nothing was saved."),
        (["--saves"], "what was saved is in here: checkpoint.npz; go on with --resume --out here."),
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
    assert called.status == 2
    assert called.err.startswith(f"rmopt: --out: cannot write into {out} (")
    assert called.out == ""


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="everything is writable for root")
def test_read_only_folder_is_refused(call: Any) -> None:
    Path("here").mkdir(mode=0o500)
    assert "Permission denied" in call("run", "fake", "--out", "here").err


def test_wrong_option_is_a_usage_error(call: Any) -> None:
    called = call("run", "fake", "--rang", "3")
    assert called.status == 2
    assert "--rang" in called.err
    assert "rmopt run fake --help" in called.err


@pytest.mark.parametrize("seed", ["-1", str(2**32), "one"])
def test_seed_is_checked(call: Any, seed: str) -> None:
    called = call("run", "fake", "--seed", seed)
    assert called.status == 2
    assert "--seed" in called.err


def test_list_shows_a_broken_plug_in_with_its_error(call: Any) -> None:
    called = call("list")
    text = " ".join(called.out.split())
    assert called.status == 0
    assert "fake Compare three methods that learn nothing." in text
    assert "broken cannot be loaded: ModuleNotFoundError: No module named 'no_such_package'" in text
    assert "Data sets digits Compare three" in text
    assert max(map(len, called.out.splitlines())) <= 80


def test_what_the_source_describes_is_listed_without_an_import(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "slow_package"
    package.mkdir()
    (package / "__init__.py").write_text("raise RuntimeError('imported')")
    (package / "runs.py").write_text(
        'def plain(run):\n    """Run at once.\n\n    And more.\n    """\n\n'
        "made = plain\n\ndef silent(run):\n    pass\n"
    )
    (package / "wrong.py").write_text("def plain(run:\n")
    monkeypatch.syspath_prepend(tmp_path)

    def listed(value: str) -> tuple[str | None, str | None]:
        entry = rmopt.cli.plugins.describe(EntryPoint("x", value, "rmopt.experiments"))
        return entry["description"], entry["error"]

    assert listed("slow_package.runs:plain") == ("Run at once.", None)
    # What only an import can tell is imported.
    for value in ("runs:made", "runs:silent", "runs:none", "none:plain"):
        assert listed(f"slow_package.{value}") == ("", "RuntimeError: imported")
    assert (listed("slow_package.wrong:plain")[1] or "").startswith("SyntaxError: ")


def test_list_for_scripts(call: Any) -> None:
    called = call("list", "--json", "--out", "here")
    content = json.loads(called.out)
    assert content == json.loads(Path("here/list.json").read_text())
    assert [entry["name"] for entry in content["datasets"]] == ["digits"]
    errors = {entry["name"]: entry["error"] for entry in content["experiments"]}
    assert errors["fake"] is None
    assert errors["broken"].startswith("ModuleNotFoundError")
    names = call("list", "--quiet").out.splitlines()
    assert names == [*sorted([*EXPERIMENTS, "number", "broken", "gone", "twice", "twice"]), "digits"]


def test_list_refuses_an_unwritable_folder(call: Any) -> None:
    Path("a-file").touch()
    called = call("list", "--out", "a-file")
    assert called.status == 2
    assert called.err.startswith("rmopt: --out: cannot write into a-file (")


def test_version_and_help(call: Any) -> None:
    assert call("--version").out.startswith("rmopt ")
    text = call("--help").out
    for command in ("list", "run", "check"):
        assert f"\n  {command}" in text
    for command in ("list", "check"):
        assert "--json" in call(command, "--help").out


class Pictured(Check):
    def plot(self, path: Path | str) -> None:
        Path(path).write_bytes(b"picture")


@pytest.fixture
def catalogue(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Stand in for the catalogue of checks; return the arguments it is called with."""
    calls: list[Any] = []
    steps = np.array([1.0, 0.1])
    sphere = Pictured("order", "Sphere(3)", True, 2.01, 2.0, "", steps, steps)
    torus = Pictured("order", "Torus", False, NAN, 2.0, "slope [1] of 2", steps, steps)
    line = Pictured("order", "Line", True, float("inf"), 3.0, "", steps, steps)
    plane = Pictured("zero", "Plane", False, 1.0212125884292985e-06, 1e-12, "it adds")

    def run_catalogue(names: list[str], seed: int) -> list[Check]:
        calls.append((names, seed))
        found = (sphere, torus, line, plane)
        return [one for one in found if one.subject in (names or ("Sphere(3)", "Torus"))]

    module = ModuleType("rmopt.checks")
    module.run_catalogue = run_catalogue  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "rmopt.checks", module)
    return calls


def test_check_fails_when_a_check_fails(call: Any, catalogue: list[Any]) -> None:
    called = call("check", "--seed", "3")
    assert (called.status, catalogue) == (1, [([], 3)])
    assert called.out.splitlines() == [
        "Sphere(3)", "  passed  order  2.01, expected 2", "Torus", "  FAILED  order  –",
        "FAILED order of Torus: slope [1] of 2", "1 of 2 checks passed.",
    ]  # fmt: skip


def test_check_rounds_what_was_measured(call: Any, catalogue: list[Any]) -> None:
    numbers = "1.021e-06, at most 1e-12"
    said = ["Plane", f"  FAILED  zero  {numbers}", f"FAILED zero of Plane: {numbers}; it adds"]
    assert call("check", "Plane").out.splitlines() == [*said, "0 of 1 checks passed."]


def test_check_passes(call: Any, catalogue: list[Any]) -> None:
    called = call("check", "Sphere(3)", "--quiet")
    assert (called.status, called.out) == (0, "1 of 1 checks passed.\n")


def test_a_slope_of_what_is_exact_is_no_missing_number(call: Any, catalogue: list[Any]) -> None:
    called = call("check", "Line")
    assert called.out.splitlines()[1] == "  passed  order  exact, expected 3"


def test_check_quiet_shows_only_failures(call: Any, catalogue: list[Any]) -> None:
    called = call("check", "--quiet")
    assert called.status == 1
    assert "Sphere" not in called.out
    assert "FAILED" in called.out


def test_check_writes_the_result_and_pictures(call: Any, catalogue: list[Any]) -> None:
    called = call("check", "--json", "--plot", "--out", "here")
    result = json.loads(called.out)
    assert called.status == 1
    assert result == json.loads(Path("here/result.json").read_text())
    assert list(result) == ["experiment", "data", "parameters", "seed", "versions", "rows"]
    assert [row["passed"] for row in result["rows"]] == [True, False]
    assert result["rows"][1]["measured"] is None
    assert sorted(path.name for path in Path("here").glob("*.png")) == [
        "1-order-Sphere-3.png",
        "2-order-Torus.png",
    ]


def test_check_of_nothing_is_an_error(call: Any, catalogue: list[Any]) -> None:
    called = call("check", "Cube", "--out", "here")
    assert called.status == 2
    assert called.err.startswith("rmopt: no check matches Cube")
    assert not Path("here").exists()


def test_a_warning_is_a_line_without_a_place_in_the_source(tmp_path: Path) -> None:
    lines = [f"{number % 2},{number},{number % 3}" for number in range(40)]
    (tmp_path / "a.csv").write_text("label,x,z\n" + "\n".join(lines), encoding="utf-8")
    (tmp_path / "notes.txt").write_text("none", encoding="utf-8")
    command = [sys.executable, "-m", "rmopt.cli", "fit", "similarity", ".", "--rank", "1", "--out", "learned"]
    said = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert said.stderr.startswith("rmopt: warning: not read from .: learned/, notes.txt. A stream reads")
    assert "stream.py" not in said.stderr


def test_a_warning_is_told_once(call: Any) -> None:
    for _ in range(2):
        assert call("run", "worried").err == "rmopt: warning: it is late\nrmopt: warning: it is later\n"


def test_streams_that_the_shell_closed_are_written_for_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as closed:
        closed.setattr(sys, "stdout", None)
        closed.setattr(sys, "stderr", None)
        with pytest.raises(SystemExit) as ended:
            main(["--version"])
        sys.stdout.close()
        sys.stderr.close()
    assert not ended.value.code
