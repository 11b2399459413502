"""SGD and Adam in PyTorch for parameters that are points of manifolds of arrays."""

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.optim import Optimizer

from rmopt import namespaces as ns
from rmopt.core.arguments import shown
from rmopt.core.points import is_finite
from rmopt.errors import InvalidInputError
from rmopt.manifolds import ArrayManifold, Euclidean, Power


class _Riemannian(Optimizer):
    """The base of both: groups with a manifold move on it, and torch itself moves the others.

    Momenta of the former are tangent vectors, moved by the transport of the manifold.
    """

    flat: ClassVar[Callable[..., Optimizer]]
    momentum: ClassVar[str]

    def __init__(self, params: Any, **options: Any) -> None:
        # Torch's own class refuses unknown options.
        self.flat([torch.zeros(())], **options)
        super().__init__(params, options | {"manifold": None})

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group of parameters, which must be points of its manifold."""
        super().add_param_group(param_group)
        group, manifold = self.param_groups[-1], self.param_groups[-1]["manifold"]
        for place, parameter in enumerate(group["params"] if manifold is not None else ()):
            if (reason := _refusal(manifold, parameter)) is not None:
                self.param_groups.pop()
                place = group.get("param_names", {place: f"{place} of group {len(self.param_groups)}"})[place]
                raise InvalidInputError(f"parameter {place} cannot move on {shown(manifold)}: {reason}.")

    def state_dict(self) -> dict[str, Any]:
        """Return the state as torch's optimisers do, without the manifolds."""
        found = super().state_dict()
        for group in found["param_groups"]:
            del group["manifold"]
        return found

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load the state of an optimiser with the same groups. The manifolds stay."""
        manifolds = [group["manifold"] for group in self.param_groups]
        super().load_state_dict(state_dict)
        for group, manifold in zip(self.param_groups, manifolds, strict=True):
            group["manifold"] = manifold

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Move all parameters that have gradients.

        Parameters
        ----------
        closure : callable, optional
            A function that computes the loss and its gradients again.

        Returns
        -------
        tensor or None
            The loss that the closure returned.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        flat = []
        for group in self.param_groups:
            if type(group["manifold"]) in (type(None), Euclidean):
                # Each coordinate is a separate manifold, on which torch's step is right.
                flat.append(group)
                continue
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._move(parameter, group)
        if flat:
            of_flat = self.flat(flat)
            of_flat.state = self.state
            of_flat.step()
        return loss

    def _move(self, parameter: Tensor, group: dict[str, Any]) -> None:
        # During a step it may cache.
        manifold, point, state = group["manifold"]._in_a_run(), parameter.detach(), self.state[parameter]
        gradient = parameter.grad.to_dense()
        gradient = -gradient if group["maximize"] else gradient
        try:
            direction = self._direction(manifold, point, gradient, group, state)
            moved = manifold.default_retraction(manifold, point, direction, -group["lr"])
            if (carried := state.get(self.momentum)) is not None:
                state[self.momentum] = manifold.default_transport(manifold, point, moved, carried)
        except (InvalidInputError, RuntimeError) as error:
            if is_finite(gradient):
                raise
            raise InvalidInputError(
                f"a gradient on {manifold} holds NaN or infinity; take a smaller lr, or clip gradients."
            ) from error
        point.copy_(moved)

    @abstractmethod
    def _direction(
        self, manifold: Any, point: Tensor, gradient: Tensor, group: dict[str, Any], state: dict[str, Any]
    ) -> Tensor:
        """Return the tangent vector opposite to the step, for a Euclidean gradient, with momenta in the state."""


class RiemannianSGD(_Riemannian):
    """SGD in PyTorch for parameters that are points of manifolds.

    A step follows the retraction of the manifold, and its transport moves the momentum. `Manifold.using` exchanges
    both. Each step ends on the manifold up to rounding, so that no correction is needed.

    Parameters
    ----------
    params : iterable
        Parameters, or groups as torch takes them. A group ``{"params": …, "manifold": Stiefel(n, p)}`` holds
        points of a manifold of arrays, or many as one parameter: axes in front of those of a point are a batch.
        Groups without a manifold are moved by `torch.optim.SGD` itself.
    lr : float
        The learning rate: the length of a step in gradients.
    momentum, dampening : float
    weight_decay : float
        This multiple of a parameter is added to its Euclidean gradient. It has no effect if all points have the same
        length, such as frames and unit vectors.
    nesterov : bool
    maximize : bool

    See Also
    --------
    RiemannianAdam : steps whose length is independent of gradients.
    rmopt.solvers.SGD : for problems without a network.

    References
    ----------
    Bonnabel, Stochastic gradient descent on Riemannian manifolds, IEEE Transactions on Automatic Control 58 (2013),
    https://doi.org/10.1109/TAC.2013.2254619.

    Examples
    --------
    >>> import torch  # doctest: +SKIP
    >>> from rmopt.manifolds import Sphere
    >>> from rmopt.torch import RiemannianSGD  # doctest: +SKIP
    >>> x = torch.nn.Parameter(torch.tensor([1.0, 0.0, 0.0]))  # doctest: +SKIP
    >>> optimizer = RiemannianSGD(
    ...     [{"params": [x], "manifold": Sphere(3)}], lr=0.1
    ... )  # doctest: +SKIP
    >>> for _ in range(200):  # doctest: +SKIP
    ...     optimizer.zero_grad()
    ...     loss = -x @ torch.tensor([0.0, 3.0, 4.0])
    ...     loss.backward()
    ...     optimizer.step()
    >>> [round(number, 3) for number in x.tolist()]  # doctest: +SKIP
    [0.0, 0.6, 0.8]
    """

    flat = torch.optim.SGD
    momentum = "momentum_buffer"

    def __init__(
        self, params: Any, lr: float = 1e-3, momentum: float = 0.0, dampening: float = 0.0, weight_decay: float = 0.0,
        nesterov: bool = False, *, maximize: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(
            params, lr=lr, momentum=momentum, dampening=dampening, weight_decay=weight_decay, nesterov=nesterov,
            maximize=maximize,
        )  # fmt: skip

    def _direction(
        self, manifold: Any, point: Tensor, gradient: Tensor, group: dict[str, Any], state: dict[str, Any]
    ) -> Tensor:
        if decay := group["weight_decay"]:
            gradient = torch.add(gradient, point, alpha=decay)
        gradient = manifold.euclidean_to_riemannian_gradient(point, gradient)
        if not (rate := group["momentum"]):
            return gradient
        kept = state.get(self.momentum)
        # Copied, because the next backward pass may overwrite the array.
        new = 1.0 - group["dampening"]
        kept = gradient.clone() if kept is None else torch.add(rate * kept, gradient, alpha=new)
        state[self.momentum] = kept
        return torch.add(gradient, kept, alpha=rate) if group["nesterov"] else kept


class RiemannianAdam(_Riemannian):
    """Adam in PyTorch for parameters that are points of manifolds.

    As `RiemannianSGD`, with steps of about the length `lr`, whatever that of gradients. The second moment is that of
    the length of a point's gradient in the metric: one number for a point, because a manifold has no coordinates with
    separate numbers (Bécigneul and Ganea 2019). A batch has one for each of its points.

    Parameters
    ----------
    params : iterable
        Parameters, or groups as torch takes them. A group ``{"params": …, "manifold": Stiefel(n, p)}`` holds
        points of a manifold of arrays, or many as one parameter: axes in front of those of a point are a batch.
        Groups without a manifold are moved by `torch.optim.AdamW` itself.
    lr : float
        The approximate length of a step, in groups without a manifold that of each number.
    betas : (float, float)
    eps : float
    weight_decay : float
        Decoupled from the moments: each parameter shrinks by this times lr, or moves against the gradient of ½‖X‖².
        It has no effect if all points have the same length.
    amsgrad : bool
    maximize : bool

    See Also
    --------
    RiemannianSGD : steps along gradients, with a momentum.

    References
    ----------
    Bécigneul and Ganea, Riemannian adaptive optimization methods, ICLR (2019), arXiv:1810.00760.

    Examples
    --------
    >>> import torch  # doctest: +SKIP
    >>> from rmopt.manifolds import Stiefel
    >>> from rmopt.torch import RiemannianAdam  # doctest: +SKIP
    >>> layer = torch.nn.Linear(4, 4, bias=False)  # doctest: +SKIP
    >>> frame = torch.nn.init.orthogonal_(layer.weight)  # doctest: +SKIP
    >>> group = {"params": layer.parameters(), "manifold": Stiefel(4, 4)}  # doctest: +SKIP
    >>> optimizer = RiemannianAdam([group], lr=0.1)  # doctest: +SKIP
    >>> layer(torch.ones(4)).sum().backward()  # doctest: +SKIP
    >>> optimizer.step()  # doctest: +SKIP
    >>> bool(torch.allclose(frame.T @ frame, torch.eye(4), atol=1e-5))  # doctest: +SKIP
    True
    """

    flat = torch.optim.AdamW
    momentum = "exp_avg"

    def __init__(
        self, params: Any, lr: float = 1e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8,
        weight_decay: float = 0.0, amsgrad: bool = False, *, maximize: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(
            params, lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, amsgrad=amsgrad, maximize=maximize
        )

    def _direction(
        self, manifold: Any, point: Tensor, gradient: Tensor, group: dict[str, Any], state: dict[str, Any]
    ) -> Tensor:
        gradient = manifold.euclidean_to_riemannian_gradient(point, gradient)
        # One number for each point, since lengths of vectors do not depend on coordinates.
        squares = manifold.inner_products(point, gradient, gradient)
        squares = squares.reshape(*squares.shape, *[1] * len(manifold.shape))
        if not state:
            state |= {
                "step": 0,
                "exp_avg": torch.zeros_like(gradient),
                "exp_avg_sq": torch.zeros_like(squares),
            }
        slow, slower = group["betas"]
        state["step"] += 1
        state["exp_avg"] = torch.lerp(state["exp_avg"], gradient, 1.0 - slow)
        state["exp_avg_sq"] = torch.lerp(state["exp_avg_sq"], squares, 1.0 - slower)
        most = state["exp_avg_sq"]
        if group["amsgrad"]:
            most = state["max_exp_avg_sq"] = torch.maximum(most, state.get("max_exp_avg_sq", most))
        length = (most / (1.0 - slower ** state["step"])).sqrt() + group["eps"]
        direction = state["exp_avg"] / (length * (1.0 - slow ** state["step"]))
        if decay := group["weight_decay"]:
            direction = direction + decay * manifold.euclidean_to_riemannian_gradient(point, point)
        return direction


def _refusal(manifold: Any, parameter: Tensor) -> str | None:
    """Return why a parameter cannot be moved on a manifold, or None."""
    if not isinstance(manifold, ArrayManifold):
        return "it needs a manifold of arrays, such as Stiefel; give each part of a Product its own group"
    if str(parameter.dtype).removeprefix("torch.") not in ns.TYPES:
        return f"it is of {parameter.dtype}; keep it in float32, and let autocast compute in fewer bits"
    points, axes = parameter.detach(), len(manifold.shape)
    many = points.ndim > axes and tuple(points.shape[-axes:]) == manifold.shape
    if many:
        # It refuses formulas of single points.
        Power(manifold, 2)
        reason = manifold.check_point(points.reshape(-1, *manifold.shape)[0])
        reason = reason or (manifold.refusal(points) if is_finite(points) else "it holds NaN or infinity")
    else:
        reason = manifold.check_point(points)
    return reason and f"{reason}. Begin with parameter.data = manifold.random_point(like=parameter)"
