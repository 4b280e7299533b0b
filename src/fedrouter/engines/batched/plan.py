"""Which rows each client takes in each step, and which hidden units are dropped.

On the CPU these are the batches and masks of :func:`fedrouter.federation.local_training.train`, drawn from the same
stream. On a GPU drawing them one after the other would take longer than training: there the batches are the same, and
a mask is a hash of seed, epoch, step, layer, row and unit, which every device computes alike.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from math import prod
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import numpy.typing as npt

from fedrouter.federation.local_training import batches

if TYPE_CHECKING:
    import torch

    from fedrouter.engines.batched.layout import Layout
    from fedrouter.federation.local_training import TrainingJob

LOCAL, HASHED = "local", "hashed"
SKIPPED = 2**14
"""Pairs of random numbers that are skipped at once."""
MULTIPLE = 8
"""Batches of recorded steps are filled up to a multiple of this: few kinds of steps, in arrays that products like."""
Batch: TypeAlias = "tuple[torch.Tensor, bool]"
"""The rows of a client's step, and whether it is of the last epoch."""


@dataclass(frozen=True)
class Step:
    """One step of the first ``clients`` of those that train together.

    Parameters
    ----------
    rows : ``(clients, width)`` index of each row among all rows; 0 where a batch is shorter
    share : ``(clients, width)`` weight of each row in its batch's mean: 1 / its length, and 0 where it is shorter
    seeds : ``(layers, clients)`` int32: where hashed masks begin
    kept : for masks that are not hashed, the factor ``(clients, width, units)`` of each layer's units: 0 if dropped
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


def steps_of(
    jobs: Sequence[TrainingJob], layout: Layout, masks: str, kind: torch.dtype | None = None
) -> Iterator[Step]:
    """The steps of all jobs, which are in :func:`order_of`; one epoch after the other, as each client takes them.

    Masks that are not hashed are in ``kind``, and each is drawn with its step: those of all steps may take more memory
    than all else. Hashed ones are for recorded steps, which are all as wide as the widest.
    """
    import torch

    request = jobs[0].request
    starts = np.cumsum([0, *(len(job.model) for job in jobs[:-1])])
    drop = request.dropout if not layout.projected else 0.0
    layers = layout.hidden if drop else ()
    sources = [_stream(job.seed, layout, request.shared_step) for job in jobs]
    plans: list[Iterable[Batch]] = [_batches_of(job, source) for job, source in zip(jobs, sources, strict=True)]
    widest, seeds = 0, np.zeros((1, 0, len(jobs)), np.int32)
    if masks == HASHED:
        known = [list(plan) for plan in plans]
        plans = [*known]
        widest = max(len(batch) for plan in known for batch, _ in plan)
        widest = -(-widest // MULTIPLE) * MULTIPLE
        seeds = _seeds_of(jobs, len(known[0]), len(layers))
    for number, drawn in enumerate(zip_longest(*plans)):
        active = [each for each in drawn if each is not None]
        width = widest or max(len(batch) for batch, _ in active)
        rows = torch.zeros(len(active), width, dtype=torch.int64)
        share = torch.zeros(len(active), width, dtype=torch.float64)
        kept = tuple(torch.empty(len(active), width, size, dtype=kind) for size in layers if not widest)
        for place, (batch, _) in enumerate(active):
            rows[place, : len(batch)] = batch + int(starts[place])
            share[place, : len(batch)] = 1 / len(batch)
            for mask in kept:
                mask[place, : len(batch)].bernoulli_(1 - drop, generator=sources[place]).div_(1 - drop)
                mask[place, len(batch) :] = 0
        first = torch.from_numpy(seeds[number % len(seeds), :, : len(active)].copy())
        counted = torch.tensor([len(batch) * last for batch, last in active], dtype=torch.float32)
        yield Step(len(active), rows, share, first, kept, counted)


def _batches_of(job: TrainingJob, source: torch.Generator) -> Iterator[Batch]:
    import torch

    request = job.request
    for epoch in range(request.epochs):
        order = torch.randperm(len(job.model), generator=source)
        for batch in batches(order, request.batch_size):
            yield batch, epoch == request.epochs - 1


def _seeds_of(jobs: Sequence[TrainingJob], steps: int, layers: int) -> npt.NDArray[np.int32]:
    """Where hashed masks begin: ``(steps, layers, clients)``."""
    seeds = np.stack([np.random.SeedSequence(job.seed).generate_state(steps * layers) for job in jobs], axis=1)
    return seeds.reshape(steps, layers, len(jobs)).view(np.int32)


def _stream(seed: int, layout: Layout, shared: bool) -> torch.Generator:
    """A client's random numbers where its first batch is drawn: after those that made its network."""
    import torch

    source = torch.Generator().manual_seed(seed)
    trunk = [shape for name, (_, shape) in layout.blocks.items() if name.startswith(("layer", "projection"))]
    heads = 2 * layout.models * (layout.hidden[-1] + 1) + shared * 2 * (layout.hidden[-1] + 1)
    drawn = sum(map(prod, trunk)) + heads
    # Two at once take half the time, and little memory stays in the cache.
    skipped = torch.empty(min(SKIPPED, drawn // 2), dtype=torch.int64)
    for start in range(0, drawn // 2, SKIPPED):
        skipped[: drawn // 2 - start].random_(generator=source)
    torch.empty(drawn % 2).uniform_(generator=source)
    return source


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
