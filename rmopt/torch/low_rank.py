"""Optimisers of matrices W = B A of low rank, such as adapters and low-rank layers of networks.

A step moves the matrix W, not its factors: it does not depend on the B and A that represent W. Internally factors are
rows, b = Bᵀ (k × n) and a = A (k × m), as are bases, u = Uᵀ and v = Vᵀ, for fast products along rows. The momentum is
stored as the gradients by b and a for which it would be the gradient by W, so that it has their shapes and device.
The host reads nothing back, and equal shapes move together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from rmopt.errors import InvalidInputError

__all__ = ["LowRankLinear", "LowRankMuon", "LowRankSGD", "low_rank_pairs"]

Pair = tuple[nn.Parameter, nn.Parameter]

# Columns of B are not made shorter than this, so that rows of A keep their numbers if W loses rank.
SHORTEST = 1e-3
# The numbers in one side's factors that move together on a CPU, so that they stay in its cache.
CACHED = 2**17
# Odd polynomials whose composition maps [1e-3, 1] to 1 (Amsel, Persson, Musco and Gower 2025).
POLAR = (
    (8.28721201814563, -23.595886519098837, 17.300387312530933),
    (4.107059111542203, -2.9478499167379106, 0.5448431082926601),
    (3.9486908534822946, -2.908902115956949, 0.5518191394370137),
    (3.3184196573706015, -2.488488024314874, 0.51004894012372),
    (2.300652019954817, -1.6689039845749493, 0.4188073119525673),
    (1.891301407787398, -1.2679958271945868, 0.37680408948524835),
    (1.875, -1.25, 0.375),
)


class Tangent(NamedTuple):
    """ξ = leftᵀ middle right; left begins with u, right with v; and their products with their second halves."""

    left: Tensor
    middle: Tensor
    right: Tensor
    at_b: Tensor
    at_a: Tensor


class Pairs(list[Pair]):
    """Pairs (B, A), and the other trainable parameters of the model."""

    others: list[nn.Parameter]


def low_rank_pairs(model: nn.Module, a: str = "lora_A", b: str = "lora_B") -> Pairs:
    """Return the pairs (B, A) of a model's parameters by their names, such as those of PEFT or `LowRankLinear`.

    The names of two partners are equal but for one part between dots, `a` or `b`: ``q.lora_A.default.weight`` and
    ``q.lora_B.default.weight``. Frozen pairs are left out.

    Parameters
    ----------
    model : torch.nn.Module
    a, b : str
        The names of the factors.

    Returns
    -------
    list of (B, A)
        Its attribute `others` holds the other trained parameters of the model.

    Raises
    ------
    InvalidInputError
        For a factor without a partner, a half-frozen pair, and factors that are not matrices.

    Examples
    --------
    >>> from torch import nn
    >>> from rmopt.torch import LowRankLinear, low_rank_pairs
    >>> pairs = low_rank_pairs(
    ...     nn.Sequential(LowRankLinear(20, 10, rank=3), nn.ReLU(), nn.Linear(10, 2))
    ... )
    >>> [(tuple(B.shape), tuple(A.shape)) for B, A in pairs], len(pairs.others)
    ([((10, 3), (3, 20))], 3)
    """
    sides: dict[str, dict[str, nn.Parameter]] = {a: {}, b: {}}
    for name, parameter in model.named_parameters():
        parts = name.split(".")
        for side in sides:
            if side in parts:
                sides[side][".".join("*" if part == side else part for part in parts)] = parameter
    pairs = Pairs()
    for key in dict.fromkeys([*sides[a], *sides[b]]):
        if key not in sides[a] or key not in sides[b]:
            there, missing = (a, b) if key in sides[a] else (b, a)
            raise InvalidInputError(
                f"{key.replace('*', there)} has no partner {key.replace('*', missing)}; "
                "name the two factors by a= and b=."
            )
        pair = sides[b][key], sides[a][key]
        if any(p.requires_grad for p in pair):
            hold_to_pair(*pair, key.replace("*", f"({b}, {a})"))
            pairs.append(pair)
    if not pairs:
        raise InvalidInputError(
            f"no trained parameter has {a!r} or {b!r} in its name; name the two factors by a= and b=."
        )
    taken = {id(p) for pair in pairs for p in pair}
    pairs.others = [p for p in model.parameters() if p.requires_grad and id(p) not in taken]
    return pairs


def hold_to_pair(B: Tensor, A: Tensor, name: str) -> None:
    """Refuse anything but a pair of trained matrices B (n, k) and A (k, m)."""
    shapes = tuple(B.shape), tuple(A.shape)
    if B.ndim != 2 or A.ndim != 2 or B.shape[1] != A.shape[0] or not B.is_floating_point():
        wrong = f"has shapes {shapes[0]} and {shapes[1]}; give matrices B (n, k) and A (k, m) of real numbers"
    elif B.requires_grad != A.requires_grad:
        wrong = f"is frozen in its {'A' if B.requires_grad else 'B'}; freeze both factors or none"
    elif (B.dtype, B.device) != (A.dtype, A.device):
        wrong = "has factors of two types or on two devices; convert one of them"
    else:
        return
    raise InvalidInputError(f"the pair {name} {wrong}.")


class LowRankLinear(nn.Module):
    """A linear layer whose matrix is a product B A of rank k: x ↦ B (A x) + bias.

    Parameters
    ----------
    in_features, out_features : int
    rank : int
        The inner dimension k.
    bias : bool

    See Also
    --------
    LowRankMuon : trains it.

    Notes
    -----
    Initially the entries of B A have variance 1 / in_features, and B and A the same length.

    Examples
    --------
    >>> import torch
    >>> from rmopt.torch import LowRankLinear
    >>> layer = LowRankLinear(20, 10, rank=3)
    >>> tuple(layer(torch.zeros(5, 20)).shape), sum(p.numel() for p in layer.parameters())
    ((5, 10), 100)
    """

    def __init__(self, in_features: int, out_features: int, rank: int, bias: bool = True) -> None:
        super().__init__()
        scale = (in_features * rank) ** -0.25
        self.lora_A = nn.Parameter(scale * torch.randn(rank, in_features))
        self.lora_B = nn.Parameter(scale * torch.randn(out_features, rank))
        self.bias = nn.Parameter(torch.zeros(out_features)) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        linear = nn.functional.linear
        return linear(linear(x, self.lora_A), self.lora_B, self.bias)

    def extra_repr(self) -> str:
        (out, rank), n = self.lora_B.shape, self.lora_A.shape[1]
        return f"in_features={n}, out_features={out}, rank={rank}, bias={self.bias is not None}"


class _LowRank(torch.optim.Optimizer):
    """The base of the optimisers: groups of pairs and of other parameters, and the step."""

    def __init__(
        self, pairs: Iterable[Any], defaults: dict[str, Any], others: Mapping[str, Any] | None
    ) -> None:
        for name in ("lr", "momentum", "weight_decay"):
            if defaults[name] < 0.0:
                raise InvalidInputError(f"{name} is {defaults[name]}; it must not be negative.")
        rest = getattr(pairs, "others", None)
        if not (groups := list(pairs)) or not isinstance(groups[0], Mapping):
            groups = [{"pairs": groups}]
        super().__init__(groups, defaults)
        if others is not None:
            self.add_param_group({"params": rest} | dict(others))

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add ``{"pairs": [(B, A), …], "lr": …}``, or ``{"params": […], "lr": …}`` for AdamW."""
        group = dict(param_group)
        if (pairs := group.get("pairs")) is None:
            if group.get("params") is None:
                raise InvalidInputError("others= has no params; give others=dict(params=…).")
            group = torch.optim.AdamW([group]).param_groups[0]
        else:
            for i, (B, A) in enumerate(pairs):
                hold_to_pair(B, A, f"{i} of shapes {tuple(B.shape)} and {tuple(A.shape)}")
            group["params"] = [p for pair in pairs for p in pair]
        super().add_param_group(group | {"pairs": pairs is not None})

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Move all parameters that have gradients, and return the loss of the closure, if given."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            if group["pairs"]:
                for pairs in self._alike(group["params"]):
                    self._move(group, pairs)
        rest = [group for group in self.param_groups if not group["pairs"]]
        if rest:
            if not hasattr(self, "_adamw"):
                self._adamw = torch.optim.AdamW([torch.zeros(1)])
            self._adamw.param_groups, self._adamw.state = rest, self.state
            self._adamw.step()
        return loss

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load the state of an optimiser with the same groups. Single precision stays single."""
        super().load_state_dict(state_dict)
        given = [i for group in state_dict["param_groups"] if group["pairs"] for i in group["params"]]
        own = [p for group in self.param_groups if group["pairs"] for p in group["params"]]
        for p, i in zip(own, given, strict=True):
            if i in state_dict["state"]:
                entries = state_dict["state"][i].items()
                self.state[p] = {key: x.to(p.device, copy=True) for key, x in entries}

    @staticmethod
    def _alike(params: list[Tensor]) -> Iterator[list[tuple[Tensor, Tensor]]]:
        """Yield lists of the pairs with gradients that have equal shapes."""
        found: dict[Any, list[tuple[Tensor, Tensor]]] = {}
        for B, A in zip(params[::2], params[1::2], strict=True):
            if (B.grad is None) != (A.grad is None):
                raise InvalidInputError(
                    f"the pair of shapes {tuple(B.shape)} and {tuple(A.shape)} has a gradient by one factor alone; "
                    "freeze both or none."
                )
            if B.grad is not None:
                found.setdefault((B.shape, A.shape, B.dtype, B.device), []).append((B, A))
        for pairs in found.values():
            B, A = pairs[0]
            most = max(1, CACHED // max(B.numel(), A.numel())) if B.device.type == "cpu" else len(pairs)
            yield from (pairs[i : i + most] for i in range(0, len(pairs), most))

    def _move(self, group: dict[str, Any], pairs: list[tuple[Tensor, Tensor]]) -> None:
        beta, (B, A) = group["momentum"], zip(*pairs, strict=True)
        states, coarse = [self.state[one] for one in B], B[0].dtype in (torch.bfloat16, torch.float16)
        exact = torch.float32 if coarse else B[0].dtype
        both_b = (
            torch.stack([X for p in B for X in (p, p.grad)]).to(exact).mT.contiguous().unflatten(0, (-1, 2))
        )
        both_a = torch.stack([X for p in A for X in (p, p.grad)]).to(exact).unflatten(0, (-1, 2))
        (b, gb), (a, ga) = both_b.unbind(1), both_a.unbind(1)
        if group["maximize"]:
            gb.neg_(), ga.neg_()
        fresh = not all(states)
        for state, one, other in zip(states, b, a, strict=True):
            if beta and "b" not in state:
                state |= {"b": torch.zeros_like(one), "a": torch.zeros_like(other)}
                state["lengths"] = one.new_zeros(2 * len(one))
            if coarse and "exact_b" not in state:
                state |= {"exact_b": one.clone(), "exact_a": other.clone()}
        if coarse:
            # Factors that still equal the rounded ones written last continue from before rounding.
            for x, key, p in ((b, "exact_b", B[0]), (a, "exact_a", A[0])):
                kept = torch.stack([state[key] for state in states])
                x.copy_(torch.where((kept.to(p.dtype) == x).all(dim=(-2, -1), keepdim=True), kept, x))
        # The rows of b are orthogonal unless other code has written into them.
        tb, ta = frame(b, again=fresh), frame(a)
        if beta:
            # If other code has written into the factors, the momentum does not belong to them.
            before = torch.stack([state["lengths"] for state in states])
            same = ((lengths(b, a) - before).abs() <= 1e-3 * before).all(dim=-1)[:, None, None].to(exact)
            gb.add_(torch.stack([state["b"] for state in states]).mul_(beta * same))
            ga.add_(torch.stack([state["a"] for state in states]).mul_(beta * same))
        left, right = torch.stack([tb, ta], 1) @ both_b, torch.stack([ta, tb], 1) @ both_a
        velocity = tangent(left.flatten(1, 2), right.flatten(1, 2))
        u1, seen, k = self._retracted(group, b, a, self._direction(velocity))
        d = k.norm(dim=-1, keepdim=True).sqrt().clamp_min(SHORTEST)
        # If a column of B vanishes, the row of A stays.
        gone = (u1.norm(dim=-1, keepdim=True) < 0.5).to(exact)
        b1, a1 = u1.mul_(d), k.div_(d).addcmul_(gone, a)
        for X, new in zip((*B, *A), (*b1.mT.unbind(), *a1.unbind()), strict=True):
            X.copy_(new)
        if coarse:
            for state, one, other in zip(states, b1, a1, strict=True):
                state["exact_b"].copy_(one), state["exact_a"].copy_(other)
        if beta:
            left, middle, right, *_ = velocity
            mb, ma = (a1 @ right.mT) @ middle.mT @ left, (d * seen) @ middle @ right
            for state, one, other, both in zip(states, mb, ma, lengths(b1, a1), strict=True):
                state["b"].copy_(one), state["a"].copy_(other), state["lengths"].copy_(both)

    def _direction(self, velocity: Tangent) -> Tangent:
        """Return the tangent vector opposite to the step."""
        return velocity

    def _retracted(
        self, group: dict[str, Any], b: Tensor, a: Tensor, xi: Tangent
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return rows u₁ and k with W₁ = u₁ᵀ k near (1 − lr · weight_decay) W − lr ξ, and u₁ leftᵀ between them."""
        left, middle, right, _, at_a = xi
        lr, rank = group["lr"], b.shape[-2]
        kept, u, v = 1.0 - lr * group["weight_decay"], left[:, :rank], right[:, :rank]
        if group.get("retraction") == "metric-projection":
            middle = -lr * middle
            middle[:, :rank, :rank] += kept * (u @ b.mT) @ (a @ v.mT)
            (ql, rl), (qr, rr) = torch.linalg.qr(left.mT), torch.linalg.qr(right.mT)
            P, s, Qh = torch.linalg.svd(rl @ middle @ rr.mT)
            u1 = P[..., :rank].mT @ ql.mT
            return u1, u1 @ left.mT, s[:, :rank, None] * Qh[:, :rank] @ qr.mT
        # (W − lr ξ) V and its columns' product with W − lr ξ; v rightᵀ holds the identity and known products.
        across = middle[:, :, :rank].mT + at_a[:, :rank] @ middle[:, :, rank:].mT
        u1 = basis(((v @ a.mT) @ b).baddbmm_(across, left, beta=kept, alpha=-lr), u)
        seen = u1 @ left.mT
        return u1, seen, ((u1 @ b.mT) @ a).baddbmm_(seen @ middle, right, beta=kept, alpha=-lr)


class LowRankSGD(_LowRank):
    """Stochastic gradient descent for matrices W = B A, on the manifold of matrices of rank k.

    It follows the path of `rmopt.solvers.SGD` on `rmopt.manifolds.FixedRankEmbedded`, for any B and A that represent
    W.

    Parameters
    ----------
    pairs : list of (B, A), or of groups
        The result of `low_rank_pairs`, your own tuples, or dictionaries ``{"pairs": [(B, A), …], "lr": …}``.
    lr : float
    momentum : float
        The share of the last velocity in the next one. Velocities are projected on new tangent spaces.
    weight_decay : float
        W shrinks by 1 − lr · weight_decay in each step.
    others : dict, optional
        Options of `torch.optim.AdamW` for the other parameters: ``dict(params=…, lr=…)``. `params` defaults to
        ``pairs.others``.
    maximize : bool
    retraction : {"power", "metric-projection"}
        `rmopt.retractions.PowerIteration`, or `rmopt.retractions.MetricProjection`, which takes an SVD.

    See Also
    --------
    LowRankMuon : for networks.

    References
    ----------
    Vandereycken, Low-rank matrix completion by Riemannian optimization, SIAM J. Optim. 23 (2013),
    https://doi.org/10.1137/110845768.

    Examples
    --------
    >>> import torch
    >>> from rmopt.torch import LowRankLinear, LowRankSGD, low_rank_pairs
    >>> _ = torch.manual_seed(0)
    >>> layer, x = LowRankLinear(8, 6, rank=2, bias=False), torch.randn(100, 8)
    >>> y = x @ torch.randn(8, 2) @ torch.randn(2, 6)
    >>> optimizer = LowRankSGD(low_rank_pairs(layer), lr=0.5)
    >>> for _ in range(100):
    ...     optimizer.zero_grad()
    ...     loss = ((layer(x) - y) ** 2).sum() / 200
    ...     loss.backward()
    ...     _ = optimizer.step()
    >>> loss.item() < 1e-6
    True
    """

    def __init__(
        self,
        pairs: Iterable[Any],
        lr: float = 1e-2,
        momentum: float = 0.0,
        weight_decay: float = 0.0,
        others: Mapping[str, Any] | None = None,
        *,
        maximize: bool = False,
        retraction: str = "power",
    ) -> None:
        if retraction not in ("power", "metric-projection"):
            raise InvalidInputError(
                f"retraction is {retraction!r}; it must be 'power' or 'metric-projection'."
            )
        own = {"maximize": maximize, "retraction": retraction}
        super().__init__(pairs, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay} | own, others)


class LowRankMuon(_LowRank):
    """Orthogonalised momentum for matrices W = B A, moved on the manifold of matrices of rank k.

    Muon [1]_ without a choice of factors: the parts of the momentum that turn the columns and the rows of W are
    orthogonalised, in orthonormal bases. The retraction is `rmopt.retractions.PowerIteration`.

    Parameters
    ----------
    pairs : list of (B, A), or of groups
        The result of `low_rank_pairs`, your own tuples, or dictionaries ``{"pairs": [(B, A), …], "lr": …}``.
    lr : float
        The length of steps: the entries of both parts have about this size.
    momentum : float
        The share of the last velocity in the next one. Velocities are projected on new tangent spaces.
    weight_decay : float
        W shrinks by 1 − lr · weight_decay in each step.
    others : dict, optional
        Options of `torch.optim.AdamW` for the other parameters: ``dict(params=…, lr=…)``. `params` defaults to
        ``pairs.others``.
    maximize : bool

    See Also
    --------
    LowRankSGD : for exact solutions.

    References
    ----------
    .. [1] Jordan et al., Muon: an optimizer for hidden layers in neural networks (2024),
       https://kellerjordan.github.io/posts/muon/. The root is taken as in Amsel, Persson, Musco and Gower, The Polar
       Express: optimal matrix sign methods and their application to the Muon algorithm (2025), arXiv:2505.16932.

    Examples
    --------
    >>> import torch
    >>> from rmopt.torch import LowRankLinear, LowRankMuon, low_rank_pairs
    >>> model = torch.nn.Sequential(
    ...     LowRankLinear(8, 6, rank=2), torch.nn.ReLU(), torch.nn.Linear(6, 1)
    ... )
    >>> optimizer = LowRankMuon(low_rank_pairs(model), lr=1e-3, others=dict(lr=2e-3))
    >>> model(torch.ones(8)).sum().backward()
    >>> _ = optimizer.step()
    """

    def __init__(
        self,
        pairs: Iterable[Any],
        lr: float = 1e-3,
        momentum: float = 0.9,
        weight_decay: float = 0.0,
        others: Mapping[str, Any] | None = None,
        *,
        maximize: bool = False,
    ) -> None:
        own = {"lr": lr, "momentum": momentum, "weight_decay": weight_decay, "maximize": maximize}
        super().__init__(pairs, own, others)

    def _direction(self, velocity: Tangent) -> Tangent:
        left, _, right, at_b, at_a = velocity
        (c1, gram_b), (c2, gram_a) = at_b.chunk(2, -2), at_a.chunk(2, -2)
        rb, ra = inverse_root(torch.stack([gram_b, gram_a]))
        rb, ra = left.shape[-1] ** 0.5 * rb, right.shape[-1] ** 0.5 * ra
        return velocity._replace(middle=between(c1 @ rb, ra @ c2.mT, rb, ra))


def lengths(b: Tensor, a: Tensor) -> Tensor:
    """Return the norms of all rows."""
    return torch.cat([b.norm(dim=-1), a.norm(dim=-1)], dim=-1)


def triangle(gram: Tensor) -> tuple[Tensor, Tensor]:
    """Return t, triangular, with t x of orthonormal rows for gram = x xᵀ, and which rows of t are not zero.

    These are rows of x that do not depend on earlier ones. No input is refused, and the host reads nothing.
    """
    number, rank = torch.finfo(gram.dtype), gram.shape[-1]
    one, small = torch.eye(rank, dtype=gram.dtype, device=gram.device), 4.0 * number.eps * rank**0.5
    scale = gram.diagonal(dim1=-2, dim2=-1).clamp_min(number.tiny).rsqrt()[..., None]
    lower = torch.linalg.cholesky_ex((1.0 - small) * scale * gram * scale.mT + small * one).L
    alive = lower.diagonal(dim1=-2, dim2=-1)[..., None] ** 2 > 3.0 * small
    return alive * torch.linalg.solve_triangular(lower, one.expand_as(lower), upper=False) * scale.mT, alive


def frame(x: Tensor, again: bool = True) -> Tensor:
    """Return the triangular t with t x of orthonormal rows, done `again` for more than half of the digits."""
    t, _ = triangle(x @ x.mT)
    if again:
        q = t @ x
        t = triangle(q @ q.mT)[0] @ t
    return t


def basis(x: Tensor, spare: Tensor) -> Tensor:
    """Return orthonormal rows of x, with dependent rows replaced by those of `spare`, or zero."""
    t, alive = triangle(x @ x.mT)
    q = (t @ x).addcmul_((~alive).to(x.dtype), spare)
    return triangle(q @ q.mT)[0] @ q


def tangent(left: Tensor, right: Tensor) -> Tangent:
    """Return the tangent vector whose products with V and U are hbᵀ and ha, for left = (u, hb), right = (v, ha)."""
    rank = left.shape[-2] // 2
    one = torch.eye(rank, dtype=left.dtype, device=left.device).expand(len(left), -1, -1)
    at_b, at_a = left @ left[:, rank:].mT, right @ right[:, rank:].mT
    return Tangent(left, between(at_b[:, :rank], at_a[:, :rank].mT, one, one), right, at_b, at_a)


def between(c1: Tensor, c2: Tensor, rb: Tensor, ra: Tensor) -> Tensor:
    """Return the middle of the tangent vector with the parts hbᵀ rb v and uᵀ ra ha."""
    return torch.cat([torch.cat([(c1 + c2) / -2.0, ra], -1), torch.cat([rb, torch.zeros_like(rb)], -1)], -2)


def inverse_root(gram: Tensor) -> Tensor:
    """Return r with r h of orthonormal rows, for gram = h hᵀ. The smallest directions are damped."""
    one = torch.eye(gram.shape[-1], dtype=gram.dtype, device=gram.device)
    # Rows shorter than 1e-15 vanish.
    size = gram.diagonal(dim1=-2, dim2=-1).sum(-1)[..., None, None].clamp_min(1e-30)
    gram, root = gram / size + 1e-6 * one, one
    for p, q, r in POLAR:
        factor = p * one + q * gram + r * gram @ gram
        root, gram = factor @ root, factor @ gram @ factor
    return root * size.rsqrt()
