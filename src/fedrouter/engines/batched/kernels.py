"""What is between the matrix products of a step, and its end, for all clients at once: by torch's own kernels.

A GPU has others, :mod:`fedrouter.engines.batched.fused`, except for float64.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from fedrouter.engines.batched.plan import hashed_mask
from fedrouter.routers.mlp import NORM_EPSILON

if TYPE_CHECKING:
    import torch

    from fedrouter.engines.batched.networks import Networks

BETAS, EPSILON, NORM_SLACK = (0.9, 0.999), 1e-8, 1e-6
"""Of torch's AdamW and of its clipping, which the local engine uses."""
Kept: TypeAlias = "tuple[torch.Tensor, ...]"
"""What the activation of a layer keeps for its gradient."""


@dataclass(frozen=True)
class Kernels:
    """The functions of this file as a device runs them."""

    activate: Callable[..., Any]
    deactivate: Callable[..., Any]
    loss: Callable[..., Any]
    mask: Callable[..., Any]
    descent: Callable[..., Any]


@dataclass
class Targets:
    """What the heads should give for all rows: model ``(rows,)``, accuracy and cost ``(rows, 2)``.

    ``frozen`` ``(rows, 2, M)`` is what distillation pulls to, for the models with ``anchored`` ``(M,)`` 1.
    """

    model: torch.Tensor
    values: torch.Tensor
    frozen: torch.Tensor | None
    anchored: torch.Tensor


def activate(
    hidden: torch.Tensor,
    matrix: torch.Tensor,
    bias: torch.Tensor,
    weight: torch.Tensor,
    shift: torch.Tensor,
    mask: torch.Tensor | None,
    dropout: float,
) -> tuple[torch.Tensor, Kept]:
    """A layer on ``hidden`` ``(clients, rows, units below)``: product, LayerNorm by weight and shift, GELU, dropout.

    A ``mask`` is a :func:`scaled_mask`.
    """
    import torch

    linear = torch.baddbmm(bias[:, None], hidden, matrix.mT)
    kind, linear = linear.dtype, widened(linear)
    if len(linear) == 1:  # torch's kernel takes the weights of one client
        values, mean, scale = torch.native_layer_norm(linear, linear.shape[2:], weight[0], shift[0], NORM_EPSILON)
        normal = values
    else:
        normal, mean, scale = torch.native_layer_norm(linear, linear.shape[2:], None, None, NORM_EPSILON)
        values = torch.addcmul(shift[:, None], normal, weight[:, None])
    found = torch.nn.functional.gelu(values)
    if mask is not None:
        found.mul_(mask)
    return found.to(kind), (linear, normal, mean, scale, values)


def deactivate(
    delta: torch.Tensor,
    kept: Kept,
    weight: torch.Tensor,
    shift: torch.Tensor,
    mask: torch.Tensor | None,
    dropout: float,
) -> tuple[torch.Tensor, tuple[torch.Tensor, ...]]:
    """The gradient by the product in :func:`activate`, and by the vectors: bias, and weight and shift of the norm.

    ``delta`` is overwritten.
    """
    import torch

    linear, normal, mean, scale, values = kept
    kind, delta = delta.dtype, widened(delta)
    if mask is not None:
        delta.mul_(mask)
    delta = torch.ops.aten.gelu_backward.default(delta, values)
    undo, shape = torch.ops.aten.native_layer_norm_backward.default, linear.shape[2:]
    if len(linear) == 1:
        own = weight[0], shift[0]
        delta, by_weight, by_shift = undo(delta, linear, shape, mean, scale, *own, [True, True, True])
    else:
        by_weight, by_shift = (delta * normal).sum(dim=1), delta.sum(dim=1)
        delta.mul_(weight[:, None])
        delta = undo(delta, linear, shape, mean, scale, None, None, [True, False, False])[0]
    delta = delta.to(kind)
    return delta, (delta.sum(dim=1), by_weight, by_shift)


def loss_of_heads(
    hidden: torch.Tensor,
    matrix: torch.Tensor,
    bias: torch.Tensor,
    targets: Targets,
    rows: torch.Tensor,
    share: torch.Tensor,
    counted: torch.Tensor,
    losses: torch.Tensor,
    models: int,
    shared: bool,
    distillation: float,
) -> tuple[torch.Tensor, tuple[torch.Tensor]]:
    """The gradient of the loss by what the heads give for ``rows`` ``(clients, width)`` of the targets, and by bias.

    The loss times ``counted`` ``(clients,)`` is added to ``losses`` ``(clients,)``.
    """
    import torch

    found = torch.baddbmm(bias[:, None], hidden, matrix.mT)  # (clients, width, 2M + 2 and zeros)
    frozen = None if targets.frozen is None else targets.frozen[rows]
    settings = targets.anchored, models, shared, distillation
    loss, delta = _loss_of_rows(found, targets.model[rows], targets.values[rows], share, frozen, *settings)
    losses += loss * counted
    return delta, (delta.sum(dim=1),)


def _loss_of_rows(
    found: torch.Tensor,
    model: torch.Tensor,
    targets: torch.Tensor,
    share: torch.Tensor,
    frozen: torch.Tensor | None,
    anchored: torch.Tensor,
    models: int,
    shared: bool,
    distillation: float,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The loss ``(clients,)``, and its gradient by what the heads ``found``, ``(clients, rows, 2M + 2 and zeros)``."""
    import torch

    kind, found = found.dtype, widened(found)
    outputs = [found[..., head * models : (head + 1) * models] for head in (0, 1)]
    if shared:
        outputs = [each + found[..., 2 * models + head, None] for head, each in enumerate(outputs)]
    accuracy, cost = outputs[0].sigmoid(), outputs[1]
    asked = (model[..., None] == torch.arange(models, device=model.device)).to(found.dtype)
    errors = [(each - targets[..., head, None]) * asked for head, each in enumerate((accuracy, cost))]
    loss = (errors[0] * errors[0] + errors[1] * errors[1]).sum(dim=2)
    if frozen is not None:
        far = [(each - frozen[:, :, head]) * anchored for head, each in enumerate((accuracy, cost))]
        weight = distillation / anchored.sum()
        loss = loss + weight * (far[0] * far[0] + far[1] * far[1]).sum(dim=2)
        errors = [error + weight * each for error, each in zip(errors, far, strict=True)]
    slopes = accuracy * (1 - accuracy), torch.ones_like(cost)
    delta = [2 * share[..., None] * error * slope for error, slope in zip(errors, slopes, strict=True)]
    sums = [each.sum(dim=2, keepdim=True) * shared for each in delta]
    rest = torch.zeros_like(found[..., 2 * models + 2 :])
    return (loss * share).sum(dim=1), torch.cat([*delta, *sums, rest], dim=2).to(kind)


def widened(values: torch.Tensor) -> torch.Tensor:
    """In float32, if they are in half precision."""
    return values if values.dtype.itemsize > 2 else values.float()


def scaled_mask(seeds: torch.Tensor, width: int, units: int, dropout: float) -> torch.Tensor:
    """A hashed mask as the factor of each unit: 0, or what makes up for the units that are dropped."""
    return hashed_mask(seeds, width, units, dropout).float().div_(1 - dropout)


@dataclass
class Descent:
    """Gradients of a step of the first ``clients``, each written into one array ``(clients, numbers)``, and its end.

    ``share`` and ``initial`` are those of :class:`fedrouter.engines.batched.fused.FusedDescent`, which needs them.
    """

    networks: Networks
    clients: int
    request: Any
    share: torch.Tensor
    initial: bool

    def add(
        self, name: str, delta: torch.Tensor, below: torch.Tensor, by_vectors: tuple[torch.Tensor, ...] = ()
    ) -> None:
        """Write the gradient ``deltaᵀ below`` of a matrix, and of its vectors."""
        import torch

        matrix, *vectors = (self.networks.gradient(self.clients, each) for each in self.networks.layout.group(name))
        torch.bmm(delta.mT, below, out=matrix)
        for vector, gradient in zip(vectors, by_vectors, strict=True):
            vector.copy_(gradient)

    def step(self, corrections: torch.Tensor) -> None:
        """Clip and take the step, in place, in one pass over memory, which on a CPU is what it takes.

        ``corrections`` ``(3,)`` are those of both moments, and the number of the step.
        """
        import torch
        from torch.optim.adamw import adamw

        networks, request = self.networks, self.request
        start = networks.layout.first_head if request.heads_only else 0
        arrays = networks.parameters, networks.gradients, networks.first, networks.second
        parameter, gradient, first, second = (each[: self.clients, start:] for each in arrays)
        gradient = gradient.to(parameter.dtype)
        shorter = request.clip_norm / (torch.linalg.vector_norm(gradient, dim=1, keepdim=True) + NORM_SLACK)
        if shorter.min() < 1:
            gradient.mul_(shorter.clamp(max=1))
        adamw(
            list(parameter.unbind()),
            list(gradient.unbind()),
            list(first.unbind()),
            list(second.unbind()),
            [],
            [corrections[2] - 1 for _ in parameter],  # counted up first
            fused=True,
            amsgrad=False,
            beta1=BETAS[0],
            beta2=BETAS[1],
            lr=request.learning_rate,
            weight_decay=request.weight_decay,
            eps=EPSILON,
            maximize=False,
        )
        if networks.half is not None:
            networks.half[: self.clients, start:].copy_(parameter)


TORCH = Kernels(activate, deactivate, loss_of_heads, scaled_mask, Descent)
