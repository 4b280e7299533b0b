"""Which rows each client takes in each step, and which hidden units are dropped.

On the CPU these are the batches and masks of :func:`fedrouter.federation.local_training.train`, drawn from the same
stream. On a GPU drawing them one after the other would take longer than training: there the batches are the same, and
a mask is a hash of seed, epoch, step, layer, row and unit, which every device computes alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from fedrouter.federation.local_training import batches

if TYPE_CHECKING:
    import torch

    from fedrouter.engines.batched.layout import Layout
    from fedrouter.federation.local_training import TrainingJob

LOCAL, HASHED = "local", "hashed"
MULTIPLE = 8
"""Batches that are longer than ``batch_size`` are filled up to a multiple of this."""


@dataclass(frozen=True)
class Step:
    """One step of the first ``clients`` of those that train together.

    Parameters
    ----------
    rows : ``(clients, width)`` index of each row among all rows; 0 where a batch is shorter
    share : ``(clients, width)`` weight of each row in its batch's mean: 1 / its length, and 0 where it is shorter
    seeds : ``(layers, clients)`` int32: where hashed masks begin
    kept : the masks ``(clients, width, units)`` of each layer that are not hashed
    counted : ``(clients,)`` rows in the batches of a last epoch, whose loss is reported; 0 in those before
    """

    clients: int
    rows: torch.Tensor
    share: torch.Tensor
    seeds: torch.Tensor
    kept: tuple[torch.Tensor, ...]
    counted: torch.Tensor


def order_of(jobs: Sequence[TrainingJob]) -> list[int]:
    """The jobs by descending number of rows, so that those which still train are always the first."""
    return sorted(range(len(jobs)), key=lambda place: -len(jobs[place].model))


def steps_of(jobs: Sequence[TrainingJob], layout: Layout, masks: str) -> list[Step]:
    """The steps of all jobs, which are in :func:`order_of`; one epoch after the other, as each client takes them."""
    import torch

    request = jobs[0].request
    starts = np.cumsum([0, *(len(job.model) for job in jobs[:-1])])
    drop = request.dropout if not layout.projected else 0.0
    layers = layout.hidden if drop else ()
    drawn: list[list[tuple[torch.Tensor, tuple[torch.Tensor, ...], bool]]] = []
    for job in jobs:
        source = _stream(job.seed, layout, request.shared_step)
        mine = []
        for epoch in range(request.epochs):
            order = torch.randperm(len(job.model), generator=source)
            for batch in batches(order, request.batch_size):
                kept: tuple[torch.Tensor, ...] = ()
                if masks == LOCAL:
                    kept = tuple(
                        torch.empty(len(batch), size).bernoulli_(1 - drop, generator=source) for size in layers
                    )
                mine.append((batch, kept, epoch == request.epochs - 1))
        drawn.append(mine)
    longest = max(len(batch) for mine in drawn for batch, _, _ in mine)
    width = longest if longest <= request.batch_size else -(-longest // MULTIPLE) * MULTIPLE
    most, steps = len(drawn[0]), []
    seeds = np.stack([np.random.SeedSequence(job.seed).generate_state(most * len(layers)) for job in jobs], axis=1)
    seeds = seeds.reshape(most, len(layers), len(jobs)).view(np.int32)
    for number in range(most):
        active = [mine[number] for mine in drawn if number < len(mine)]
        rows, share = (
            torch.zeros(len(active), width, dtype=torch.int64),
            torch.zeros(len(active), width, dtype=torch.float64),
        )
        for place, (batch, _, _) in enumerate(active):
            rows[place, : len(batch)] = batch + int(starts[place])
            share[place, : len(batch)] = 1 / len(batch)
        kept = tuple(
            _padded([each[1][layer] for each in active], width) for layer in range(len(layers) * (masks == LOCAL))
        )
        steps.append(
            Step(
                len(active),
                rows,
                share,
                torch.from_numpy(seeds[number, :, : len(active)].copy()),
                kept,
                torch.tensor([len(batch) * last for batch, _, last in active], dtype=torch.float32),
            )
        )
    return steps


def _stream(seed: int, layout: Layout, shared: bool) -> torch.Generator:
    """A client's random numbers where its first batch is drawn: after those that made its network."""
    import torch

    source = torch.Generator().manual_seed(seed)
    trunk = [shape for name, (_, shape) in layout.blocks.items() if name.startswith(("layer", "projection"))]
    heads = 2 * layout.models * (layout.hidden[-1] + 1) + shared * 2 * (layout.hidden[-1] + 1)
    torch.empty(sum(map(prod, trunk)) + heads).uniform_(generator=source)
    return source


def _padded(masks: Sequence[torch.Tensor], width: int) -> torch.Tensor:
    import torch

    found = torch.zeros(len(masks), width, masks[0].shape[1], dtype=torch.bool)
    for place, mask in enumerate(masks):
        found[place, : len(mask)] = mask.bool()
    return found


def hashed_mask(seeds: torch.Tensor, width: int, units: int, dropout: float) -> torch.Tensor:
    """Which units are kept, ``(clients, width, units)`` bool, from the seeds ``(clients,)`` int32 of a layer."""
    import torch

    place = torch.arange(width * units, dtype=torch.int32, device=seeds.device).view(1, width, units)
    bits = (place * -1640531527) ^ seeds[:, None, None]
    bits = bits ^ ((bits >> 16) & 0xFFFF)
    bits = bits * 2146121005
    bits = bits ^ ((bits >> 15) & 0x1FFFF)
    bits = bits * -2073254261
    bits = bits ^ ((bits >> 16) & 0xFFFF)
    return (bits & 0x7FFFFFFF) >= int(dropout * 2**31)
