"""Names of the version before: they warn, they work, and what was saved with them is read."""

from __future__ import annotations

import importlib
import pickle
import re
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from sklearn.base import BaseEstimator, clone
from sklearn.model_selection import ParameterGrid

from problems.metric import CometMetric
from problems.ranking import LoretaLabelRanker
from problems.similarity import LoretaSimilarity
from problems.subspace import RTRMC, MultitaskSubspace
from rmopt import renamed
from rmopt.core import Problem
from rmopt.engines import ReferenceEngine
from rmopt.manifolds import FixedRankEmbedded, Sphere, frechet_mean
from rmopt.renamed import former_names
from rmopt.solvers import (
    LBFGS,
    SGD,
    AugmentedLagrangian,
    ConjugateGradient,
    CoordinateDescent,
    Doubling,
    Gossip,
    GradientDescent,
    RankIncremental,
    TrustRegions,
)

SAID = "the old name goes with the next version"


@renamed.renamed(n_rounds="max_iter")
@dataclass
class Value:
    """A dataclass with a parameter that had another name."""

    rate: float = 0.5
    max_iter: int = 10


class Inherited(Value):
    """One more."""


@renamed.renamed(n_rounds="max_iter")
class Estimator(BaseEstimator):
    """An estimator as scikit-learn wants it."""

    def __init__(self, rate: float = 0.5, max_iter: int = 10) -> None:
        self.rate, self.max_iter = rate, max_iter


@pytest.mark.parametrize("kind", [Value, Inherited, Estimator])
def test_old_keywords_and_attributes_warn_and_work(kind: Any) -> None:
    with pytest.warns(FutureWarning, match=f"n_rounds of .* is now max_iter; {SAID}"):
        made = kind(n_rounds=3)
    assert vars(made) == {"rate": 0.5, "max_iter": 3}
    with pytest.warns(FutureWarning, match=SAID):
        assert made.n_rounds == 3
    with pytest.warns(FutureWarning, match=SAID):
        made.n_rounds = 4
    assert made.max_iter == 4
    assert kind(0.1, 2).max_iter == 2
    with pytest.raises(TypeError, match="both max_iter and n_rounds"):
        kind(max_iter=1, n_rounds=1)


def test_an_old_pickle_is_read_without_the_old_attribute() -> None:
    for kind in (Value, Estimator):
        made = kind.__new__(kind)
        made.__setstate__({"rate": 0.5, "n_rounds": 7})
        assert vars(made) == {"rate": 0.5, "max_iter": 7}
        assert vars(pickle.loads(pickle.dumps(made))) == vars(made)


def test_scikit_learn_sees_the_new_names_only() -> None:
    model = Estimator(max_iter=5)
    assert model.get_params() == {"rate": 0.5, "max_iter": 5}
    assert clone(model).max_iter == 5
    for parameters in ParameterGrid({"n_rounds": [1, 2]}):
        with pytest.warns(FutureWarning, match=SAID):
            assert clone(model).set_params(**parameters).max_iter == parameters["n_rounds"]


def test_a_subclass_that_speaks_of_the_old_name_is_understood() -> None:
    with pytest.warns(FutureWarning, match="n_rounds of Longer is now max_iter"):

        @dataclass
        class Longer(Value):
            n_rounds: int = 99  # type: ignore[misc]

    assert Longer().max_iter == 99
    assert Longer(max_iter=3).max_iter == 3


def test_functions_and_constructors_take_old_keywords() -> None:
    with pytest.warns(FutureWarning, match=r"k of FixedRankEmbedded is now rank"):
        assert FixedRankEmbedded(5, 4, k=2).rank == 2
    with pytest.warns(FutureWarning, match=r"max_iterations of frechet_mean is now max_iter"):
        assert frechet_mean(Sphere(3), [np.eye(3)[0]], max_iterations=3)[0] == 1.0


@pytest.mark.parametrize(
    ("make", "old", "new"),
    [
        (lambda: SGD(0.1, n_steps=7), "n_steps", "max_iter"),
        (lambda: CoordinateDescent(n_passes=7), "n_passes", "n_epochs"),
        (lambda: Gossip(0.1, n_updates=7), "n_updates", "n_epochs"),
        (lambda: RankIncremental(max_rounds=7), "max_rounds", "max_iter"),
        (lambda: LBFGS(max_iterations=7), "max_iterations", "max_iter"),
        (lambda: TrustRegions(max_iterations=7), "max_iterations", "max_iter"),
        (lambda: AugmentedLagrangian(max_iterations=7), "max_iterations", "max_iter"),
        (lambda: CometMetric(n_passes=7), "n_passes", "n_epochs"),
        (lambda: RTRMC(2, max_iterations=7), "max_iterations", "max_iter"),
        (lambda: MultitaskSubspace(2, n_updates=7), "n_updates", "n_epochs"),
        (lambda: LoretaSimilarity(2, n_triplets=7), "n_triplets", "max_iter"),
        (lambda: LoretaLabelRanker(2, max_iter=7), "max_iter", "n_epochs"),
    ],
)
def test_budgets_of_solvers_and_estimators_by_their_old_names(make: Any, old: str, new: str) -> None:
    with pytest.warns(FutureWarning, match=f"{old} of .* is now {new}"):
        made = make()
    assert getattr(made, new) == 7
    assert pickle.loads(pickle.dumps(made)).__dict__.keys() == vars(made).keys()


def test_modules_answer_to_old_names(monkeypatch: pytest.MonkeyPatch) -> None:
    ask = former_names("here", Old="rmopt.solvers.growth:Doubling")
    with pytest.warns(FutureWarning, match=r"here\.Old is now rmopt\.solvers\.growth\.Doubling"):
        assert ask("Old") is Doubling
    with pytest.raises(AttributeError, match="module 'here' has no attribute 'Missing'"):
        ask("Missing")
    monkeypatch.setitem(renamed.MODULES, "rmopt.nowhere", "rmopt.solvers.growth")
    with pytest.warns(FutureWarning, match=r"rmopt\.nowhere is now rmopt\.solvers\.growth"):
        module = importlib.import_module("rmopt.nowhere")
    monkeypatch.delitem(sys.modules, "rmopt.nowhere")
    assert module is sys.modules["rmopt.solvers.growth"]
    assert module.__name__ == module.__spec__.name == "rmopt.solvers.growth"


@pytest.mark.parametrize(
    ("module", "old", "new"),
    [
        ("rmopt.solvers", "Linear", "OneByOne"),
        ("rmopt.engines", "BlockEngine", "CoordinateDescentEngine"),
        ("rmopt.engines.blocked", "BlockedEngine", "DeferredEngine"),
        ("rmopt.engines.choose", "choose_block_engine", "choose_coordinate_engine"),
    ],
)
def test_what_moved_is_found_where_it_was(module: str, old: str, new: str) -> None:
    sys.modules.pop("rmopt.engines.blocked", None)
    with pytest.warns(FutureWarning, match="is now rmopt"):
        assert getattr(importlib.import_module(module), old).__name__ == new


@pytest.mark.parametrize("old", sorted(renamed.MODULES | renamed.MERGED))
def test_a_module_of_the_first_release_is_imported_with_one_warning(old: str) -> None:
    sys.modules.pop(old, None)
    with pytest.warns(FutureWarning, match=f"{re.escape(old)} is now ") as warned:
        module = importlib.import_module(old)
    assert len(warned) == 1
    assert module is sys.modules[(renamed.MODULES | renamed.MERGED)[old]]


def test_an_old_module_is_found_by_a_process_that_imports_nothing_before() -> None:
    subprocess.run([sys.executable, "-W", "ignore", "-c", "import problems.full_matrix"], check=True)


@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("problems.coembedding.classifier", "CoembeddingClassifier"),
        ("problems.ranking.model", "LabelScores"),
        ("problems.similarity.model", "BilinearSimilarity"),
        ("problems.images", "mnist"),
        ("problems.multilabel", "scene"),
        ("problems.ratings", "Ratings"),
        ("problems.tags", "numbered"),
        ("problems.tags", "post_core"),
        ("problems.tasks", "parkinsons"),
        ("problems.text", "tfidf"),
        ("problems.full_matrix", "Oasis"),
        ("problems.subspace.completion", "MatrixCompletion"),
        ("rmopt.costs.autodiff", "autograd_cost"),
        ("rmopt.engines.gauge", "GeneralGauge"),
        ("rmopt.manifolds.polar", "PolarPSD"),
        ("rmopt.retractions.euclidean", "Additive"),
        ("rmopt.retractions.psd_fixed_rank", "SecondOrderPSD"),
        ("rmopt.solvers.factor", "LBFGS"),
        ("rmopt.solvers.newton", "NewtonCG"),
    ],
)
def test_what_pickles_of_the_first_release_name_is_found(module: str, name: str) -> None:
    assert callable(pickle.loads(f"c{module}\n{name}\n.".encode()))


def test_an_engine_that_names_its_parts_as_before_is_asked_for_them() -> None:
    with pytest.warns(FutureWarning, match="runs of Mine is now supports"):

        class Mine(ReferenceEngine):
            runs = {"cost": (int,)}  # noqa: RUF012

    assert Mine.supports == {"cost": (int,)}


@pytest.mark.filterwarnings("error")
def test_what_caches_of_compiled_loops_name_is_read_without_a_word() -> None:
    """An upgrade leaves numba's caches behind, which are unpickled before numba sees that they are old."""
    from rmopt.kernels import log_det, steps
    from rmopt.kernels.lifted import SymmetricFactors

    for old, new in (
        (b"crmopt.kernels.terms\nTerms\n.", steps.StepRows),
        (b"crmopt.kernels.terms\nRows\n.", steps.Rows),
        (b"crmopt.kernels.outcomes\nCounters\n.", steps.Counters),
        (b"crmopt.kernels.log_det\nTerms\n.", log_det.Weights),
        (b"crmopt.kernels.lifted_psd\nSymmetricFactors\n.", SymmetricFactors),
    ):
        assert pickle.loads(old) is new


def test_no_old_module_hides_what_its_package_offers() -> None:
    # The import of a module makes it an attribute of its package.
    for old in (*renamed.MODULES, *renamed.MERGED):
        package, _, name = old.rpartition(".")
        assert name not in getattr(importlib.import_module(package), "__all__", ()), old


def test_keywords_of_other_libraries_are_answered() -> None:
    for make, said in [
        (lambda: Problem(Sphere(3), euclidean_gradient=abs), "Problem .* method gradient of the cost"),
        (lambda: TrustRegions(verbosity=2), r"TrustRegions .*Recorder\(progress=True\)"),
        (lambda: TrustRegions(Delta0=1.0), "first_radius"),
        (lambda: ConjugateGradient(beta_rule="PolakRibiere"), "ConjugateGradient .* first argument"),
        (lambda: GradientDescent(max_time=3), "MaxSeconds"),
    ]:
        with pytest.raises(TypeError, match=said):
            make()
    with pytest.warns(FutureWarning, match="max_iterations of LBFGS is now max_iter") as told:
        LBFGS(max_iterations=7)
    assert told[0].filename == __file__
