"""What is between the matrix products of a step, for all clients at once; on a GPU each is compiled to few kernels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, TypeAlias

from fedrouter.engines.batched.plan import hashed_mask
from fedrouter.routers.mlp import NORM_EPSILON

if TYPE_CHECKING:
    import torch

BETAS, EPSILON, NORM_SLACK = (0.9, 0.999), 1e-8, 1e-6
"""Of torch's AdamW and of its clipping, which the local engine uses."""
Kept: TypeAlias = "tuple[torch.Tensor, ...]"
"""What the activation of a layer keeps for its gradient."""


@dataclass(frozen=True)
class Kernels:
    """The functions of this file as a device runs them; ``recorded`` if steps become CUDA graphs."""

    activate: Callable[..., Any]
    deactivate: Callable[..., Any]
    loss: Callable[..., Any]
    adamw: Callable[..., Any]
    mask: Callable[..., Any]
    recorded: bool

    @staticmethod
    @cache
    def on(device: str) -> Kernels:
        if device == "cpu":
            return Kernels(activate_of_torch, deactivate_of_torch, loss_of_rows, adamw_of_torch, scaled_mask, False)
        import torch

        def run(function: Callable[..., Any]) -> Callable[..., Any]:
            compiled: Callable[..., Any] = torch.compile(function)
            return compiled

        return Kernels(run(activate), run(deactivate), run(loss_of_rows), run(adamw), run(hashed_mask), True)


def activate(
    linear: torch.Tensor, weight: torch.Tensor, shift: torch.Tensor, mask: torch.Tensor | None, dropout: float
) -> tuple[torch.Tensor, Kept]:
    """LayerNorm, GELU and dropout of ``(clients, rows, units)``; also what was normalized, and its scale."""
    import torch

    kind, linear = linear.dtype, widened(linear)
    centred = linear - linear.mean(dim=2, keepdim=True)
    scale = torch.rsqrt((centred * centred).mean(dim=2, keepdim=True) + NORM_EPSILON)
    normal = centred * scale
    found = torch.nn.functional.gelu(normal * weight[:, None] + shift[:, None])
    found = found if mask is None else found * mask / (1 - dropout)
    return found.to(kind), (normal.to(kind), scale)


def deactivate(
    delta: torch.Tensor,
    kept: Kept,
    weight: torch.Tensor,
    shift: torch.Tensor,
    mask: torch.Tensor | None,
    dropout: float,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The gradient by what :func:`activate` was given: by ``linear``, and by weight and shift of its norm."""
    import torch

    normal, scale = kept
    kind, delta, normal = delta.dtype, widened(delta), widened(normal)
    values = normal * weight[:, None] + shift[:, None]
    slope = 0.5 * (1 + torch.erf(values * 0.5**0.5))
    slope = slope + values * torch.exp(-0.5 * values * values) * 0.3989422804014327  # 1 / √(2π)
    delta = delta * slope if mask is None else delta * slope * mask / (1 - dropout)
    by_weight, by_shift = (delta * normal).sum(dim=1), delta.sum(dim=1)
    delta = delta * weight[:, None]
    delta = delta - delta.mean(dim=2, keepdim=True) - normal * (delta * normal).mean(dim=2, keepdim=True)
    return (delta * scale).to(kind), by_weight, by_shift


def loss_of_rows(
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


def adamw(
    parameter: torch.Tensor,
    gradient: torch.Tensor,
    first: torch.Tensor,
    second: torch.Tensor,
    corrections: torch.Tensor,
    half: torch.Tensor | None,
    learning_rate: float,
    weight_decay: float,
    clip_norm: float,
) -> None:
    """Clip each client's gradient ``(clients, numbers)`` to ``clip_norm`` and take its step, in place.

    ``corrections`` ``(3,)`` are those of both moments, and the number of the step. ``half`` is a copy of the parameters
    in half precision, which follows.
    """
    gradient = widened(gradient)
    length = (gradient * gradient).sum(dim=1, keepdim=True).sqrt()
    clipped = gradient * (clip_norm / (length + NORM_SLACK)).clamp(max=1)
    moment = first + (clipped - first) * (1 - BETAS[0])
    square = second * BETAS[1] + clipped * clipped * (1 - BETAS[1])
    size = (square / corrections[1]).sqrt() + EPSILON
    kept = 1 - learning_rate * weight_decay
    moved = parameter * kept - learning_rate / corrections[0] * moment / size
    parameter.copy_(moved)
    if half is not None:
        half.copy_(moved)
    first.copy_(moment)
    second.copy_(square)


def activate_of_torch(
    linear: torch.Tensor, weight: torch.Tensor, shift: torch.Tensor, mask: torch.Tensor | None, dropout: float
) -> tuple[torch.Tensor, Kept]:
    """:func:`activate` by torch's own kernels, with few arrays between them: nothing is compiled on a CPU.

    A ``mask`` is a :func:`scaled_mask`.
    """
    import torch

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


def deactivate_of_torch(
    delta: torch.Tensor,
    kept: Kept,
    weight: torch.Tensor,
    shift: torch.Tensor,
    mask: torch.Tensor | None,
    dropout: float,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """:func:`deactivate` by torch's own kernels; ``delta`` is overwritten."""
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
    return delta.to(kind), by_weight, by_shift


def scaled_mask(seeds: torch.Tensor, width: int, units: int, dropout: float) -> torch.Tensor:
    """A hashed mask as the factor of each unit: 0, or what makes up for the units that are dropped."""
    return hashed_mask(seeds, width, units, dropout).float().div_(1 - dropout)


def adamw_of_torch(
    parameter: torch.Tensor,
    gradient: torch.Tensor,
    first: torch.Tensor,
    second: torch.Tensor,
    corrections: torch.Tensor,
    half: torch.Tensor | None,
    learning_rate: float,
    weight_decay: float,
    clip_norm: float,
) -> None:
    """:func:`adamw` in one pass over memory, which on a CPU is what it takes."""
    import torch
    from torch.optim.adamw import adamw as step

    gradient = gradient.to(parameter.dtype)
    shorter = clip_norm / (torch.linalg.vector_norm(gradient, dim=1, keepdim=True) + NORM_SLACK)
    if shorter.min() < 1:
        gradient.mul_(shorter.clamp(max=1))
    step(
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
        lr=learning_rate,
        weight_decay=weight_decay,
        eps=EPSILON,
        maximize=False,
    )
    if half is not None:
        half.copy_(parameter)
