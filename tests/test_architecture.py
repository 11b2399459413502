"""The house: who may import whom, and what `import rmopt` loads."""

import ast
import copy
import pickle
import subprocess
import sys
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import rmopt
from rmopt.costs import hinge
from rmopt.kernels import vectors

# Where the packages are: the checkout, or where a wheel was installed.
ROOT = Path(rmopt.__file__).parents[1]

# A file imports only from lower floors, or from its own room. Below the ground is what needs nothing of ours.
FLOORS = {
    "rmopt.errors": -1, "rmopt.files": -1, "rmopt.namespaces": -1,
    "rmopt.kernels": 0, "rmopt.linalg": 0,
    "rmopt.core": 1,
    "rmopt.retractions": 2,
    "rmopt.manifolds": 3, "rmopt.costs": 3,
    "rmopt.engines": 4,
    "rmopt.solvers": 5, "rmopt.checks": 5, "rmopt.interop": 5, "rmopt.torch": 5,
    "rmopt.testing": 6, "rmopt.experiments": 6, "rmopt.cli": 6,
    "problems": 7,
}  # fmt: skip
# Within a floor: files name errors; costs and manifolds are neighbours that do not meet; checks use solvers.
ALLOWED = {
    ("rmopt.files", "rmopt.errors"), ("rmopt.namespaces", "rmopt.errors"),
    ("rmopt.checks", "rmopt.solvers"),
    ("rmopt.interop", "rmopt.solvers"), ("rmopt.cli", "rmopt.experiments"),
}  # fmt: skip


def room(module: str) -> str | None:
    return next(
        (name for name in sorted(FLOORS, key=len, reverse=True) if (module + ".").startswith(name + ".")),
        None,
    )


def imports(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
    return found


SOURCES = sorted(
    path
    for package in ("rmopt", "problems")
    for path in (ROOT / package).rglob("*.py")
    if path.name != "__main__.py"
)


def test_floors() -> None:
    wrong = []
    for path in SOURCES:
        name = module(path)
        here = room(name)
        if here is None:
            wrong += [f"{name} has no floor; add it to FLOORS."] if name != "rmopt" else []
            continue
        for target in sorted(imports(path)):
            there = room(target)
            if there is None or there == here or (here, there) in ALLOWED:
                continue
            if FLOORS[there] >= FLOORS[here]:
                wrong.append(f"{name} (floor {FLOORS[here]}) imports {target} (floor {FLOORS[there]})")
    assert len(SOURCES) > 100
    assert not wrong, (
        "floors import downward only, so that a lower floor can be read and used without the upper ones:\n"
        + "\n".join(wrong)
    )


def module(path: Path) -> str:
    """Return the dotted name of a file."""
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


# What a plug-in may import beside the packages of the reference: checks of arguments, arrays,
# seeds, processes and files, what kernels are made of, and engines to build upon.
OPEN = {
    "rmopt.core.ambient", "rmopt.core.arguments", "rmopt.core.matrices", "rmopt.core.memo", "rmopt.core.points",
    "rmopt.core.streams", "rmopt.core.values", "rmopt.core.world", "rmopt.costs.bilinear", "rmopt.costs.graph",
    "rmopt.costs.log_det", "rmopt.engines.base", "rmopt.engines.bilinear", "rmopt.engines.log_det", "rmopt.errors",
    "rmopt.files", "rmopt.linalg", "rmopt.solvers.save", "rmopt.solvers.threads",
    "rmopt.core.runs", "rmopt.solvers.stochastic.continued", "rmopt.solvers.stochastic.step_sizes",
}  # fmt: skip


def test_problems_take_open_rooms_alone() -> None:
    wrong = {
        f"{path.relative_to(ROOT)}: {target}"
        for path in SOURCES
        if room(module(path)) == "problems"
        for target in imports(path)
        if target.startswith("rmopt.") and target not in OPEN and not target.startswith("rmopt.kernels")
        if not (ROOT / target.replace(".", "/") / "__init__.py").exists()
        if target not in ("rmopt.experiments", "rmopt.checks.catalogue")
    }
    assert not wrong, "\n".join(sorted(wrong))


def test_imports_run_in_no_circle() -> None:
    """Those within functions count, for they say as well what cannot be read on its own."""
    names = {module(path) for path in SOURCES}
    arrows = {}
    for path in SOURCES:
        found = set()
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module:
                for alias in node.names:
                    whole = f"{node.module}.{alias.name}"
                    found.add(whole if whole in names else node.module)
        arrows[module(path)] = (found & names) - {module(path)}
    with_arrows = TopologicalSorter(arrows)
    try:
        with_arrows.prepare()
    except CycleError as circle:
        pytest.fail(" -> ".join(circle.args[1]))


def test_rooms_of_solvers() -> None:
    """The loop knows no solver; solvers of the whole cost and of some terms know none of each other."""
    above = {
        "": set(),
        "batch": {""},
        "stochastic": {""},
        "certified": {"", "batch"},
        "gossip": {"", "stochastic"},
    }
    home, wrong = ROOT / "rmopt" / "solvers", []
    for path in (one for one in SOURCES if home in one.parents and one.name != "__init__.py"):
        here = path.parent.name if path.parent != home else ""
        for target in imports(path):
            parts = target.split(".")[2:] if target.startswith("rmopt.solvers.") else []
            there = parts[0] if len(parts) > 1 else ""
            if parts and there != here and there not in above[here]:
                wrong.append(f"{path.stem} imports {target}")
    assert not wrong


# Imports in one process, and what none of them and of those above it loads.
LIGHT = {
    "rmopt.torch": {"torch", "numpy"},
    "rmopt.cli.commands": {"numpy"},
    "rmopt, rmopt.interop": {"numba", "sklearn", "matplotlib", "pymanopt", "autograd", "scipy"},
    "rmopt.cli, rmopt.experiments": {"scipy", "sklearn", "matplotlib", "pymanopt", "autograd"},
    "problems.similarity": {"numba", "sklearn.neighbors", "sklearn.linear_model", "matplotlib"},
    "rmopt.solvers, rmopt.manifolds, rmopt.costs, rmopt.checks": {"pymanopt", "autograd"},
}


def test_imports_are_light() -> None:
    script = [f"import {names}; print(sorted({heavy} & set(sys.modules)))" for names, heavy in LIGHT.items()]
    command = [sys.executable, "-c", "\n".join(["import sys", *script])]
    assert subprocess.check_output(command, text=True) == "[]\n" * len(LIGHT)


WITHOUT = """
import sys, rmopt
sys.modules.update(dict.fromkeys(("pymanopt", "autograd", "jax", "torch")))
for use in (
    "from rmopt.interop import from_pymanopt", "rmopt.autograd_cost(len)", "rmopt.autograd_residuals(len)",
    "rmopt.jax_cost(len)", "rmopt.torch_cost(len)", "rmopt.torch.RiemannianSGD",
):
    try:
        exec(use)
    except rmopt.errors.MissingCapabilityError as error:
        print(error)
"""


def test_what_needs_an_extra_names_it() -> None:
    done = subprocess.run([sys.executable, "-c", WITHOUT], capture_output=True, text=True, check=True)
    extras = ("pymanopt", "autograd", "autograd", "jax", "torch", "torch")
    for said, extra in zip(done.stdout.splitlines(), extras, strict=True):
        assert said.endswith(f'pip install "rmopt[{extra}]".')


def test_loops_that_wait_for_numba_are_themselves_after_copying() -> None:
    assert pickle.loads(pickle.dumps(vectors.dot)) is vectors.dot is copy.deepcopy(vectors.dot)
    assert pickle.loads(pickle.dumps(hinge)) == hinge == copy.deepcopy(hinge)
