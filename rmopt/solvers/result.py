"""The end of a run, as text and as a picture."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rmopt.core.arguments import shown
from rmopt.errors import MissingCapabilityError


@dataclass(frozen=True, eq=False)
class Result:
    """The end of a run.

    Attributes
    ----------
    point : object
        The last point.
    steps, updates : int
        Steps done, and how many of them moved the point.
    seconds : float
        Training time, without measurements and saves.
    stopped_by : str
        Why the run ended.
    seed : int
        The seed that repeats it.
    history : list of dict
        The recorder's rows. Those of a full-gradient solver hold each step's cost and gradient norm.
    converged : bool
        Whether it ended because it reached its goal, and not because its budget was used up. Full-gradient solvers
        test the last gradient against values of the cost. If these contradict it they warn, and this is False.
    counts : mapping from str to int
        The run's evaluations, if counted: ``costs``, ``gradients``, ``hessians`` and ``retractions``.
    threads : int or None
        The number of threads of numpy's BLAS in the run, or None if unknown.
    least_curvature : float or None
        The least eigenvalue of the Hessian at the point, if the solver has `second_order`.

    Examples
    --------
    >>> from rmopt import Problem, autograd_cost
    >>> from rmopt.manifolds import Sphere
    >>> from rmopt.solvers import LBFGS
    >>> problem = Problem(Sphere(5), autograd_cost(lambda x: (x**4).sum()))
    >>> result = LBFGS().run(problem, random_state=0)
    >>> result.converged, len(result.history) == result.steps + 1
    (True, True)
    """

    point: Any = field(repr=False)
    steps: int
    updates: int
    seconds: float
    stopped_by: str
    seed: int
    history: list[dict[str, Any]] = field(repr=False)
    converged: bool = False
    counts: dict[str, int] = field(default_factory=dict)
    threads: int | None = None
    least_curvature: float | None = None

    @property
    def cost(self) -> float:
        """The cost at the last point, for full-gradient solvers. For others compute `problem.value(point)`."""
        return self._last("cost")

    @property
    def gradient_norm(self) -> float:
        """The length of the gradient at the last point, for full-gradient solvers."""
        return self._last("gradient_norm")

    def __str__(self) -> str:
        seen = "".join(f"cost {self.cost:.6g}, " for row in self.history[-1:] if "cost" in row)
        where = f"{self.steps} steps, {self.seconds:.3g} s, point {shown(self.point)}"
        return f"{'not ' * (not self.converged)}converged ({self.stopped_by}): {seen}{where}"

    def plot(self, figure: Any = None, label: str | None = None) -> Any:
        """Draw cost and length of the gradient against steps and seconds.

        The cost is drawn minus the lowest in the figure, to show the last digits of convergence.

        Parameters
        ----------
        figure : matplotlib.figure.Figure, optional
            The figure from `plot` of another result, to which this one is added.
        label : str, optional
            A name for the legend.

        Returns
        -------
        matplotlib.figure.Figure
            Write it to a file by its `savefig`.

        Examples
        --------
        >>> from rmopt import Problem, autograd_cost
        >>> from rmopt.manifolds import Sphere
        >>> from rmopt.solvers import ConjugateGradient, LBFGS
        >>> problem = Problem(Sphere(5), autograd_cost(lambda x: (x**4).sum()))
        >>> figure = LBFGS().run(problem, random_state=0).plot(label="LBFGS")
        >>> other = ConjugateGradient().run(problem, random_state=0)
        >>> other.plot(figure, label="ConjugateGradient").axes[0].get_ylabel()
        'cost − lowest'
        """
        from matplotlib.figure import Figure

        self._last("cost")
        if figure is None:
            figure = Figure((8.0, 6.0), layout="constrained")
            figure.subplots(2, 2, sharex="col", sharey="row")
        places = [(seen, along) for seen in ("cost", "gradient_norm") for along in ("step", "seconds")]
        for ax, (seen, along) in zip(figure.axes, places, strict=True):
            values = np.array([row[seen] for row in self.history], dtype=float)
            lines = [each for each in ax.lines if hasattr(each, "values")]
            lowest = min([values.min(), *(each.values.min() for each in lines)]) if seen == "cost" else 0.0
            for each in lines:
                each.set_ydata(each.values - lowest)
            # Runs that end alike hide each other's lines, but for their dashes.
            dashes = ("-", "--", "-.", ":")[len(ax.lines) % 4]
            (drawn,) = ax.plot([row[along] for row in self.history], values - lowest, dashes, label=label)
            drawn.values = values
            if any((each.get_ydata() > 0.0).any() for each in [*lines, drawn]):
                ax.set_yscale("log", nonpositive="mask"), ax.relim(), ax.autoscale_view()
        figure.axes[0].set(ylabel="cost − lowest"), figure.axes[3].set(xlabel="seconds")
        figure.axes[2].set(ylabel="gradient norm", xlabel="steps")
        # Short times have long labels.
        figure.axes[3].locator_params("x", nbins=5)
        if label is not None:
            figure.axes[0].legend()
        return figure

    def _last(self, name: str) -> float:
        if not self.history or name not in self.history[-1]:
            raise MissingCapabilityError(
                f"the solver did not evaluate the full {name}; compute it by the problem, at result.point."
            )
        return float(self.history[-1][name])
