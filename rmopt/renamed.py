"""Names of earlier versions: they work for one version more, with a `FutureWarning` that says the new one.

There is a way for each thing that may be renamed: `renamed` for the parameters of a class, `former_names` for what a
module holds, `MODULES` and `MERGED` for modules. Pickles with old names are read. What a checkpoint belongs to is
written with the first name that a thing had, so that files of both versions are of one run.
"""

import functools
import importlib
import sys
from collections.abc import Callable, Mapping
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, TypeVar

from rmopt.errors import warn

T = TypeVar("T")

# Modules that went elsewhere: the old name, and the new one.
MODULES: dict[str, str] = {
    "problems.coembedding.classifier": "problems.coembedding.estimators",
    "problems.coembedding.rivals": "problems.coembedding.baselines",
    "problems.coembedding.thresholds": "problems.thresholds",
    "problems.metric.comet": "problems.metric.estimators",
    "problems.metric.rivals": "problems.metric.baselines",
    "problems.ranking.estimator": "problems.ranking.estimators",
    "problems.ranking.rivals": "problems.ranking.baselines",
    "problems.similarity.estimator": "problems.similarity.estimators",
    "problems.similarity.rivals": "problems.similarity.baselines",
    "rmopt.catalogue": "rmopt.checks.catalogue",
    "rmopt.core.errors": "rmopt.errors",
    "rmopt.core.files": "rmopt.files",
    "rmopt.core.graph": "rmopt.costs.graph",
    "rmopt.engines.blocked": "rmopt.engines.deferred",
    "rmopt.engines.certificate": "rmopt.solvers.certificate",
    "rmopt.engines.rank_incremental": "rmopt.solvers.rank_rounds",
    "rmopt.engines.threads": "rmopt.solvers.threads",
    "rmopt.engines.world": "rmopt.solvers.world",
}
# Modules that are part of another one, which was there before.
MERGED = {
    "problems.arrays": "problems.saving",
    "problems.coembedding.certified": "problems.coembedding.training",
    "problems.coembedding.multilabel": "problems.coembedding.cost",
    "problems.coembedding.optima": "problems.coembedding.training",
    "problems.coembedding.recommender": "problems.coembedding.links",
    "problems.coembedding.regression": "problems.coembedding.cost",
    "problems.coembedding.tagging": "problems.coembedding.cost",
    "problems.full_matrix": "problems.online",
    "problems.images": "problems.data.sets",
    "problems.metric.base": "problems.metric.estimators",
    "problems.metric.outside": "problems.metric.baselines",
    "problems.multilabel": "problems.data.sets",
    "problems.ranking.classifier": "problems.ranking.estimators",
    "problems.ranking.logistic": "problems.ranking.cost",
    "problems.ranking.model": "problems.ranking.estimators",
    "problems.ratings": "problems.data.sets",
    "problems.serving.page": "problems.serving.web",
    "problems.similarity.contrastive": "problems.similarity.estimators",
    "problems.similarity.model": "problems.similarity.estimators",
    "problems.subspace.agents": "problems.subspace.cost",
    "problems.subspace.completion": "problems.subspace.cost",
    "problems.subspace.completion_estimator": "problems.subspace.estimators",
    "problems.subspace.lmafit": "problems.subspace.baselines",
    "problems.subspace.multitask": "problems.subspace.cost",
    "problems.subspace.peers": "problems.subspace.baselines",
    "problems.tags": "problems.data.sets",
    "problems.tasks": "problems.data.sets",
    "problems.text": "problems.data.text",
    "rmopt.core.row_column": "rmopt.core.ambient",
    "rmopt.costs.autodiff": "rmopt.costs.automatic",
    "rmopt.costs.pairwise": "rmopt.costs.embedded",
    "rmopt.engines.batch": "rmopt.engines.bilinear",
    "rmopt.engines.gauge": "rmopt.engines.gauged",
    "rmopt.engines.gossip": "rmopt.solvers.gossip",
    "rmopt.engines.identification": "rmopt.solvers.identification",
    "rmopt.engines.mpi": "rmopt.solvers.world",
    "rmopt.engines.spectrum": "rmopt.solvers.certificate",
    "rmopt.interop.foreign": "rmopt.interop.pymanopt",
    "rmopt.manifolds.frechet": "rmopt.manifolds.means",
    "rmopt.manifolds.polar": "rmopt.manifolds.psd_fixed_rank",
    "rmopt.manifolds.psd_matrices": "rmopt.manifolds.psd_fixed_rank",
    "rmopt.retractions.euclidean": "rmopt.retractions.positive_definite",
    "rmopt.retractions.psd_fixed_rank": "rmopt.retractions.fixed_rank",
    "rmopt.solvers.factor": "rmopt.solvers.line_search",
    "rmopt.solvers.newton": "rmopt.solvers",
    "rmopt.testing.laws": "rmopt.testing",
}

# Modules that numba's caches of version 0.1 name: they are read, without a word, before numba sees that they are old.
CACHED = {
    "rmopt.kernels.lifted_psd": "rmopt.kernels.lifted",
    "rmopt.kernels.outcomes": "rmopt.kernels.steps",
    "rmopt.kernels.terms": "rmopt.kernels.steps",
}

# What is said otherwise in pymanopt and Manopt, where it is a keyword of classes that are decorated here.
ELSEWHERE = {
    "euclidean_gradient": "it is the method gradient of the cost",
    "euclidean_hessian": "it is the method hessian of the cost",
    "riemannian_gradient": "the cost has the Euclidean one, as its method gradient",
    "riemannian_hessian": "the cost has the Euclidean one, as its method hessian",
    "preconditioner": "it is the method precondition of the cost",
    "Delta0": "it is first_radius",
    "beta_rule": 'the rule is the first argument, such as "polak-ribiere"',
    "line_searcher": "it is step_length of GradientDescent",
    "log_verbosity": "give run a recorder=Recorder({name: function})",
    "verbosity": "give run a recorder=Recorder(progress=True)",
    "max_time": "give run a stop=MaxSeconds(seconds)",
    "maxtime": "give run a stop=MaxSeconds(seconds)",
    "max_cost_evaluations": "give run a stop=MaxEvaluations(number)",
    "min_step_size": "give run a stop=SmallStep(length)",
    "minstepsize": "give run a stop=SmallStep(length)",
    "tolcost": "give run a stop=Below(value)",
    "min_gradient_norm": "it is gradient_norm",
    "tolgradnorm": "it is gradient_norm",
    "maxiter": "it is max_iter",
}  # fmt: skip

# What of these modules results and checkpoints tell the names of.
TOLD = {
    "problems.coembedding.recommender": ("PairwiseInteractionTags", "TagRecommender"),
    "problems.coembedding.regression": ("MetricRegression",),
    "problems.ranking.classifier": ("LowRankLogisticRegression",),
    "problems.ranking.logistic": ("LogisticLabels",),
    "problems.similarity.contrastive": ("ContrastiveSimilarity",),
    "problems.similarity.model": ("BilinearSimilarity",),
    "problems.subspace.peers": ("Biases", "CMFRec", "LibMF", "MyFM"),
}

# Of classes and functions that were renamed: module and name, and the first ones.
_FIRST = {(MERGED[old], name): (old, name) for old, names in TOLD.items() for name in names}


def renamed(**names: str) -> Callable[[T], T]:
    """Return a decorator of a class or a function whose parameters have new names, ``@renamed(n_steps="max_iter")``.

    The old names are still taken as keywords; of a class also by ``set_params``, in pickles, as attributes of objects
    and in the bodies of subclasses. On a dataclass it stands above `dataclass`, and again on each dataclass that
    inherits from it. Where the attributes of a class keep their names its ``__init__`` is decorated. Of keywords that
    another library has for the same thing, `ELSEWHERE`, the error says what takes their place.
    """

    def present(given: Mapping[str, Any], whose: str, warns: bool = True) -> dict[str, Any]:
        """Return what was given, by new names."""
        for old in sorted(names.keys() & given.keys()):
            if names[old] in given:
                raise TypeError(f"{whose} got both {names[old]} and {old}, as it was called before.")
            if warns:
                _warn(f"{old} of {whose}", names[old])
        return {names.get(name, name): value for name, value in given.items()}

    def taking(function: Any, whose: str = "") -> Any:
        @functools.wraps(function)
        def called(*args: Any, **parameters: Any) -> Any:
            # A subclass hands on what it does not know.
            name = whose or type(args[0]).__name__
            for other in sorted(ELSEWHERE.keys() & parameters.keys()):
                raise TypeError(f"{name} has no {other}: {ELSEWHERE[other]}.")
            return function(*args, **present(parameters, name))

        return called

    def decorated(thing: Any) -> Any:
        if not isinstance(thing, type):
            return taking(thing, thing.__qualname__.removesuffix(".__init__"))
        cls: Any = thing
        own, setstate = vars(cls).get("__init_subclass__"), getattr(cls, "__setstate__", None)

        def __setstate__(self: Any, state: Any) -> None:  # noqa: N807
            state = present(state, cls.__name__, warns=False) if isinstance(state, dict) else state
            vars(self).update(state) if setstate is None else setstate(self, state)

        def __init_subclass__(kind: Any, **options: Any) -> None:  # noqa: N807
            for old in sorted(names.keys() & vars(kind).keys()):
                _warn(f"{old} of {kind.__name__}", names[old])
                setattr(kind, names[old], vars(kind)[old])
                delattr(kind, old)
            known = vars(kind).get("__annotations__", {})
            kind.__annotations__ = {names.get(name, name): value for name, value in known.items()}
            (super(cls, kind).__init_subclass__ if own is None else own.__get__(None, kind))(**options)

        for name in ("__init__", "set_params"):
            method = getattr(cls, name, None)
            if method is not getattr(object, name, None):
                setattr(cls, name, taking(method))
        cls.__setstate__ = __setstate__
        cls.__init_subclass__ = classmethod(__init_subclass__)  # type: ignore[arg-type]
        for old, new in names.items():
            setattr(cls, old, _Former(old, new))
        cls._former = {**names, **getattr(cls, "_former", {})}
        return cls

    return decorated


class _Former:
    """An attribute by its old name."""

    def __init__(self, old: str, new: str) -> None:
        self.old, self.new = old, new

    def __get__(self, owner: Any, kind: type) -> Any:
        if owner is None:
            return self
        _warn(f"{self.old} of {kind.__name__}", self.new)
        return getattr(owner, self.new)

    def __set__(self, owner: Any, value: Any) -> None:
        _warn(f"{self.old} of {type(owner).__name__}", self.new)
        object.__setattr__(owner, self.new, value)


def former_names(module: str, **names: str) -> Callable[[str], Any]:
    """Return the ``__getattr__`` of a module whose contents have new names.

    Parameters
    ----------
    module : str
        Its ``__name__``.
    **names : str
        By the old name the new one, as ``module:name`` where it went elsewhere.
    """
    places = {}
    for old, target in names.items():
        home, _, new = target.rpartition(":")
        places[old] = place = (home or module, new)
        _FIRST.setdefault(place, (module, old))

    def __getattr__(name: str) -> Any:  # noqa: N807
        if name not in places:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        home, new = places[name]
        _warn(f"{module}.{name}", f"{home}.{new}")
        return getattr(importlib.import_module(home), new)

    return __getattr__


def first_name(module: str, name: str) -> tuple[str, str]:
    """Return the module and the name that a class or a function had first."""
    module, name = _FIRST.get((module, name), (module, name))
    return next((old for old, new in MODULES.items() if new == module), module), name


def first_attribute(owner: Any, name: Any) -> Any:
    """Return the name that an attribute had first."""
    former: Mapping[str, str] = getattr(type(owner), "_former", {})
    return next((old for old, new in former.items() if new == name), name)


class _Moved:
    """Finds and loads modules by their old names."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        known = name in MODULES or name in MERGED or name in CACHED
        return ModuleSpec(name, self) if known else None  # type: ignore[arg-type]

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        home = CACHED.get(spec.name) or MODULES.get(spec.name) or MERGED[spec.name]
        if spec.name not in CACHED:
            _warn(spec.name, home)
        module = importlib.import_module(home)
        spec.loader_state = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Give the module back what it is called; it has been run already."""
        assert module.__spec__ is not None
        module.__spec__ = module.__spec__.loader_state


def _warn(old: str, new: str) -> None:
    warn(f"{old} is now {new}; the old name goes with the next version.", FutureWarning)


sys.meta_path.append(_Moved())
