"""Flower: clients learn a model of low rank from data that they keep, and the server averages on the manifold."""

import logging
from collections.abc import Iterable
from typing import Any

import numpy as np

from rmopt.core.arguments import instance, number, shown
from rmopt.core.manifold import Manifold
from rmopt.core.points import in_precision, packed, unpacked
from rmopt.errors import InvalidInputError, MissingCapabilityError
from rmopt.manifolds.means import mean_on
from rmopt.precision import real_type

try:
    from flwr.app import Array, ArrayRecord
    from flwr.serverapp.strategy import FedAvg

    MISSING = None
except ImportError as error:
    # The strategy says so when it is made: a module that cannot be imported is told in no sentence.
    FedAvg, MISSING = object, error

__all__ = ["ManifoldAveraging", "from_arrays", "to_arrays"]

# A point that is an array has no names of parts.
ALONE = "point"


def to_arrays(point: Any) -> Any:
    """Return the arrays of a point as a record that Flower sends.

    Parameters
    ----------
    point : point
        Its parts keep their names: ``U``, ``S`` and ``V`` of a `LowRankPoint`.

    Returns
    -------
    flwr.app.ArrayRecord

    Raises
    ------
    MissingCapabilityError
        When Flower is not installed.

    See Also
    --------
    from_arrays : the other way.

    Examples
    --------
    >>> import numpy as np
    >>> from rmopt.interop.flower import to_arrays
    >>> to_arrays(np.eye(3))["point"].shape  # doctest: +SKIP
    (3, 3)
    """
    _needs_flower()
    try:
        parts = packed(point)
    except InvalidInputError:
        raise InvalidInputError(
            f"point = {shown(point)} must be a point: an array, or a class of arrays such as LowRankPoint."
        ) from None
    return ArrayRecord({name or ALONE: Array(np.ascontiguousarray(part)) for name, part in parts.items()})


def from_arrays(manifold: Manifold, arrays: Any) -> Any:
    """Return the point of a manifold that a record of Flower holds.

    Parameters
    ----------
    manifold : Manifold
    arrays : flwr.app.ArrayRecord
        With the parts of a point by name, in double precision, or all in single precision.

    Returns
    -------
    point

    Raises
    ------
    InvalidInputError
        When parts are missing or have other shapes, or the point is not on the manifold.

    See Also
    --------
    to_arrays : the other way.

    Examples
    --------
    >>> import numpy as np
    >>> from rmopt.interop.flower import from_arrays, to_arrays
    >>> from rmopt.manifolds import Stiefel
    >>> from_arrays(Stiefel(3, 3), to_arrays(np.eye(3))).shape  # doctest: +SKIP
    (3, 3)
    """
    _needs_flower()
    arrays = instance("arrays", arrays, ArrayRecord, "an ArrayRecord, such as to_arrays(point)")
    found = {"" if name == ALONE else name: part.numpy() for name, part in arrays.items()}
    like = manifold.random_point(np.random.default_rng(0))
    point = unpacked(found, in_precision(like, real_type(*found.values())) if found else like)
    if (flaw := manifold.check_point(point)) is not None:
        raise InvalidInputError(f"it is not on {manifold}: {flaw}")
    return point


class ManifoldAveraging(FedAvg):
    """A strategy of Flower that averages points on their manifold, where `FedAvg` averages arrays.

    The factors of matrices of low rank have no meaning apart from each other: the mean of the clients' factors is not
    that of their matrices. Here the new point is the nearest one to the weighted sum of the clients' matrices
    (`projected_mean`), with weights by their numbers of examples. All else is `FedAvg`'s. A client whose reply is no
    point, of numbers that are not finite for example, or names no number of examples, is left out of the round with a
    warning.

    Parameters
    ----------
    manifold : Manifold
        One of those of `projected_mean`.
    outer_step : float
        How far to go from the last point towards the mean; above 1 it goes beyond. With many
        clients, of which each moves in a direction of its own, that wins back what the mean takes away.
    **options : object
        Those of ``flwr.serverapp.strategy.FedAvg``: ``fraction_train``, ``min_available_nodes`` and others.

    Raises
    ------
    MissingCapabilityError
        When Flower is not installed, or the manifold has no mean here.
    InvalidInputError
        While it runs, when no client of a round replied with a point, all had no examples, or their points cancel
        each other.

    See Also
    --------
    rmopt.solvers.Parallel : workers of one program.
    problems.subspace.agree : without a server, with the result of one place.

    References
    ----------
    McMahan, Moore, Ramage, Hampson and Agüera y Arcas, Communication-efficient learning of deep networks from
    decentralized data, AISTATS (2017), arXiv:1602.05629.

    Examples
    --------
    >>> from rmopt.interop.flower import ManifoldAveraging, from_arrays, to_arrays
    >>> from rmopt.manifolds import FixedRankEmbedded
    >>> manifold = FixedRankEmbedded(64, 64, 10)
    >>> strategy = ManifoldAveraging(manifold)  # doctest: +SKIP
    >>> start = to_arrays(manifold.identity())  # doctest: +SKIP
    >>> found = strategy.start(grid, start, num_rounds=10)  # doctest: +SKIP
    >>> from_arrays(manifold, found.arrays).rank  # doctest: +SKIP
    10
    """

    def __init__(self, manifold: Manifold, *, outer_step: float = 1.0, **options: Any) -> None:
        _needs_flower()
        self.manifold = instance("manifold", manifold, Manifold, "a Manifold of rmopt")
        self.outer_step = number("outer_step", outer_step, above=0)
        self._mean, self._sent = mean_on(self.manifold), None
        super().__init__(**options)

    def configure_train(self, server_round: int, arrays: Any, config: Any, grid: Any) -> Any:
        """Send the point to clients (see `FedAvg`)."""
        self._sent = from_arrays(self.manifold, arrays)
        return super().configure_train(server_round, arrays, config, grid)

    def aggregate_train(self, server_round: int, replies: Iterable[Any]) -> tuple[Any, Any]:
        """Return the mean of the clients' points, and that of their metrics."""
        valid, _ = self._check_and_log_replies(replies, is_train=True)
        points, counts, used, flaw = [], [], [], ""
        # In the order of the clients, so that bits do not depend on who is first.
        for reply in sorted(valid, key=lambda message: message.metadata.src_node_id):
            [arrays] = reply.content.array_records.values()
            [metrics] = reply.content.metric_records.values()
            try:
                count = number(self.weighted_by_key, metrics[self.weighted_by_key], least=0)
                points.append(from_arrays(self.manifold, arrays))
            except InvalidInputError as error:
                flaw = (
                    f"the reply of client {reply.metadata.src_node_id} is of no use: {str(error).rstrip('.')}"
                )
                logging.getLogger("flwr").warning("%s; it is left out.", flaw)
            else:
                counts.append(count)
                used.append(reply.content)
        if not points and not flaw:
            return None, None
        weights = np.array(counts)
        if not weights.sum() > 0:
            raise InvalidInputError(
                f"no client replied with a point and a number of examples above 0{flaw and ': '}{flaw}; let clients "
                f"send to_arrays(point), and how many examples they have as {self.weighted_by_key!r}."
            )
        mean = self._mean(points, weights / weights.sum())
        if self.outer_step != 1.0 and self._sent is not None:
            mean = self._mean([self._sent, mean], np.array([1.0 - self.outer_step, self.outer_step]))
        return to_arrays(mean), self.train_metrics_aggr_fn(used, self.weighted_by_key)


def _needs_flower() -> None:
    if MISSING is not None:
        raise MissingCapabilityError(
            f'federated learning needs Flower ({MISSING}); pip install "rmopt[federated]".'
        )
