"""The docs keep to the code: commands parse, docstrings are complete, every public module has a page."""

import ast
import doctest
import importlib
import importlib.util
import inspect
import os
import pydoc
import re
import runpy
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from numpydoc.validate import validate
from tabled import each_row

import rmopt
from rmopt.cli.commands import app

ROOT = Path(__file__).parents[2]
LIBRARY = Path(rmopt.__file__).parents[1]
PAGES = [*sorted((ROOT / "docs").rglob("*.md")), ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
PAGES = [page for page in PAGES if "_build" not in page.parts]
REFERENCE = (ROOT / "docs" / "api" / "index.rst").read_text(encoding="utf-8")
LISTED = re.findall(r"^   ((?:rmopt|problems)[a-z._]+)$", REFERENCE, flags=re.MULTILINE)
# Classes of torch's optimisers are there where torch is.
MODULES = [name for name in LISTED if name != "rmopt.torch" or importlib.util.find_spec("torch")]
BASES = re.findall(r"^   ((?:rmopt|problems)[a-z._]+\.[A-Z]\w+)$", REFERENCE, flags=re.MULTILINE)

# Summaries, order and names of parameters, and sections that are there: all but examples and cross-references.
LAWS = {
    *("GL01", "GL02", "GL03", "GL05", "GL06", "GL07", "GL08", "GL09", "GL10"),
    *("SS01", "SS02", "SS03", "SS04", "SS05"),
    *("PR02", "PR03", "PR04", "PR05", "PR06", "PR09", "PR10", "RT02", "RT04", "RT05"),
}


def commands() -> Iterator[tuple[str, str]]:
    """Yield every command of rmopt that a page shows, with the page's name; one page names those that are gone.

    What was measured with version 0.2 is said so, and not asked of this one.
    """
    for page in (page for page in PAGES if page.stem != "earlier_versions"):
        text = page.read_text(encoding="utf-8")
        blocks = re.findall(r"```sh\n(.*?)```", text, flags=re.DOTALL)
        lines = [line for block in blocks for line in block.replace("\\\n", " ").splitlines()]
        lines = [line for line in lines if "measured with version 0.2" not in line]
        inline = r"`((?:mpiexec -n \d+ )?rmopt [^`]+)`(?!,? \(?measured with version 0\.2)"
        for line in [*lines, *re.findall(inline, text)]:
            for part in line.partition("#")[0].split("&&"):
                found = re.search(r"(?:^|\s)rmopt (.+)", " ".join(part.split()))
                if (
                    found
                    and "--help" not in found[1]
                    and not re.search(r"[A-Z]{3,}|…|<", found[1].replace("FOLDER", "").replace("NAME", "…"))
                ):
                    yield page.stem, found[1].strip()


@each_row(("page", "command"), sorted(set(commands())))
def test_a_command_of_the_docs_is_one(page: str, command: str) -> None:
    verb, *words = shlex.split(command)
    if verb in ("run", "fit") and words:
        group: Any = typer.main.get_command(app)
        group.commands[verb].get_command(None, words[0]).make_context(words[0], words[1:])
    else:
        typer.main.get_command(app).commands[verb].make_context(verb, words)  # type: ignore[attr-defined]


# Hours, no end, data that lie elsewhere, several processes, or what only the change on its page makes.
ELSEWHERE = (
    "--data ", "--seeds", "serve ", "FOLDER", ".csv", ".py:", "check sphere", "check positive", "check my-parts",
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(
    "command",
    sorted({command for _, command in commands() if not any(word in command for word in ELSEWHERE)}),
)
def test_a_short_command_of_the_docs_runs(command: str, tmp_path: Path) -> None:
    words = [sys.executable, "-m", "rmopt.cli", *shlex.split(command)]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def constructed() -> Iterator[tuple[str, ast.Call]]:
    """Yield the calls with keywords in lines and tables of pages, but for the one with those of other libraries."""
    for page in PAGES:
        if page.name in ("earlier_versions.md", "from_pymanopt.md"):
            continue
        text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
        for code in re.findall(r"`([A-Za-z][\w.]*\([^`\n]*=[^`\n]*\))`", text):
            call = ast.parse(code.replace("…", "..."), mode="eval").body
            if isinstance(call, ast.Call):
                yield page.name, call


def test_what_a_page_constructs_can_be_constructed() -> None:
    """Arguments that a page leaves out are 1; of a call with variables of a reader only keywords are looked at."""
    known = {path.rpartition(".")[2]: thing for path, thing in listed().items() if inspect.isclass(thing)}

    def value(argument: ast.expr) -> Any:
        try:
            return eval(ast.unparse(argument), dict(known))
        except NameError:
            return ...

    wrong, seen = [], 0
    for page, call in constructed():
        kind = known.get(ast.unparse(call.func).rpartition(".")[2])
        if kind is None:
            continue
        first, given = list(map(value, call.args)), {str(one.arg): value(one.value) for one in call.keywords}
        signature = inspect.signature(kind)
        needed = [one.name for one in signature.parameters.values() if one.default is one.empty]
        try:
            signature.bind_partial(*first, **given)
            if ... not in (*first, *given.values()):
                kind(*first, **dict.fromkeys(needed[len(first) :], 1) | given)
                for name in given:
                    getattr(kind, "_parameters", {}).get(name, lambda *_: None)(name, given[name])
        except Exception as error:
            wrong.append(f"{page}: {ast.unparse(call)}: {error}")
        seen += 1
    assert not wrong, "\n".join(wrong)
    assert seen > 30


def test_there_are_commands() -> None:
    assert len(set(commands())) > 40


def test_citation_and_changelog_are_of_this_version() -> None:
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    last = re.findall(r"^## \[(\d\S*)\] - (\S+)$", changes, re.MULTILINE)[0]
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    said = re.findall(r"^(?:version|date-released): (\S+)$", citation, re.MULTILINE)
    assert said == [rmopt.__version__, last[1]]
    assert last[0] == rmopt.__version__


@each_row("page", PAGES)
def test_files_that_a_page_names_are_there(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for name in re.findall(r"\b((?:tests|tutorials|rmopt|problems)/[\w/.]+\.py)\b", text):
        assert any((root / name).exists() for root in (ROOT, LIBRARY)), (
            f"{page.name} names {name}, which is not there."
        )
    for name in re.findall(r"`(test_\w+)`", text):
        assert any(
            f"def {name}(" in test.read_text(encoding="utf-8") for test in (ROOT / "tests").rglob("*.py")
        ), name


def public(module: str) -> Iterator[tuple[str, Any]]:
    """Yield the public classes and functions of a module, and the methods that they bring themselves."""
    home = importlib.import_module(module)
    for name in home.__all__:
        thing = getattr(home, name)
        if not (inspect.isclass(thing) or inspect.isfunction(thing)):
            continue
        path = f"{thing.__module__}.{thing.__qualname__}"
        yield path, thing
        if inspect.isclass(thing):
            own = vars(thing).items()
            yield from (
                (f"{path}.{key}", value)
                for key, value in own
                if key[0] != "_" and inspect.isfunction(value) and not value.__module__.startswith("sklearn")
            )


@each_row("module", MODULES)
def test_docstrings_keep_to_numpydoc(module: str) -> None:
    wrong = []
    for path, thing in public(module):
        # An override inherits the docstring of what it overrides.
        found = [
            error for error in validate(path)["errors"] if error[0] != "GL08" or not inspect.getdoc(thing)
        ]
        wrong += [f"{path}: {code} {text}" for code, text in found if code in LAWS]
        whole = inspect.isclass(thing) or "." not in getattr(thing, "__qualname__", path)
        plain = (
            inspect.isclass(thing) and issubclass(thing, Exception | str) and "__init__" not in vars(thing)
        )
        if whole and not plain and not getattr(thing, "_is_protocol", False):
            # An entry of a base class will do, since the reference shows it there.
            family = thing.__mro__ if inspect.isclass(thing) else [thing]
            doc = "\n".join(inspect.cleandoc(one.__doc__ or "") for one in family)
            missing = [name for name in inspect.signature(thing).parameters if not described(name, doc)]
            wrong += [f"{path}: {', '.join(missing)} not described"] if missing else []
    assert not wrong, "\n".join(wrong)


def described(parameter: str, doc: str) -> bool:
    """Return whether a docstring has an entry for a parameter, among parameters or attributes."""
    return bool(re.search(rf"^(?:.*, )?\*{{0,2}}{parameter}(?:, .*)? : ", doc, flags=re.MULTILINE))


def test_the_reference_lists_every_public_package() -> None:
    packages = {
        f"{top}.{path.parent.name}"
        for top in ("rmopt", "problems")
        for path in (LIBRARY / top).glob("*/__init__.py")
        if "__all__" in path.read_text(encoding="utf-8")
    }
    assert packages - {"rmopt.cli"} <= set(LISTED)


@pytest.mark.parametrize(
    ("page", "library"),
    [
        ("howto/jax_loss.py", "jax"),
        ("howto/torch_loss.py", "torch"),
        ("howto/device.py", "torch"),
        ("howto/low_rank_layer.py", "torch"),
        ("howto/lora.py", "torch"),
        ("howto/orthogonal_layer.py", "torch"),
        ("howto/hyperbolic_table.py", "torch"),
    ],
)
def test_a_script_that_a_page_shows_runs(page: str, library: str) -> None:
    pytest.importorskip(library, reason=f"{library} is not installed.")
    runpy.run_path(str(ROOT / "docs" / page))


@pytest.mark.slow
def test_hospitals_are_processes(tmp_path: Path) -> None:
    pytest.importorskip("mpi4py", reason="mpi4py is not installed.")
    mpiexec, script = Path(sys.executable).with_name("mpiexec"), ROOT / "docs" / "howto" / "hospitals.py"
    done = subprocess.run(
        [mpiexec, "-n", "2", sys.executable, script], check=True, capture_output=True, text=True, cwd=tmp_path
    )
    assert done.stdout.count("weights stay here") == 6
    assert float(re.findall(r"neighbours: (\S+)", done.stdout)[0]) < 0.01


# Beside both columns of links a browser of 1280 pixels shows so many characters of code.
WIDEST = 88


def blocks(page: Path) -> Iterator[tuple[int, str]]:
    """Yield the lines of code on a page, with their numbers; what is printed may be longer."""
    inside = None
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
        fence = re.match(r"\s*```(\w*)$", line)
        if fence:
            inside = fence[1] or None
        elif inside in ("python", "sh") and (inside == "sh" or re.match(r"\s*(>>>|\.\.\.)", line)):
            yield number, line


@each_row(
    "page", [page for page in PAGES if ROOT / "docs" in page.parents and page.parent.name != "measured"]
)
def test_code_fits_beside_the_columns_of_a_page(page: Path) -> None:
    wide = [number for number, line in blocks(page) if len(line) > WIDEST]
    assert not wide, f"{page.name}: lines {wide} of code are longer than {WIDEST} characters."


@each_row("page", PAGES)
def test_no_line_ends_a_formula(page: Path) -> None:
    """A line of a formula that begins with a minus is an item of a list, and the formula is text."""
    text = page.read_text(encoding="utf-8")
    text = re.sub(r"```.*?```|`[^`\n]*`|\$\$.*?\$\$", "", text, flags=re.DOTALL)
    cut = [part for part in re.split(r"\n\s*\n|\n(?=\s*[-+*>|] )", text) if part.count("$") % 2]
    assert not cut, f"{page.name}: {cut[0]}"


def listed() -> dict[str, Any]:
    """Return the public classes, functions and methods of the reference by their paths, each once."""
    return {path: thing for module in ["rmopt", *MODULES] for path, thing in public(module)}


def own_doc(thing: Any) -> str:
    """Return the docstring of a class, function or method, not that of a class above it."""
    return (vars(thing)["__doc__"] if inspect.isclass(thing) else thing.__doc__) or ""


def section(name: str, doc: str) -> str:
    """Return what stands below a heading of a docstring."""
    found = re.search(rf"{name}\n *-+\n(.*?)(?:\n *\n|$)", doc, flags=re.DOTALL)
    return found[1] if found else ""


def shown(module: str, name: str) -> bool:
    """Return whether the reference, or that of another library, has a page or a paragraph for a name."""
    for full in (f"{module}.{name}", name):
        home, _, last = full.rpartition(".")
        if full in BASES or (home in MODULES and last in importlib.import_module(home).__all__):
            return True
        place, _, owner = home.rpartition(".")
        if place in MODULES and hasattr(getattr(importlib.import_module(place), owner, None), last):
            return True
    other = name.partition(".")[0] not in ("rmopt", "problems") and "." in name
    return other and pydoc.locate(name) is not None


def test_see_also_leads_to_pages_that_are_there() -> None:
    wrong = []
    for module in MODULES:
        home = importlib.import_module(module)
        for name in home.__all__:
            if not (inspect.isclass(getattr(home, name)) or inspect.isfunction(getattr(home, name))):
                continue
            links = re.findall(
                r"^ *([\w., ]+?) : ", section("See Also", own_doc(getattr(home, name))), re.MULTILINE
            )
            wrong += [
                f"{module}.{name}: {link}"
                for line in links
                for link in line.split(", ")
                if not shown(module, link)
            ]
    assert not wrong, "\n".join(wrong)


def bibliography() -> Iterator[tuple[str, str]]:
    """Yield the titles of the bibliography in small letters, with their DOIs."""
    entries = (ROOT / "docs" / "references.bib").read_text(encoding="utf-8").split("\n@")
    for entry in entries:
        title = re.search(r"\btitle = \{((?:[^{}]|\{[^{}]*\})*)\}", entry)
        assert title, entry
        doi = re.search(r"doi = \{(.*?)\}", entry)
        plain = title[1].replace("--", "–").replace("\\&", "&").translate({ord("{"): None, ord("}"): None})
        yield plain.lower(), doi[1] if doi else ""


def test_what_docstrings_cite_is_in_the_bibliography() -> None:
    known, wrong = dict(bibliography()), []
    for path, thing in listed().items():
        text = " ".join(section("References", own_doc(thing)).split())
        # What follows the year of one paper, up to the year of the next, has one title of the bibliography in it.
        for cited, link in re.findall(r"(.+?)\b(?:19|20)\d\d\)?(?:, (https://\S+|arXiv:\S+))?", text):
            titles = [title for title in known if title in cited.lower()]
            doi = link.rstrip(".,").removeprefix("https://doi.org/")
            if not titles or (link.startswith("https://doi") and doi not in map(known.get, titles)):
                wrong.append(f"{path}: {cited} {link}")
    assert not wrong, "\n".join(wrong)


def test_every_base_class_has_a_page() -> None:
    ours = {thing for thing in listed().values() if inspect.isclass(thing)}
    bases = {
        base for thing in ours for base in thing.__mro__ if base.__module__.startswith(("rmopt", "problems"))
    }
    without = {f"{base.__module__}.{base.__name__}" for base in bases - ours if base.__name__[0] != "_"}
    assert without <= set(BASES), sorted(without - set(BASES))


# Libraries that lines marked +SKIP need. Others need several processes, or change what later tests see.
LIBRARIES = {
    "Jax": "jax", "jax_cost": "jax", "jax_residuals": "jax", "Torch": "torch", "torch_cost": "torch",
    "torch_residuals": "torch", "RiemannianAdam": "torch", "RiemannianSGD": "torch",
}  # fmt: skip
NEVER = {"MPIWorld", "register"}


def can_run(thing: Any) -> bool:
    """Return whether what the lines marked +SKIP need is here: a file of data, or a library."""
    if hasattr(thing, "source"):
        return "RMOPT_DATA_HOME" in os.environ and thing.source.there() is not None
    name = thing.__name__
    return name not in NEVER and importlib.util.find_spec(LIBRARIES[name]) is not None


@pytest.mark.filterwarnings("default")
@each_row(("path", "thing"), listed().items())
def test_an_example_of_a_docstring_runs(path: str, thing: Any) -> None:
    doc = own_doc(thing)
    if "# doctest: +SKIP" in doc and can_run(thing):
        doc = doc.replace("# doctest: +SKIP", "")
    # What an example uses it imports: readers copy it.
    names = {"__name__": "__main__"}
    examples = doctest.DocTestParser().get_doctest(doc, names, path, None, None)
    said: list[str] = []
    doctest.DocTestRunner(verbose=False).run(examples, out=said.append)
    assert not said, "".join(said)
