"""What the checkpoint of a stream knows: processes, files, names, passes and words of vectorizers."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from worlds import Alike, Room

from problems.data import stream
from problems.ranking import LoretaLabelRanker
from problems.similarity import LoretaSimilarity
from problems.streaming import Similarity
from problems.subspace import GossipPlan, MatrixCompletion, agree, gossip
from rmopt import InvalidInputError, Problem
from rmopt.costs import GossipCost, Graph
from rmopt.experiments import Run
from rmopt.manifolds import Grassmann, Product
from rmopt.solvers import Checkpoint, Gossip, MaxSeconds, MaxSteps, World
from rmopt.solvers.save import Saver


def test_the_states_of_several_processes_are_one_file(tmp_path: Path) -> None:
    path = tmp_path / "run.npz"

    def saver(world: World) -> Saver:
        return Saver("checkpoint", Checkpoint(path, every_steps=10), world)

    def saved(world: World) -> Any:
        state = np.full((2, 3, 4), world.rank).transpose(1, 2, 0)
        saver(world).save({"x": state, "y.z": np.ones(2)}, {"seed": 7}, 90, rows=[world.rank])
        arrays, about = saver(world).load({"seed": 7})  # type: ignore[misc]
        assert (arrays["x"] == world.rank).all()
        assert arrays["x"].strides == state.strides
        return saver(world).seed(), about["rows"], about["step"]

    assert Room.together(2, saved) == [(7, [0], 90), (7, [1], 90)]
    assert [file.name for file in tmp_path.iterdir()] == ["run.npz"]
    with pytest.raises(InvalidInputError, match="another run: its number of processes is 2, not 1"):
        saver(World()).load({"seed": 7})
    two = saver(Alike(2))
    assert (two.pause_after(7), two.due(20), two.due(21)) == (10, True, False)


X = np.random.default_rng(0).standard_normal((90, 6))
y = np.arange(90) % 3


def chunks(n: int, X: Any = X, y: Any = y) -> list[tuple[Any, Any]]:
    return [(X[30 * i : 30 * i + 30], y[30 * i : 30 * i + 30]) for i in range(n)]


def files(folder: Path, **how: Any) -> Any:
    folder.mkdir(exist_ok=True)
    for number, (part, labels) in enumerate(chunks(3)):
        np.savez(folder / f"{number}.npz", X=part, y=labels)
    return stream(folder, batch_size=30, **how)


def test_resume_says_that_there_is_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files(tmp_path / "data")
    (tmp_path / "out").mkdir()

    def learned() -> Any:
        run = Run("similarity", seed=0, out=tmp_path / "out")
        return Similarity(files=tmp_path / "data", rank=2, resume=True)(run)

    told = learned()
    assert "There is no checkpoint in" in capsys.readouterr().out
    # What made the model, and nothing that did not.
    assert told.parameters["epochs"] == 1
    again = learned()
    assert "checkpoint" not in capsys.readouterr().out
    # Nothing was left to learn, and the time before counts.
    assert again.rows[0]["train_seconds"] >= told.rows[0]["train_seconds"] > 0.0


def bits(found: LoretaSimilarity) -> bytes:
    return found.transform(X[:5]).tobytes()


def model(**how: Any) -> LoretaSimilarity:
    return LoretaSimilarity(rank=2, random_state=0, **how)


def test_all_cores_are_as_many_as_a_machine_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("problems.threads.cpu_count", lambda: 2)
    model(n_jobs=-1, checkpoint=tmp_path / "run.npz").fit_stream(chunks(1))
    model(n_jobs=2, checkpoint=tmp_path / "run.npz").fit_stream(chunks(2))
    monkeypatch.setattr("problems.threads.cpu_count", lambda: 1)
    with pytest.raises(InvalidInputError, match="its n_jobs is 2, not 1"):
        model(n_jobs=-1, checkpoint=tmp_path / "run.npz").fit_stream(chunks(3))


@pytest.mark.parametrize(
    ("kind", "other"), [(LoretaSimilarity, {"max_iter": 7}), (LoretaLabelRanker, {"n_epochs": 7, "top_k": 1})]
)
def test_parameters_of_fit_alone_do_not_matter_to_a_stream(kind: Any, other: Any, tmp_path: Path) -> None:
    shown = [(part, labels if kind is LoretaSimilarity else np.eye(3)[labels]) for part, labels in chunks(2)]
    kind(2, random_state=0, checkpoint=tmp_path / "run.npz").fit_stream(shown[:1])
    resumed = kind(2, random_state=0, checkpoint=tmp_path / "run.npz", **other).fit_stream(shown)
    whole = kind(2, random_state=0).fit_stream(shown)
    assert resumed.model_.point.U.tobytes() == whole.model_.point.U.tobytes()


WORDS = np.array(["ape", "bee", "cat"])[y]


@pytest.mark.parametrize("kind", ["text", "object", "category", "nullable", "frame"])
def test_chunks_of_pandas_are_known_again(kind: str, tmp_path: Path) -> None:
    def made(n: int) -> Iterator[tuple[Any, Any]]:
        for part, number in zip(np.split(X, 3)[:n], range(3), strict=False):
            words = "".join(WORDS[30 * number : 30 * number + 30])
            labels = pd.Series([words[3 * i : 3 * i + 3] for i in range(30)])
            if kind in ("object", "category"):
                labels = labels.astype(kind)
            if kind == "nullable":
                labels = pd.Series(y[:30]).astype("Int64")
            yield (
                (pd.DataFrame(part, columns=list("abcdef")).convert_dtypes() if kind == "frame" else part),
                labels,
            )

    model(checkpoint=tmp_path / "run.npz").fit_stream(made(2))
    again = model(checkpoint=tmp_path / "run.npz").fit_stream(made(3))
    assert again.model_.point.U.tobytes() == model().fit_stream(made(3)).model_.point.U.tobytes()


def test_sparse_chunks_with_other_row_lengths_are_others(tmp_path: Path) -> None:
    some = sp.csr_array(X)
    model(checkpoint=tmp_path / "run.npz").fit_stream(chunks(1, some))
    ends = some.indptr.copy()
    ends[1] -= 1
    other = sp.csr_array((some.data, some.indices, ends), shape=some.shape)
    with pytest.raises(InvalidInputError, match="the first 1 chunks are not those"):
        model(checkpoint=tmp_path / "run.npz").fit_stream(chunks(2, other))


def test_names_of_features_are_kept_by_a_checkpoint(tmp_path: Path) -> None:
    frame = pd.DataFrame(X, columns=list("abcdef"))
    model(checkpoint=tmp_path / "run.npz").fit_stream(chunks(1, frame))
    turned = chunks(1, frame) + chunks(3, frame[list("fedcba")])[1:]
    with pytest.raises(InvalidInputError, match="feature names should match"):
        model(checkpoint=tmp_path / "run.npz").fit_stream(turned)
    found = model(checkpoint=tmp_path / "run.npz").fit_stream(chunks(3, frame))
    assert found.feature_names_in_.tolist() == list("abcdef")


def test_processes_that_were_told_otherwise_are_refused_before_they_start(tmp_path: Path) -> None:
    tasks = MatrixCompletion(sp.csc_array(X), n_agents=2)
    for name, other in {"n_rows": 91, "rank": "3", "seed": "1", "graph": "ring"}.items():
        for run in (
            lambda world: gossip(tasks, 2, GossipPlan(), seed=0, world=world),
            lambda world: agree(tasks, 2, seed=0, world=world),
        ):
            with pytest.raises(InvalidInputError, match=f"{name} of process 1 is .*; give all"):
                run(Alike(2, **{name: other}))
    agents = Problem(Product([Grassmann(90, 2)] * 2), GossipCost(tasks, Graph.path(2), 0.1, Grassmann(90, 2)))
    for name, other in {"budget": 7, "solver.order": "'parallel'", "random_state": 1}.items():
        with pytest.raises(InvalidInputError, match=f"{name} of process 1 is .*; give all"):
            Gossip(0.1, max_iter=5, world=Alike(2, **{name: other})).run(agents, random_state=0)


def test_processes_save_their_states_and_go_on(tmp_path: Path) -> None:
    manifold, tasks = Grassmann(90, 2), MatrixCompletion(sp.csc_array(X), n_agents=2)
    agents = Problem(Product([manifold] * 2), GossipCost(tasks, Graph.path(2), 0.1, manifold))

    def run(world: World, budget: int, seed: int | None = 0, **how: Any) -> Any:
        return Gossip(0.01, max_iter=budget, world=world).run(agents, random_state=seed, **how).point

    def together(budget: int, seed: int | None, name: str) -> Any:
        saving = Checkpoint(tmp_path / name, every_steps=10)
        return Room.together(2, lambda world: run(world, budget, seed, checkpoint=saving))[1]

    whole = run(World(), 40)
    for budget in (20, 40):
        np.testing.assert_allclose(together(budget, 0, "run.npz")[1], run(World(), budget)[1], atol=1e-12)
    assert not np.array_equal(whole[1], run(World(), 20)[1])
    # Without a seed it is that of the run that is saved.
    for _ in range(2):
        together(20, None, "free.npz")
    assert len(list(tmp_path.iterdir())) == 2
    with pytest.raises(InvalidInputError, match="each process has its own clock"):
        Room.together(2, lambda world: run(world, 40, stop=MaxSteps(60) | MaxSeconds(60)))


def test_fewer_passes_than_were_learned_are_refused(tmp_path: Path) -> None:
    def learned(epochs: int) -> LoretaSimilarity:
        return model(checkpoint=tmp_path / "run.npz").fit_stream(files(tmp_path / "data", n_epochs=epochs))

    learned(4)
    with pytest.raises(InvalidInputError, match="the stream has 6 chunks, and 12 were learned"):
        learned(2)
    assert bits(learned(5)) == bits(model().fit_stream(files(tmp_path / "data", n_epochs=5)))


def test_another_order_is_not_resumed(tmp_path: Path) -> None:
    for number in range(12):
        (tmp_path / "data" / f"class{number % 2}").mkdir(parents=True, exist_ok=True)
        (tmp_path / "data" / f"class{number % 2}" / f"{number}.txt").write_text(
            f"word{number} word{number % 5}"
        )

    def learned(seed: int | None, path: Path | None, epochs: int = 2) -> LoretaSimilarity:
        texts = stream(tmp_path / "data", n_features=6, batch_size=12, n_epochs=epochs, random_state=seed)
        return LoretaSimilarity(2, init="gaussian", random_state=0, checkpoint=path).fit_stream(texts)

    path = tmp_path / "run.npz"
    learned(5, path, 1)
    with pytest.raises(InvalidInputError, match=r"the first . chunks are not those.*random_state"):
        learned(6, path)
    assert bits(learned(5, path)) == bits(learned(5, None))


def test_a_look_at_the_first_chunk_takes_nothing_away(tmp_path: Path) -> None:
    looked = files(tmp_path / "data")
    next(iter(looked))
    assert bits(model().fit_stream(looked)) == bits(model().fit_stream(files(tmp_path / "data")))


def test_a_line_may_be_repaired_in_a_file_that_was_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rmopt.solvers.save.Saver.due", lambda *_: True)
    (tmp_path / "data").mkdir()
    lines = [f"{number % 3},{number % 7},{number % 5},{number % 2}" for number in range(30)]
    good = "\n".join(["a,b,c,label", *lines]) + "\n"
    for number in range(3):
        (tmp_path / "data" / f"{number}.csv").write_text(good)

    def learned(size: int = 30, **how: Any) -> LoretaSimilarity:
        return model(**how).fit_stream(stream(tmp_path / "data", batch_size=size))

    whole = learned()
    (tmp_path / "data" / "2.csv").write_text(good.replace("label\n", "label\nx,1,2,0\n"))
    with pytest.raises(InvalidInputError, match=r"row 1"):
        learned(checkpoint=tmp_path / "run.npz")
    (tmp_path / "data" / "2.csv").write_text(good)
    with pytest.raises(InvalidInputError, match="batch_size"):
        learned(15, checkpoint=tmp_path / "run.npz")
    # A row in the middle, by which neither the size nor an end of the file changes.
    (tmp_path / "data" / "0.csv").write_text(good.replace("0,1,0,1", "1,1,1,1", 1))
    with pytest.raises(InvalidInputError, match="chunks are not those"):
        learned(checkpoint=tmp_path / "run.npz")
    (tmp_path / "data" / "0.csv").write_text(good)
    again = learned(checkpoint=tmp_path / "run.npz")
    assert again.model_.point.U.tobytes() == whole.model_.point.U.tobytes()


def test_the_checkpoint_of_a_stream_shows_what_differs(tmp_path: Path) -> None:
    path = tmp_path / "state.npz"
    LoretaSimilarity(2, checkpoint=path, random_state=0).fit_stream([(X, y)])
    with pytest.raises(InvalidInputError, match="its rank is 2, not 3"):
        LoretaSimilarity(3, checkpoint=path, random_state=0).fit_stream([(X, y)])
    with pytest.raises(InvalidInputError, match="its init is 'identity', not 'gaussian'"):
        LoretaSimilarity(2, init="gaussian", checkpoint=path, random_state=0).fit_stream([(X, y)])


def test_a_part_of_the_data_has_no_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="for partial_fit leave it out"):
        LoretaSimilarity(2, checkpoint=tmp_path / "state.npz").partial_fit(X, y)
