"""What is between the matrix products of a step, and its end, as Triton kernels for a GPU.

The gradient of a matrix is a product of two thin ones, ``deltaᵀ below``, over the rows of a batch. It is computed tile
by tile where AdamW needs it, in float32, and is neither written nor read: a step moves weights and moments through
memory once. Clipping has to know the length of all gradients before. That of a product follows from the rows' scalar
products, ``|deltaᵀ below|² = Σ (delta deltaᵀ) ∘ (below belowᵀ)``.
"""

# mypy: disable-error-code="untyped-decorator,no-untyped-def,no-untyped-call"

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
import triton

from fedrouter.engines.batched.kernels import BETAS, EPSILON, NORM_SLACK, Kept, Kernels, Targets
from fedrouter.engines.batched.triton_kernels import (
    activate_kernel,
    deactivate_kernel,
    descend_kernel,
    loss_kernel,
    squared_lengths_kernel,
)
from fedrouter.routers.mlp import NORM_EPSILON

if TYPE_CHECKING:
    from fedrouter.engines.batched.networks import Networks

TILES = {"ieee": (16, 128, 2, 4), "tf32": (32, 32, 3, 4), "tf32x3": (32, 64, 2, 4)}
"""By precision of products: rows and columns of a matrix that a program steps at a time, how many loads of them are on
their way, and warps; the fastest of some on an H200."""
BATCH = 128
"""Rows of a batch in one product on tensor cores; more are added to it."""
PART = 256
"""Bytes of a row that scalar products take at a time."""
ROWS, ELEMENTS, WARPS, PROGRAMS = 32, 1024, 2, 512
"""Rows that a program activates, numbers at a time, and warps: each has whole rows, so that their sums need no other
warp. Rows are fewer, if there would be fewer programs than the last."""
LEAST = 16
"""Rows or columns of a product on tensor cores."""


def activate(
    hidden: torch.Tensor,
    matrix: torch.Tensor,
    bias: torch.Tensor,
    weight: torch.Tensor,
    shift: torch.Tensor,
    seeds: torch.Tensor | None,
    dropout: float,
) -> tuple[torch.Tensor, Kept]:
    """As :func:`fedrouter.engines.batched.kernels.activate`, with the seeds ``(clients,)`` of a hashed mask."""
    linear = torch.bmm(hidden, matrix.mT)
    clients, rows, units = linear.shape
    found = torch.empty_like(linear)
    mean, scale = torch.empty(2, clients, rows, device=linear.device).unbind()
    parts, constants = _constants(clients, rows, units, seeds, dropout)
    arrays = linear, bias, weight, shift, linear if seeds is None else seeds, found, mean, scale
    activate_kernel[(parts, clients)](*arrays, rows, units, bias.stride(0), NORM_EPSILON, *constants, num_warps=WARPS)
    return found, (linear, bias, mean, scale)


def deactivate(
    delta: torch.Tensor,
    kept: Kept,
    weight: torch.Tensor,
    shift: torch.Tensor,
    seeds: torch.Tensor | None,
    dropout: float,
) -> tuple[torch.Tensor, torch.Tensor]:
    """As :func:`fedrouter.engines.batched.kernels.deactivate`; ``delta`` is overwritten.

    The gradients of the vectors, bias and weight and shift of the norm, are ``(clients, parts, 3, units)``, of which
    parts are to be added.
    """
    linear, bias, mean, scale = kept
    clients, rows, units = delta.shape
    parts, constants = _constants(clients, rows, units, seeds, dropout)
    by_vectors = torch.empty(clients, parts, 3, units, device=delta.device)
    arrays = delta, linear, bias, mean, scale, weight, shift, delta if seeds is None else seeds, by_vectors
    deactivate_kernel[(parts, clients)](*arrays, rows, units, bias.stride(0), *constants, num_warps=WARPS)
    return delta, by_vectors


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
) -> tuple[torch.Tensor, torch.Tensor]:
    """As :func:`fedrouter.engines.batched.kernels.loss_of_heads`."""
    found = torch.bmm(hidden, matrix.mT)
    delta = torch.empty_like(found)
    clients, width, heads = found.shape
    by_vectors = torch.empty(clients, 1, 1, heads, device=found.device)
    frozen = targets.values if targets.frozen is None else targets.frozen
    arrays = (
        found,
        bias,
        targets.model,
        targets.values,
        frozen,
        targets.anchored,
        rows,
        share,
        counted,
        losses,
        delta,
        by_vectors,
    )
    loss_kernel[(clients,)](
        *arrays, width, models, heads, bias.stride(0), distillation, shared, targets.frozen is not None,
        min(BATCH, triton.next_power_of_2(width)), triton.next_power_of_2(models), triton.next_power_of_2(heads),
    )  # fmt: skip
    return delta, by_vectors


def seeds_of(seeds: torch.Tensor, width: int, units: int, dropout: float) -> torch.Tensor:
    """What a mask is here: it is hashed where it is needed."""
    return seeds


@dataclass
class FusedDescent:
    """As :class:`fedrouter.engines.batched.kernels.Descent`, without gradients of matrices in memory.

    A client whose first ``share`` ``(clients, width)`` is 0 takes no step. In the ``initial`` step weights are those of
    ``networks.begin`` and moments are zero, so that they do not have to be written before.
    """

    networks: Networks
    clients: int
    request: Any
    share: torch.Tensor
    initial: bool
    _squares: torch.Tensor | None = None
    _products: list[tuple[str, torch.Tensor, torch.Tensor, torch.Tensor]] = field(default_factory=list)

    def add(self, name: str, delta: torch.Tensor, below: torch.Tensor, by_vectors: torch.Tensor | None = None) -> None:
        """Add the squares of the gradient ``deltaᵀ below`` of a matrix, and of its vectors."""
        adds = self._squares is not None
        if self._squares is None:
            self._squares = torch.empty(self.clients, device=delta.device)
        if by_vectors is None:
            by_vectors = delta.new_empty(self.clients, 0, 0, 1, dtype=torch.float32)
        self._products.append((name, delta, below, by_vectors))
        (clients, rows, outs), (parts, vectors) = delta.shape, by_vectors.shape[1:3]
        side = max(LEAST, min(BATCH, triton.next_power_of_2(rows)))
        squared_lengths_kernel[(clients,)](
            delta, below, by_vectors, self._squares, rows, outs, below.shape[2], parts,
            adds, vectors, rows <= side, _precision(delta), side, PART // delta.element_size(),
            triton.next_power_of_2(outs), num_warps=8,
        )  # fmt: skip

    def step(self, corrections: torch.Tensor) -> None:
        """Clip and take the step, in place."""
        networks, request = self.networks, self.request
        decay = 1 - request.learning_rate * request.weight_decay
        settings = self.share, corrections, request.learning_rate, decay, request.clip_norm
        arrays = networks.begin, networks.parameters, networks.first, networks.second
        half = networks.parameters if networks.half is None else networks.half
        for name, delta, below, by_vectors in self._products:
            (clients, rows, outs), ins, (parts, vectors) = delta.shape, below.shape[2], by_vectors.shape[1:3]
            at = [networks.layout.blocks[each][0] for each in networks.layout.group(name)]
            first, apart = at[1] if vectors else 0, at[2] - at[1] if vectors > 1 else 0
            precision = _precision(delta)
            tile, stretch, stages, warps = TILES[precision]
            more = max(0, rows - BATCH)
            block, together = (max(LEAST, min(BATCH, triton.next_power_of_2(each))) for each in (more, rows))
            even = rows == together and outs % tile == 0 and ins % stretch == 0 and not more
            descend_kernel[(triton.cdiv(outs, tile) + (vectors > 0), clients)](
                delta, below, by_vectors, *arrays, half, self._squares, *settings,
                rows, outs, ins, parts, networks.layout.numbers, at[0], first, apart,
                *BETAS, EPSILON, NORM_SLACK, self.initial, networks.half is not None, vectors, precision, even,
                together, triton.cdiv(more, block), block, triton.next_power_of_2(outs),
                tile, stretch, stages if more <= BATCH else 1, num_warps=warps,
            )  # fmt: skip


FUSED = Kernels(activate, deactivate, loss_of_heads, seeds_of, FusedDescent)


def _precision(values: torch.Tensor) -> str:
    """Of products of float32, three in TF32 are as good as one; those of bfloat16 are what they are."""
    if values.element_size() == 2:
        return "ieee"
    return "tf32" if torch.backends.cuda.matmul.allow_tf32 else "tf32x3"


def _constants(
    clients: int, rows: int, units: int, seeds: torch.Tensor | None, dropout: float
) -> tuple[int, tuple[Any, ...]]:
    """In how many parts rows are activated, and what the kernels know when they are compiled."""
    wide = triton.next_power_of_2(units)
    at_once = max(1, min(ROWS, ELEMENTS // wide))
    part = ROWS if clients * triton.cdiv(rows, ROWS) >= PROGRAMS else at_once
    limit = int(dropout * 2**31), 1 / (1 - dropout), seeds is not None
    return triton.cdiv(rows, part), (*limit, part, at_once, wide)
