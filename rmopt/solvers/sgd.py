"""Stochastic gradient descent on manifolds, plain, with momentum, adaptive, and with reduced variance."""

from collections.abc import Callable
from typing import Any

from rmopt.core.arguments import flag, integer, number, one_of, sequence
from rmopt.core.cost import HasRowGradient, as_sum
from rmopt.core.problem import Problem
from rmopt.core.retraction import Retraction
from rmopt.engines.base import Engine
from rmopt.engines.choose import ENGINES, choose_engine
from rmopt.engines.reference import ReferenceEngine
from rmopt.errors import InvalidInputError, MissingCapabilityError
from rmopt.manifolds import Euclidean
from rmopt.solvers.directed import ReducedEngine, SpannedEngine
from rmopt.solvers.samplers import Sampler, as_sampler, batch_size_of
from rmopt.solvers.scheduled import ScheduledSolver
from rmopt.solvers.sgd_rules import (
    Accumulating,
    Adaptive,
    DirectedEngine,
    Momentum,
    Plain,
    RowAdaGrad,
    StepRule,
    VarianceReduced,
)
from rmopt.solvers.step_sizes import StepSizeLike, as_step_size


class SGD(ScheduledSolver):
    """Gradient of a few terms, projection onto the tangent space, retraction; again and again.

    A step is along the sum of the gradients of its terms, not their mean: with larger batches take smaller step
    sizes. A cost that is no sum of terms is taken whole at every step.

    On `FixedRankEmbedded` with `SecondOrder` and a bilinear cost this is LORETA
    (Shalit et al. 2012, Algorithms 1–4).

    Parameters
    ----------
    step_size : float, StepSize or callable
        A number is a constant step size; a function maps an int array of step numbers to step sizes.
    max_iter : int
        The budget.
    batch_size : int, optional
        Terms per step: those of the sampler, otherwise 1, unless given.
    sampler : Sampler or callable, optional
        Which terms each step looks at; uniform with replacement unless given.
    retraction : Retraction, optional
        The manifold's default retraction unless given.
    engine : {"auto", "compiled", "reference"}
        "auto" takes the compiled engine where there is one.
    momentum : float
        Share of the direction before that is added to the gradient (Polyak 1964), from 0 to below 1.
    average : bool or int
        The result is the mean of the points, from a step on (Tripuraneni et al. 2018): it allows for long steps.

    See Also
    --------
    SVRG : constant step sizes lead to the minimum, where the terms are known.
    Adam : step sizes that adapt.
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
        momentum: float = 0.0,
        average: bool | int = False,
    ) -> None:
        self.momentum = number("momentum", momentum, least=0, below=1)
        self.average = average if isinstance(average, bool) else integer("average", average)
        self.step_size, self.max_iter = as_step_size(step_size), integer("max_iter", max_iter)
        self.sampler, self.batch_size = sampler, batch_size_of(sampler, batch_size)
        self.retraction, self.engine_name = retraction, one_of("engine", engine, ENGINES)

    def engine(self, problem: Problem) -> Engine:
        rule, slow = self.rule(problem), self.engine_name == "reference"
        plain = type(rule) is Plain and self.average is False
        if plain:
            chosen = choose_engine(problem, self.retraction, "reference" if slow else "auto", self.batch_size)
            if slow or type(chosen) is not ReferenceEngine:
                return chosen
        manifold = problem.manifold
        begin = None if self.average is False else int(self.average is not True and self.average)
        retraction = manifold.fitting(self.retraction)
        reference = DirectedEngine(manifold, as_sum(problem.cost), retraction, self.batch_size, rule, begin)
        compiled = ReducedEngine if isinstance(rule, VarianceReduced) else SpannedEngine
        refusal = compiled.refusal(reference)
        if refusal is None and not slow:
            return compiled(reference)
        if plain:
            # That also knows what other engines lack.
            return choose_engine(problem, self.retraction, self.engine_name, self.batch_size)
        if self.engine_name == "compiled":
            raise MissingCapabilityError(
                f"engine = 'compiled' is not available: {refusal}; use engine = 'auto'."
            )
        return reference

    def rule(self, problem: Problem) -> StepRule:
        """Return the rule of the directions."""
        return Momentum(self.momentum) if self.momentum > 0.0 else Plain()

    def sampler_for(self, problem: Problem) -> Sampler:
        return as_sampler(self.sampler, problem.cost, self.batch_size)


class Adam(SGD):
    """Adaptive step sizes from the means of the gradients and of their squares (Bécigneul and Ganea 2019).

    Squares are those of the lengths in each factor of a product; in a flat space they are those of each entry, as in
    Kingma and Ba (2015).

    Parameters
    ----------
    step_size : float, StepSize or callable
        As in `SGD`; about the length of a step.
    betas : (float, float)
        How much of the two means is kept at each step.
    eps : float
        Below the length of gradients that count.
    amsgrad : bool
        Divide by the largest mean of the squares so far: with falling step sizes it converges where Adam may not.
    **options : object
        ``max_iter``, ``batch_size``, ``sampler``, ``retraction``, ``engine`` and ``average``, as in `SGD`.

    See Also
    --------
    AdaGrad : for sparse gradients in flat spaces.
    SGD : one step size for all, and less to keep.

    References
    ----------
    Bécigneul and Ganea, Riemannian adaptive optimization methods, ICLR (2019), arXiv:1810.00760. Kingma and Ba,
    Adam: a method for stochastic optimization, ICLR (2015), arXiv:1412.6980.

    Examples
    --------
    >>> import numpy as np
    >>> from rmopt import Problem
    >>> from rmopt.costs import BilinearSum, squared
    >>> from rmopt.manifolds import FixedRankEmbedded
    >>> from rmopt.solvers import Adam
    >>> left, right = np.random.default_rng(0).standard_normal((2, 60, 3))
    >>> cost = BilinearSum(left, right, squared, left[:, 0] * right[:, 0])
    >>> problem = Problem(FixedRankEmbedded(3, 3, 1), cost)
    >>> result = Adam(0.05, max_iter=200, batch_size=10).run(problem, random_state=0)
    >>> problem.value(result.point) < 1e-3
    True
    """

    def __init__(
        self,
        step_size: StepSizeLike = 1e-3,
        *,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        amsgrad: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(step_size, **options)
        pair = sequence("betas", betas)
        if len(pair) != 2 or self.momentum > 0.0:
            raise InvalidInputError(
                "Adam has two betas, of which the first is its momentum; give betas = (0.9, 0.999)."
            )
        first, second = (number("betas", beta, least=0, below=1) for beta in pair)
        self.betas, self.eps = (first, second), number("eps", eps, above=0)
        self.amsgrad = flag("amsgrad", amsgrad)

    def rule(self, problem: Problem) -> StepRule:
        return Adaptive(self.betas, self.eps, self.amsgrad)


class AdaGrad(SGD):
    """Step sizes that fall with the sum of the squares of the gradients (Duchi, Hazan and Singer 2011).

    Squares are those of the lengths in each factor of a product; in a flat space they are those of each entry, and
    rows of a matrix that seldom move take long steps. A cost with `row_gradient` (`rmopt.core.HasRowGradient`) on
    `Euclidean` is asked for the rows that its terms touch, and no other row is looked at.

    Parameters
    ----------
    step_size : float, StepSize or callable
        As in `SGD`; about the length of the first steps, in each entry where the space is flat.
    eps : float
        What the sums of squares begin at.
    **options : object
        ``max_iter``, ``batch_size``, ``sampler``, ``retraction``, ``engine`` and ``average``, as in `SGD`.

    See Also
    --------
    Adam : forgets old gradients.
    SGD : one step size for all.

    References
    ----------
    Duchi, Hazan and Singer, Adaptive subgradient methods for online learning and stochastic optimization, JMLR
    12 (2011), https://jmlr.org/papers/v12/duchi11a.html.

    Examples
    --------
    >>> import numpy as np
    >>> from rmopt import Problem, autograd_cost
    >>> from rmopt.manifolds import Euclidean
    >>> from rmopt.solvers import AdaGrad
    >>> target = np.arange(6.0).reshape(3, 2)
    >>> cost = autograd_cost(lambda A: ((A - target) ** 2).sum())
    >>> problem = Problem(Euclidean(3, 2), cost)
    >>> found = AdaGrad(1.0, max_iter=300).run(problem, np.zeros((3, 2)))
    >>> bool(np.allclose(found.point, target))
    True
    """

    def __init__(self, step_size: StepSizeLike = 0.05, *, eps: float = 1e-8, **options: Any) -> None:
        super().__init__(step_size, **options)
        if self.momentum > 0.0:
            raise InvalidInputError("AdaGrad has no momentum; leave it out, or take Adam.")
        self.eps = number("eps", eps, above=0)

    def engine(self, problem: Problem) -> Engine:
        flat = type(problem.manifold) is Euclidean and self.average is False and self.engine_name == "auto"
        if flat and isinstance(problem.cost, HasRowGradient) and _says_all(type(problem.cost)):
            return RowAdaGrad(problem.cost, self.batch_size, self.eps)
        return super().engine(problem)

    def rule(self, problem: Problem) -> StepRule:
        return Accumulating(self.eps)


def _says_all(kind: type) -> bool:
    """Return whether no subclass has changed the gradient of terms since that of rows was written."""
    names = "row_gradient", "term_gradient"
    made = [next((one for one in kind.__mro__ if name in vars(one)), object) for name in names]
    return issubclass(*made)


class SVRG(SGD):
    """Stochastic variance reduced gradients: constant step sizes lead to the minimum (Zhang, Reddi and Sra 2016).

    Every `period` steps the whole gradient is taken; between them the gradient of the step's terms is corrected by
    what they say at that point. A step costs twice one of `SGD`, and the whole gradients besides.

    Parameters
    ----------
    step_size : float, StepSize or callable
        As in `SGD`, with the same meaning.
    period : int, optional
        Steps between whole gradients; unless given, those of one pass over the terms.
    **options : object
        ``max_iter``, ``batch_size``, ``sampler``, ``retraction``, ``engine`` and ``average``, as in `SGD`.

    Raises
    ------
    MissingCapabilityError
        When the cost does not say how many terms it has.

    See Also
    --------
    SGD : no whole gradients; step sizes that fall.
    SRG : corrected from step to step.

    References
    ----------
    Zhang, Reddi and Sra, Riemannian SVRG: fast stochastic optimization on Riemannian manifolds, NIPS (2016),
    arXiv:1605.07147.

    Examples
    --------
    >>> import numpy as np
    >>> from rmopt import Problem
    >>> from rmopt.costs import BilinearSum, squared
    >>> from rmopt.manifolds import FixedRankEmbedded
    >>> from rmopt.solvers import SVRG
    >>> left, right = np.random.default_rng(0).standard_normal((2, 60, 3))
    >>> cost = BilinearSum(left, right, squared, left[:, 0] * right[:, 0])
    >>> problem = Problem(FixedRankEmbedded(3, 3, 1), cost)
    >>> result = SVRG(0.02, max_iter=200).run(problem, random_state=0)
    >>> problem.value(result.point) < 0.1
    True
    """

    _recursive = False

    def __init__(self, step_size: StepSizeLike, *, period: int | None = None, **options: Any) -> None:
        super().__init__(step_size, **options)
        if self.momentum > 0.0:
            raise InvalidInputError(f"{type(self).__name__} has no momentum; leave it out, or take SGD.")
        self.period = None if period is None else integer("period", period, 1)

    def rule(self, problem: Problem) -> StepRule:
        count = as_sum(problem.cost).n_terms
        if count is None:
            raise MissingCapabilityError(
                f"{type(self).__name__} needs a cost with a number of terms, and {type(problem.cost).__name__} has a "
                "stream of them (n_terms is None); take SGD or Adam."
            )
        share = min(1.0, self.batch_size / count)
        return VarianceReduced(self.period or max(1, round(1.0 / share)), share, self._recursive)


class SRG(SVRG):
    """Stochastic recursive gradients: as `SVRG`, but corrected from step to step (Kasai, Sato and Mishra 2018).

    Parameters
    ----------
    step_size, period, **options : optional
        As in `SVRG`.

    See Also
    --------
    SVRG : corrections by the last whole gradient alone.

    References
    ----------
    Kasai, Sato and Mishra, Riemannian stochastic recursive gradient algorithm, ICML (2018),
    https://proceedings.mlr.press/v80/kasai18a.html.

    Examples
    --------
    >>> import numpy as np
    >>> from rmopt import Problem
    >>> from rmopt.costs import BilinearSum, squared
    >>> from rmopt.manifolds import FixedRankEmbedded
    >>> from rmopt.solvers import SRG
    >>> left, right = np.random.default_rng(0).standard_normal((2, 60, 3))
    >>> cost = BilinearSum(left, right, squared, left[:, 0] * right[:, 0])
    >>> problem = Problem(FixedRankEmbedded(3, 3, 1), cost)
    >>> result = SRG(0.03, max_iter=250).run(problem, random_state=0)
    >>> problem.value(result.point) < 1.0
    True
    """

    _recursive = True
