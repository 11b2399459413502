"""L-BFGS from afar, trust regions when it is near."""

from dataclasses import dataclass, field
from typing import Annotated, Any

from rmopt.core.arguments import bounded, integer, number
from rmopt.solvers.descent import GradientSolver
from rmopt.solvers.line_search import LBFGS
from rmopt.solvers.oracle import Iterate, Oracle
from rmopt.solvers.trust_regions import TrustRegions, beside_saddle


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class Hybrid(GradientSolver):
    """`LBFGS` from afar, `TrustRegions` when it is near; trust regions alone where the cost has a preconditioner.

    L-BFGS goes along curved valleys with the cheaper steps; trust regions bring the gradient down to what a
    certificate needs.

    Parameters
    ----------
    max_iter, tol, gradient_norm, retraction, transport : optional
        As in `GradientSolver`.
    switch : float
        Share of the first gradient's length at which trust regions take over.
    memory : int
        Of L-BFGS.

    See Also
    --------
    TrustRegions : where the Hessian is cheap from the start.
    LBFGS : where there is no Hessian.

    References
    ----------
    Huang, Gallivan and Absil, A Broyden class of quasi-Newton methods for Riemannian optimization, SIAM J.
    Optim. 25 (2015), https://doi.org/10.1137/140955483. Absil, Baker and Gallivan, Trust-region methods on
    Riemannian manifolds, Foundations of Computational Mathematics 7 (2007),
    https://doi.org/10.1007/s10208-005-0179-9.

    Examples
    --------
    >>> from rmopt import Problem, autograd_cost
    >>> from rmopt.manifolds import Sphere
    >>> from rmopt.solvers import Hybrid
    >>> problem = Problem(Sphere(5), autograd_cost(lambda x: (x**4).sum()))
    >>> result = Hybrid().run(problem, random_state=0)
    >>> result.converged, round(result.history[-1]["cost"], 6)
    (True, 0.2)
    """

    switch: Annotated[float, bounded(number, least=0)] = 1e-3
    memory: Annotated[int, bounded(integer, 1)] = 20
    far: LBFGS = field(init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "far", LBFGS(self.memory))

    @property
    def near(self) -> TrustRegions:
        """Trust regions whose steps are as exact as the end of this run asks for."""
        return TrustRegions(tol=self.tol, gradient_norm=self.gradient_norm)

    def begin(self, work: Oracle, point: Any) -> Iterate:
        state = self.far.begin(work, point)
        below = beside_saddle(work, state) if work.begins_flat and self.max_iter else None
        if below is not None:
            return self.begin(work, below)
        return state._replace(memory=(state.memory, self.near.begin_memory))

    def advance(self, work: Oracle, state: Iterate, steps: int) -> Iterate:
        if steps == 0:
            self.near.advance(work, state._replace(memory=state.memory[1]), 0)
        return super().advance(work, state, steps)

    def _step(self, work: Oracle, state: Iterate) -> Iterate:
        far, near = state.memory
        if state.norm > self.switch * state.first_norm and work.preconditioner(state.point) is None:
            done = self.far._step(work, state._replace(memory=far))
            if not done.stuck:
                return done._replace(memory=(done.memory, near))
        done = self.near._step(work, state._replace(memory=near))
        if not self.far.direction.fresh(far):
            # Its pairs belong to the point before.
            far = self.far.direction.begin(work, done)
        return done._replace(memory=(far, done.memory))
