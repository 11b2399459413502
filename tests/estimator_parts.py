"""Every public estimator with small data, and what strangers may give in place of its parameters and its data."""

import datetime
import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse as sp
from fuzzing import Case
from sklearn.base import BaseEstimator
from sklearn.linear_model import LogisticRegression

import problems.coembedding
import problems.metric
import problems.ranking
import problems.similarity
import problems.subspace
from problems.data.text import information_gain
from problems.evaluation import bilinear_scores, cosine_scores, evaluate_retrieval
from problems.triplets import ClassTriplets
from rmopt.costs import BilinearSum, TripletSum, logistic

FAMILIES = (problems.similarity, problems.metric, problems.ranking, problems.subspace, problems.coembedding)
X = np.random.default_rng(0).standard_normal((24, 5))
LABELS = np.arange(24) % 3
TABLE = np.column_stack([LABELS == 0, LABELS == 1, X[:, 0] > 0, X[:, 1] > 0]).astype(int)
NEAR = ((X[:, None, :2] - X[None, :, :2]) ** 2).sum(axis=2) < 0.7
TRIPLETS = np.array([[0, 3, 1], [1, 4, 2]])
RATINGS = sp.csc_array(
    np.where(np.random.default_rng(1).random((12, 9)) < 0.7, X[:12, :2] @ X[:9, :2].T, 0.0)
)
POSTS = np.column_stack([LABELS, np.arange(24) // 4])


@dataclass(frozen=True)
class Part:
    """An estimator that fits in milliseconds, its data, and what its methods take.

    Attributes
    ----------
    kind : type
    quick : dict
        Parameters that differ from the defaults.
    data : dict
        What `fit` takes.
    uses : dict of tuple
        What other public methods take, after `fit`.
    """

    kind: type
    quick: dict[str, Any]
    data: dict[str, Any]
    uses: dict[str, tuple[Any, ...]] = field(default_factory=dict)

    def make(self, **changes: Any) -> Any:
        return self.kind(**{**self.quick, **changes})


_SAMPLES, _LABELLED, _RATINGS = {"X": X, "y": LABELS}, {"X": X, "Y": TABLE}, {"ratings": RATINGS}
_POSTED, _METRIC = {"X": POSTS, "y": np.arange(24) % 5}, {"transform": (X,), "get_mahalanobis_matrix": ()}
_RANKED = {"decision_function": (X,), "predict": (X,), "score": (X, TABLE)}
_TAGGED = {"decision_function": (POSTS,), "predict": (POSTS,), "score": (POSTS, np.arange(24) % 5)}
_PAIRS = np.array([[0, 1], [2, 5]])
_COMPLETED = {
    "predict": (np.array([0, 1]), np.array([2, 3])), "rmse": (RATINGS,),
    "score": (np.array([[0, 1], [3, 2]]), np.array([1.0, 2.0])),
}  # fmt: skip
_SIMILAR = {"transform": (X,), "similarity": (X, X), "score": (X, LABELS)}
_LORETA = {"transform_queries": (X,), "partial_fit": (X, LABELS), "fit_triplets": (X, TRIPLETS)}
_LINKED = {"transform": (X,), "decision_function": (X, _PAIRS), "predict": (X, _PAIRS)}
_NEIGHBOURS = {"X": X, "links": NEAR & ~np.eye(24, dtype=bool)}
_TASKS = {"X": X, "y": X[:, 0], "tasks": LABELS}
_EPOCHS, _STEPS = {"rank": 2, "n_epochs": 2, "random_state": 0}, {"rank": 2, "max_iter": 2, "random_state": 0}
_AGENTS = _EPOCHS | {"n_agents": 2}
_SAMPLER = {"rank": 2, "n_samples": 3, "burn_in": 1, "random_state": 0}
_CALIBRATED = problems.coembedding.CalibratedLabelRanking(LogisticRegression())

PARTS: dict[str, Part] = {
    part.kind.__name__: part
    for part in (
        Part(problems.similarity.LoretaSimilarity, _STEPS | {"max_iter": 30}, _SAMPLES, _SIMILAR | _LORETA),
        Part(problems.similarity.ContrastiveSimilarity, _EPOCHS, _SAMPLES, _SIMILAR),
        Part(problems.ranking.LoretaLabelRanker, _EPOCHS, _LABELLED, _RANKED | {"partial_fit": (X, TABLE)}),
        Part(problems.ranking.LowRankLogisticRegression, _EPOCHS, _LABELLED, _RANKED | {"predict_proba": (X,)}),
        Part(problems.metric.CometMetric, {"n_epochs": 2, "random_state": 0}, _SAMPLES, _METRIC),
        Part(problems.metric.EuclideanMetric, {}, _SAMPLES, _METRIC),
        Part(problems.metric.LegoMetric, {"n_triplets": 30, "random_state": 0}, _SAMPLES, _METRIC),
        Part(problems.metric.BoostMetric, {"max_iter": 3, "random_state": 0}, _SAMPLES, _METRIC),
        Part(problems.metric.HdslMetric, {"max_iter": 20, "random_state": 0}, _SAMPLES, _METRIC),
        *(
            Part(kind, quick, _LABELLED, _RANKED | {"transform": (X,)})
            for kind, quick in (
                (problems.coembedding.CoembeddingClassifier, {"tol": 0.1}),
                (problems.coembedding.CoembeddingClassifierCV, {"betas": (1.0, 5.0), "cv": 2, "tol": 0.1}),
            )
        ),
        Part(
            problems.coembedding.LinkPredictor, {"tol": 0.1, "random_state": 0}, _NEIGHBOURS,
            _LINKED | {"score": (X, np.array([0, 1]), _PAIRS)},
        ),
        Part(problems.coembedding.TagRecommender, {"tol": 0.1}, _POSTED, _TAGGED),
        Part(problems.coembedding.PairwiseInteractionTags, _EPOCHS, _POSTED, _TAGGED),
        Part(
            problems.coembedding.CalibratedLabelRanking, {"estimator": LogisticRegression()}, _LABELLED, _RANKED
        ),
        Part(
            problems.coembedding.LabelThresholds, {"estimator": _CALIBRATED, "cv": 2}, _LABELLED,
            _RANKED | {"predict_proba": (X,)},
        ),
        Part(problems.subspace.GossipMatrixCompletion, _AGENTS, _RATINGS, _COMPLETED),
        Part(problems.subspace.BayesianCompletion, _SAMPLER, _RATINGS, _COMPLETED),
        *(
            Part(kind, _STEPS, _RATINGS, _COMPLETED)
            for kind in (problems.subspace.RTRMC, problems.subspace.RCGMC, problems.subspace.BiasedALS)
        ),
        Part(problems.subspace.ScaledSGDCompletion, _EPOCHS, _RATINGS, _COMPLETED),
        Part(problems.subspace.ImplicitALS, _STEPS, {"ratings": abs(RATINGS)}, _COMPLETED),
        Part(
            problems.subspace.MultitaskSubspace, _AGENTS, _TASKS,
            {"predict": (X, LABELS), "score": (X, X[:, 0], LABELS)},
        ),
    )
}  # fmt: skip


def _retrieved(y: Any, queries: Any, ks: Any) -> Any:
    return evaluate_retrieval(lambda rows: np.ones((len(rows), len(y))), y, queries=queries, ks=ks)


FUNCTIONS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "cosine_scores": (lambda rows: cosine_scores(rows)(np.arange(min(1, np.shape(rows)[0]))), (X,)),
    "bilinear_scores": (lambda left, right: bilinear_scores(left, right)(np.arange(1)), (X, X)),
    "evaluate_retrieval": (_retrieved, (LABELS, np.arange(4), (1, 2))),
    "information_gain": (information_gain, (np.abs(X.round()), LABELS)),
    "ClassTriplets": (lambda y, size: ClassTriplets(y, size).draw(np.random.default_rng(0), 0, 1), (LABELS, 2)),
    "mean_average_precision": (problems.ranking.mean_average_precision, (X[:, :4], TABLE)),
    "fit_triplets of BoostMetric": (problems.metric.BoostMetric(5).fit_triplets, (X, TRIPLETS)),
    "fit_triplets of HdslMetric": (problems.metric.HdslMetric(100.0).fit_triplets, (X, TRIPLETS)),
    "BilinearSum": (lambda *given: BilinearSum(*given[:2], logistic, given[2]), (X, X, 2 * TABLE[:, 0] - 1)),
    "TripletSum": (lambda *given: TripletSum(*given[:2], triplets=given[2]), (X, X, TRIPLETS)),
}  # fmt: skip


def public_estimators() -> set[str]:
    """Return the names of all estimators that the families export."""
    return {
        name
        for family in FAMILIES
        for name in family.__all__
        if inspect.isclass(found := getattr(family, name)) and issubclass(found, BaseEstimator)
    }


class _Mute:
    def __repr__(self) -> str:
        return "a stranger's object"


def junk() -> dict[str, Any]:
    """Return values of every kind; None of them is a good guess for all parameters."""
    return {
        "None": None, "string": "x", "empty string": "", "bytes": b"x", "auto": "auto", "minus one": -1, "zero": 0,
        "one": 1, "three": 3, "one and a half": 1.5, "float two": 2.0, "tiny": 1e-300, "subnormal": 5e-324,
        "huge": 1e300, "inf": np.inf, "minus inf": -np.inf, "nan": np.nan, "True": True, "False": False,
        "numpy True": np.True_, "int64": np.int64(3), "uint8": np.uint8(2), "float32": np.float32(0.5),
        "int 10^30": 10**30, "minus 10^30": -(10**30), "complex": 1j, "list": [], "list of one": [1],
        "tuple of one": (1,), "pair": (1, 2), "fold beyond the rows": [([0], [99])],
        "sparse": sp.dia_array(np.eye(3)), "pair down": (5, 1), "pair of nan": (np.nan, 1), "dict": {}, "set": {1},
        "object": _Mute(), "class": int,
        "constant function": lambda: 0, "identity": lambda t: t, "nan function": lambda t: t * np.nan,
        "negative function": lambda t: -1.0 - t, "string function": lambda t: "x", "array": np.array([1.0, 2.0]),
        "array of none": np.array(None), "number as array": np.array(3), "decimal": Decimal("0.5"),
        "date": datetime.date(2020, 1, 1), "datetime64": np.datetime64("2020"), "generator": np.random.default_rng(0),
        "random state": np.random.RandomState(0), "range": range(3), "estimator class": LogisticRegression,
    }  # fmt: skip


def damaged(matrix: Any) -> dict[str, Any]:
    """Return CSR and CSC matrices whose structure lies."""
    found: dict[str, Any] = {}
    for name, attribute, change in (
        ("index beyond", "indices", lambda part: part.__setitem__(0, 10**8)),
        ("negative index", "indices", lambda part: part.__setitem__(-1, -1)),
        ("falling indptr", "indptr", lambda part: part.__setitem__(1, 10**6)),
        ("indptr beyond", "indptr", lambda part: part.__setitem__(-1, 10**7)),
        ("indptr not from 0", "indptr", lambda part: part.__setitem__(0, -5)),
    ):
        for kind in (sp.csr_array, sp.csr_matrix, sp.csc_array):
            broken = kind(matrix, copy=True)
            change(getattr(broken, attribute))
            found[f"{kind.__name__}: {name}"] = broken
    short = sp.csr_array(matrix, copy=True)
    short.indices = short.indices[:-2]
    return found | {"csr with few indices": short}


def variants(valid: Any) -> dict[str, Any]:
    """Return what may come in place of a table, a vector or a pair of them."""
    if isinstance(valid, tuple):
        return junk()
    whole = valid.toarray() if sp.issparse(valid) else np.asarray(valid)
    real, back = whole.astype(float), sp.csc_array if sp.issparse(valid) else np.asarray
    holes = {}
    for name, value in (("nan", np.nan), ("inf", np.inf), ("minus inf", -np.inf), ("huge one", 1e300)):
        spoilt = real.copy()
        spoilt.flat[0] = value
        holes[name] = back(spoilt)
    scaled = {
        f"times {c:g}": back(real * c) for c in (1e-310, 1e-155, 1e-100, 1e-8, 1e3, 1e100, 1e155, 1e300)
    }
    kinds = {
        "complex": back(real * (1 + 1j)),
        "dates": whole.astype("M8[D]") if whole.dtype.kind in "iu" else real.astype(int).astype("M8[s]"),
        "strings": whole.astype(str),
        "objects": whole.astype(object),
        "a gap among objects": np.where(np.arange(whole.size).reshape(whole.shape) == 0, None, whole),
        "text of any length": whole.astype(str).astype(np.dtypes.StringDType()),
        "dict of columns": dict(enumerate(whole.T)) if whole.ndim == 2 else dict(enumerate(whole)),
        "strange objects": np.full(whole.shape, _Mute(), dtype=object),
        "bool": real > 0,
        "float32": real.astype("f4"),
        "negative integers": -np.abs(real).astype(int),
        "masked": np.ma.masked_array(real, real > 0),
        "mixed": [*"ab", 3],
        "structured": np.zeros(len(whole), dtype=[("a", float)]),
        "int8": real.astype("i1"),
    }
    forms = {
        "one row": back(real[:1]) if real.ndim > 1 else real[:1], "two rows": whole[:2], "no row": whole[:0],
        "one row less": back(real[:-1]) if real.ndim > 1 else whole[:-1], "flat": whole.ravel(),
        "three axes": whole[..., None, None], "number": whole.flat[0], "constant": np.ones_like(whole),
        "zeros": back(np.zeros_like(real)), "equal rows": np.repeat(whole[:1], len(whole), axis=0),
        "twice": np.concatenate([whole, whole]), "all different": np.arange(whole.size).reshape(whole.shape),
        "column": whole.reshape(-1, 1), "fortran": np.asfortranarray(whole), "every other": whole[::2],
        "list": whole.tolist(), "ragged": [[1, 2], [3]], "transposed": whole.T,
    }  # fmt: skip
    if whole.ndim == 2:
        constant = real.copy()
        constant[:, 0] = 7.0
        forms |= {
            "a constant column": back(constant),
            "no column": whole[:, :0],
            "one column": whole[:, :1],
            "one column more": np.hstack([whole, whole[:, :1]]),
            "equal columns": np.repeat(whole[:, :1], whole.shape[1], axis=1),
            "sparse complex": sp.csr_array(real * 1j),
        }
        forms |= {
            name: sp.coo_array(real).asformat(name) for name in ("coo", "csc", "lil", "dok", "bsr", "dia")
        }
        forms |= damaged(real)
    elif whole.ndim == 1:
        forms["sparse vector"] = sp.csr_array(real[None])
    return junk() | holes | scaled | kinds | forms


def cases_of(name: str) -> Iterator[Case]:
    """Yield `fit` with each value for each parameter, and all that is called with each variant of each argument."""
    if name in FUNCTIONS:
        function, valid = FUNCTIONS[name]
        yield from call_cases(name, lambda given: function(*given), valid)
        return
    part = PARTS[name]
    for key in part.kind().get_params() if _plain(part.kind) else part.quick:
        for what, value in junk().items():
            if key == "scoring" and callable(value):
                continue  # a scorer of their own, whose errors are theirs
            yield Case(
                f"{name}({key}={what})",
                lambda key=key, value=value: learned(part.make(**{key: value}).fit(**part.data)),
            )
    for key, valid in part.data.items():
        for what, value in variants(valid).items():
            yield Case(
                f"{name}.fit({key}={what})",
                lambda key=key, value=value: learned(part.make().fit(**{**part.data, key: value})),
            )
    for method, valid in part.uses.items():
        yield from call_cases(
            f"{name}.{method}",
            lambda given, method=method: getattr(part.make().fit(**part.data), method)(*given),
            valid,
        )


def call_cases(name: str, call: Callable[[list[Any]], Any], valid: tuple[Any, ...]) -> Iterator[Case]:
    """Yield a call with each variant of each argument."""
    for place, argument in enumerate(valid):
        for what, value in (junk() if isinstance(argument, int) else variants(argument)).items():
            given = [*valid[:place], value, *valid[place + 1 :]]
            yield Case(f"{name}({what} at {place})", lambda given=given: call(given))


def learned(model: Any) -> list[Any]:
    """Return what a fitted estimator knows."""
    return [value for name, value in vars(model).items() if name.endswith("_")]


def _plain(kind: type) -> bool:
    parameters = inspect.signature(kind).parameters.values()
    return all(one.default is not inspect.Parameter.empty for one in parameters)


def dated_ratings() -> pd.DataFrame:
    """Return ratings with names and dates, in no order."""
    rng = np.random.default_rng(0)
    users, items = np.nonzero(rng.random((12, 10)) < 0.6)
    return pd.DataFrame(
        {
            "user": [f"u{user}" for user in users],
            "item": [f"i{item}" for item in items],
            "rating": rng.integers(1, 6, len(users)),
            "date": np.datetime64("2024-01-01") + rng.permutation(len(users)),
        }
    )
