"""Stochastic gradient descent on manifolds, by any rule."""

from collections.abc import Callable
from typing import Any

from rmopt.core.arguments import instance, integer, one_of
from rmopt.core.problem import Problem
from rmopt.core.retraction import Retraction
from rmopt.engines.base import Engine
from rmopt.engines.choose import ENGINES, choose_engine
from rmopt.engines.reference import Plain, StepRule
from rmopt.engines.rules import AdaGrad, RowAdaGrad
from rmopt.manifolds import Euclidean
from rmopt.solvers.stochastic.samplers import Sampler, as_sampler, batch_size_of
from rmopt.solvers.stochastic.scheduled import ScheduledSolver
from rmopt.solvers.stochastic.step_sizes import StepSizeLike, as_step_size


class SGD(ScheduledSolver):
    """Repeated steps along the projected gradient of a few terms, with a retraction.

    A step is along the sum of the gradients of its terms, not their mean: with larger batches take smaller step
    sizes. A cost that is not a sum of terms is used in full at every step.

    On `FixedRankEmbedded` with `SecondOrder` and a bilinear cost this is LORETA
    (Shalit et al. 2012, Algorithms 1–4).

    Parameters
    ----------
    step_size : float, StepSize or callable
        A number is a constant step size; a function maps an int array of step numbers to step sizes.
    max_iter : int
        The budget.
    batch_size : int, optional
        Terms per step. Defaults to those of the sampler, or 1.
    sampler : Sampler or callable, optional
        The sampler of the terms of each step. Defaults to uniform draws with replacement.
    retraction : Retraction, optional
        The manifold's default retraction unless given.
    engine : {"auto", "compiled", "reference"}
        "auto" takes the compiled engine if there is one.
    rule : StepRule, optional
        The direction of a step: `Momentum`, `Adam`, `AdaGrad`, or `SVRG` and `SRG`, which reduce the variance.
        Defaults to the gradient of its terms.

    See Also
    --------
    Parallel : several workers.

    References
    ----------
    Bonnabel, Stochastic gradient descent on Riemannian manifolds, IEEE Transactions on Automatic Control 58
    (2013), https://doi.org/10.1109/TAC.2013.2254619. Shalit, Weinshall and Chechik, Online learning in the
    embedded manifold of low-rank matrices, JMLR 13 (2012), https://jmlr.org/papers/v13/shalit12a.html.

    Examples
    --------
    >>> import numpy as np
    >>> from rmopt import Problem
    >>> from rmopt.costs import BilinearSum, squared
    >>> from rmopt.manifolds import FixedRankEmbedded
    >>> from rmopt.solvers import SGD
    >>> left, right = np.random.default_rng(0).standard_normal((2, 60, 3))
    >>> cost = BilinearSum(left, right, squared, left[:, 0] * right[:, 0])
    >>> problem = Problem(FixedRankEmbedded(3, 3, 1), cost)
    >>> result = SGD(0.1, max_iter=2000).run(problem, random_state=0)
    >>> problem.value(result.point) < 1e-9
    True
    """

    def __init__(
        self,
        step_size: StepSizeLike,
        *,
        max_iter: int = 10_000,
        batch_size: int | None = None,
        sampler: Sampler | Callable[..., Any] | None = None,
        retraction: Retraction | None = None,
        engine: str = "auto",
        rule: StepRule | None = None,
    ) -> None:
        self.rule = instance(
            "rule", Plain() if rule is None else rule, StepRule, "a rule, such as Momentum(0.9)"
        )
        self.step_size, self.max_iter = as_step_size(step_size), integer("max_iter", max_iter)
        self.sampler, self.batch_size = sampler, batch_size_of(sampler, batch_size)
        self.retraction, self.engine_name = retraction, one_of("engine", engine, ENGINES)

    def engine(self, problem: Problem) -> Engine:
        cost, rule = problem.cost, self.rule
        alone = self.engine_name == "auto" and type(problem.manifold) is Euclidean
        if type(rule) is AdaGrad and alone and _knows_rows(cost):
            return RowAdaGrad(cost, self.batch_size, rule.eps)
        return choose_engine(problem, self.retraction, self.engine_name, self.batch_size, rule)

    def sampler_for(self, problem: Problem) -> Sampler:
        return as_sampler(self.sampler, problem.cost, self.batch_size)


def _knows_rows(cost: Any) -> bool:
    """Return whether a cost has row gradients that no subclass's gradient of terms overrides."""
    names = "row_gradient", "term_gradient"
    owners = [next((kind for kind in type(cost).__mro__ if name in vars(kind)), object) for name in names]
    return callable(getattr(cost, "row_gradient", None)) and issubclass(*owners)
