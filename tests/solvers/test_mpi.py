"""Agents on separate processes: the same bits as in one, few bytes, and a killed process can be resumed."""

import json
import os
import runpy
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from workers_by_mpi import STEPS, learned

from rmopt.core import MissingCapabilityError
from rmopt.costs.graph import as_graph
from rmopt.solvers import MPIWorld

pytest.importorskip("mpi4py", reason="mpi4py is not installed.")
MPIEXEC = Path(sys.executable).with_name("mpiexec")
if not MPIEXEC.exists():
    pytest.skip(
        "mpiexec is not beside the interpreter: install mpich from the package index.",
        allow_module_level=True,
    )

HOME = f"import sys\nsys.path.append({str(Path(__file__).parents[1])!r})\n"
SCRIPT = (
    HOME
    + """
import json
import numpy as np
from low_rank_agents import low_rank_tasks
from problems.subspace import GossipPlan, agree, gossip
from rmopt.solvers import MPIWorld, World

world = MPIWorld() if sys.argv[1] == "mpi" else World()
assert sys.argv[1] == "one" or world.communicator == MPIWorld().communicator
tasks = low_rank_tasks(40, 240, 2, 6, world, seed=3)
out = {}
for variant in ("stochastic", "precon-parallel"):
    plan = GossipPlan(variant=variant, graph="ring", n_epochs=30, init="independent")
    found = gossip(tasks, 2, plan, 1, world=world)
    out[variant] = [point.tolist() for point in found.points]
    out[variant + " traffic"] = [found.messages, found.bytes, found.result.steps]
found = agree(tasks, 1, 1, graph="ring", world=world)
out["tree"] = [found.mean.tobytes().hex(), found.result.counts, found.messages, found.bytes]
assert world.first(found.mean.tobytes()) == found.mean.tobytes()
out["here"] = tasks.here
if world.rank == 0:
    with open(sys.argv[2], "w") as stream:
        json.dump(out, stream)
"""
)


def run(tmp_path: Path, processes: int) -> dict:
    script, out = tmp_path / "agents.py", tmp_path / f"{processes}.json"
    script.write_text(SCRIPT)
    if not processes:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sys, "argv", [str(script), "one", str(out)])
            runpy.run_path(str(script))
        return json.loads(out.read_text())
    command = [str(MPIEXEC), "-n", str(processes), sys.executable, str(script), "mpi", str(out)]
    subprocess.run(
        command, check=True, capture_output=True, timeout=300, env=os.environ | {"OMP_NUM_THREADS": "1"}
    )
    return json.loads(out.read_text())


@pytest.mark.parametrize("processes", [2, pytest.param(6, marks=pytest.mark.slow)])
def test_any_number_of_processes_gives_the_points_of_one(tmp_path: Path, processes: int) -> None:
    alone = run(tmp_path, 0)
    assert alone["here"] == [0, 1, 2, 3, 4, 5]
    found = run(tmp_path, processes)
    assert found["here"] == list(range(6 // processes))
    for variant in ("stochastic", "precon-parallel"):
        gap = np.abs(np.array(found[variant]) - np.array(alone[variant])).max()
        assert gap < 1e-12
        messages, sent, _ = found[variant + " traffic"]
        # A message is one basis, and nothing else.
        assert sent == messages * 8 * 40 * 2
    agents = 6 // processes
    edges = [edge for level in as_graph("ring", 6).tree for edge in level]
    crossings = sum(agent // agents != parent // agents for agent, parent in edges)
    bits, counts, messages, sent = found["tree"]
    assert [bits, counts] == alone["tree"][:2]
    # Up and down the tree once each time, where it leads to another process; which of two parents as near an agent
    # has depends on scipy. A message is a value, or a gradient and a curvature; three gradients turn the column.
    ways, costs, gradients = 2 * crossings, counts["costs"], counts["gradients"] + 3
    assert messages == ways * (costs + gradients)
    assert sent == ways * 8 * (costs + 41 * gradients)
    messages, _, steps = found["stochastic traffic"]
    if processes == 6:
        assert messages == 2 * steps
    else:
        assert 0 < messages < steps


def workers(out: Path, processes: int, *words: object) -> list[str]:
    script = Path(__file__).parents[1].joinpath("workers_by_mpi.py")
    return [str(MPIEXEC), "-n", str(processes), sys.executable, str(script), str(out), *map(str, words)]


def assert_as_in_threads(out: Path, steps: int = STEPS) -> None:
    alone = learned(steps)
    with np.load(out) as found:
        assert found["updates"] == alone.updates
        for name, array in vars(alone.point).items():
            np.testing.assert_array_equal(found[name], array)


@pytest.mark.parametrize("processes", [2, *(pytest.param(n, marks=pytest.mark.slow) for n in (1, 3, 4, 8))])
def test_workers_in_processes_give_the_bits_of_threads(tmp_path: Path, processes: int) -> None:
    # Neither end is a step at which workers meet, and the second run begins at that of the first.
    run = workers(tmp_path / "out.npz", processes, "2900,5400", tmp_path / "saved.npz")
    subprocess.run(run, check=True, capture_output=True, timeout=300)
    assert_as_in_threads(tmp_path / "out.npz", 5_400)


@pytest.mark.slow
@pytest.mark.parametrize("processes", [2, 4, 8])
def test_workers_of_which_one_is_killed_are_resumed(tmp_path: Path, processes: int) -> None:
    out, saved, kills = tmp_path / "out.npz", tmp_path / "saved.npz", 0
    moments, steps = np.random.default_rng(processes), 40 * STEPS
    for _ in range(20):
        with subprocess.Popen(
            workers(out, processes, steps, saved), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        ) as started:
            before = saved.stat().st_mtime_ns if saved.exists() else 0
            while started.poll() is None and not (saved.exists() and saved.stat().st_mtime_ns > before):
                time.sleep(0.002)
            time.sleep(moments.uniform(0.0, 0.5))
            found = subprocess.run(
                ["pgrep", "-f", f"^{sys.executable} .*workers_by_mpi.* {out}"], capture_output=True, text=True
            )
            if started.poll() is None:
                os.kill(int(moments.choice(found.stdout.split())), signal.SIGKILL)
            kills += started.wait(timeout=120) != 0
        if out.exists():
            break
    subprocess.run(workers(out, processes, steps, saved), check=True, capture_output=True, timeout=300)
    assert_as_in_threads(out, steps)
    print(f"{kills} kills, 0 differing bits")
    assert kills > 0


def test_all_end_where_one_fails(tmp_path: Path) -> None:
    script = tmp_path / "one_fails.py"
    # A loop of MPI itself lets no handler of signals run: nothing but kill -9 would end it.
    script.write_text(
        "import signal, sys\nimport rmopt.core.world as worlds\n"
        "signal.signal(signal.SIGTERM, lambda *signal: sys.exit(143))\n"
        "world = worlds.MPIWorld()\nassert world.everywhere(world.rank) == [0, 1]\n"
        "if world.rank == 1:\n    raise FileNotFoundError('patients.csv')\n"
        "world.everywhere(0)\n"
    )
    command = ["timeout", "60", str(MPIEXEC), "-n", "2", sys.executable, str(script)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode not in (0, 124)
    assert done.stderr.count("FileNotFoundError: patients.csv") == 1


KILLED = (
    HOME
    + """
import numpy as np
from low_rank_agents import low_rank_tasks
from problems.subspace import GossipPlan, gossip
from rmopt.solvers import MPIWorld

world = MPIWorld()
tasks = low_rank_tasks(100, 2400, 5, 3, world)
plan = GossipPlan(1e3, n_epochs=2000, init="independent")
found = gossip(tasks, 5, plan, 0, checkpoint=sys.argv[1], world=world)
if world.rank == 0:
    np.save(sys.argv[2], found.mean)
"""
)


@pytest.mark.slow
def test_a_killed_process_and_a_resumed_run_end_as_if_nothing_had_happened(tmp_path: Path) -> None:
    (tmp_path / "killed.py").write_text(KILLED)

    def command(name: str) -> list[str]:
        files = [str(tmp_path / f"{name}.npz"), str(tmp_path / f"{name}.npy")]
        return [str(MPIEXEC), "-n", "3", sys.executable, str(tmp_path / "killed.py"), *files]

    subprocess.run(command("whole"), capture_output=True, timeout=300, check=True)
    with subprocess.Popen(command("part"), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as started:
        deadline = time.monotonic() + 120
        while not (tmp_path / "part.npz").exists() and time.monotonic() < deadline:
            time.sleep(0.002)
        agents = subprocess.run(
            ["pgrep", "-f", f"{Path(sys.executable).name}.*killed.py {tmp_path}/part"],
            capture_output=True,
            text=True,
        )
        os.kill(max(int(pid) for pid in agents.stdout.split() if int(pid) != started.pid), signal.SIGKILL)
        assert started.wait(timeout=120) != 0
    assert not (tmp_path / "part.npy").exists()
    subprocess.run(command("part"), capture_output=True, timeout=300, check=True)
    assert np.array_equal(np.load(tmp_path / "part.npy"), np.load(tmp_path / "whole.npy"))


def test_without_mpi4py_there_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mpi4py", None)
    with pytest.raises(MissingCapabilityError, match=r'pip install "rmopt\[mpi\]"'):
        MPIWorld()
