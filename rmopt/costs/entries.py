"""Sums of losses on the known entries of a tensor."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from rmopt.core.ambient import Array
from rmopt.core.arguments import integer, numbers, sequence
from rmopt.core.cost import FiniteSum
from rmopt.core.product import Parts
from rmopt.core.tensors import Entries, Form, TensorPoint, Tucker, in_order
from rmopt.costs.losses import Loss, as_loss, check_targets, squared
from rmopt.errors import InvalidInputError, MissingCapabilityError


class EntrySum(FiniteSum):
    """Σ φ(X[i₁, …, i_d], y) over known entries of a tensor X, for tensor completion, by compiled loops.

    The full tensor is never formed: N entries cost O(N r + M r²), with M distinct pairs of places on the first axes.

    Parameters
    ----------
    shape : sequence of int
    indices : int array, shape (N, d)
        Places of the entries, from 0. They are stored in lexicographic order, which numbers the terms.
    targets : array, shape (N,)
    loss : Loss, optional
        Defaults to the squared loss.

    See Also
    --------
    rmopt.manifolds.FixedMultilinearRank, rmopt.manifolds.TensorTrain : ``from_entries`` gives a start.
    BilinearSum : matrices.

    Notes
    -----
    It is also a cost on a product of the core and the factors, ``Product([Euclidean(*ranks), Stiefel(n, r), …])``.

    Examples
    --------
    >>> import numpy as np
    >>> from rmopt import Problem
    >>> from rmopt.costs import EntrySum
    >>> from rmopt.manifolds import FixedMultilinearRank
    >>> from rmopt.solvers import ConjugateGradient
    >>> rng = np.random.default_rng(0)
    >>> manifold = FixedMultilinearRank((10, 11, 12), (2, 2, 2))
    >>> truth = manifold.random_point(rng)
    >>> seen = rng.integers((10, 11, 12), size=(600, 3))
    >>> cost = EntrySum(manifold.shape, seen, truth.entries(seen))
    >>> start = manifold.from_entries(cost.indices, cost.targets)
    >>> found = ConjugateGradient(tol=1e-8).run(Problem(manifold, cost), start).point
    >>> bool(np.allclose(found.as_ambient().toarray(), truth.as_ambient().toarray()))
    True
    """

    point_type = (TensorPoint, Parts)
    remedy = "take FixedMultilinearRank, TensorTrain, or a product of a core and factors"

    def __init__(self, shape: Sequence[int], indices: Any, targets: Any, loss: Loss = squared) -> None:
        self.shape = tuple(integer("a size in shape", n, 1) for n in sequence("shape", shape))
        order, self.indices = in_order(indices, self.shape)
        self.targets = numbers("targets", targets, (len(order),))[order]
        self.loss = as_loss(loss)
        check_targets(self.loss, self.targets)

    @property
    def n_terms(self) -> int:
        """Number of entries."""
        return len(self.targets)

    def value(self, point: Any) -> float:
        return float(self.loss.values(self._scores(point), self.targets).sum())

    def gradient(self, point: Any) -> Any:
        return self.value_and_gradient(point)[1]

    def value_and_gradient(self, point: Any) -> tuple[float, Any]:
        found = self._scores(point)
        weights = self.loss.slopes(found, self.targets)
        value = float(self.loss.values(found, self.targets).sum())
        return value, self._as_gradient(point, self.indices, weights)

    def term_gradient(self, point: Any, terms: Array) -> Any:
        terms = np.sort(terms)
        places = self.indices[terms]
        weights = self.loss.slopes(self._form(point).at(places), self.targets[terms])
        return self._as_gradient(point, places, weights)

    def hessian(self, point: TensorPoint, direction: Form) -> Entries:
        """Return Σ φ'' times the entries of a direction, as a sparse tensor."""
        return self.hessian_along(point)(direction)

    def hessian_along(self, point: TensorPoint) -> Callable[[Any], Entries]:
        if isinstance(point, Parts):
            raise MissingCapabilityError("EntrySum has no Hessian on products; take FixedMultilinearRank.")
        curvatures = self.loss.curvatures(self._scores(point), self.targets)

        def along(direction: Form) -> Entries:
            return Entries(self.shape, self.indices, curvatures * direction.at(self.indices))

        return along

    def _scores(self, point: Any) -> Array:
        return self._form(point).at(self.indices)

    def _as_gradient(self, point: Any, places: Array, weights: Array) -> Any:
        tensor = Entries(self.shape, places, weights)
        return Parts(self._form(point).partials(tensor)) if isinstance(point, Parts) else tensor

    def _form(self, point: Any) -> Form:
        """Return the tensor of a point, checked for the right shape, since loops do not check bounds."""
        form = point.as_ambient() if isinstance(point, TensorPoint) else Tucker(point[0], point.parts[1:])
        ranks = [U.shape[1] for U in form.factors] if isinstance(form, Tucker) else []
        if form.shape != self.shape or (isinstance(form, Tucker) and list(form.core.shape) != ranks):
            raise InvalidInputError(
                f"EntrySum takes tensors of shape {self.shape}, and a point has arrays of shapes "
                f"{[tuple(part.shape) for part in point.parts]}; make the manifold fit the data."
            )
        return form
