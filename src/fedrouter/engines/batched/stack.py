"""The networks of many clients with their rows, and one step of training of all of them.

The mathematics is that of :func:`fedrouter.federation.local_training.train`, with the gradients written out, because
clipping and AdamW are then one operation each for all clients.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fedrouter.engines.batched.kernels import BETAS, TORCH, Kernels, Targets
from fedrouter.engines.batched.layout import HEAD_BIAS, HEAD_WEIGHT
from fedrouter.engines.batched.networks import Networks
from fedrouter.engines.batched.plan import Step
from fedrouter.routers.mlp import PROJECTION, outputs

if TYPE_CHECKING:
    import torch

    from fedrouter.federation.local_training import TrainingJob


def kernels_of(networks: Networks) -> Kernels:
    """What runs their steps."""
    if not networks.fused:
        return TORCH
    from fedrouter.engines.batched.fused import FUSED

    return FUSED


@dataclass
class Stack:
    """The networks of some clients, and their rows one after another: ``embeddings`` ``(rows, d)``, and targets."""

    networks: Networks
    request: Any
    embeddings: torch.Tensor
    targets: Targets
    losses: torch.Tensor

    @classmethod
    def of(cls, jobs: Sequence[TrainingJob], networks: Networks) -> Stack:
        """A stack of these jobs, which are in :func:`~fedrouter.engines.batched.plan.order_of`."""
        import torch

        request = jobs[0].request
        kind, device = networks.parameters.dtype, networks.parameters.device

        def on_device(parts: Sequence[Any], dtype: torch.dtype) -> torch.Tensor:
            return torch.from_numpy(np.concatenate(parts)).to(device, dtype)

        # As float32 first: the local engine rounds targets to it.
        values = [np.stack([job.accuracy, job.cost], axis=1).astype(np.float32) for job in jobs]
        anchored = torch.zeros(networks.layout.models, dtype=kind, device=device)
        anchored[[request.models.index(name) for name in request.anchored]] = 1
        frozen = None
        if request.base:
            frozen = on_device([outputs(request.base, job.embeddings).astype(np.float32) for job in jobs], kind)
        model = on_device([job.model for job in jobs], torch.int64)
        return cls(
            networks,
            request,
            on_device([job.embeddings for job in jobs], networks.kind),
            Targets(model, on_device(values, kind), frozen, anchored),
            torch.zeros(len(jobs), dtype=kind, device=device),
        )

    def run(self, steps: Iterable[Step]) -> None:
        """Take the steps; ``losses`` sums the losses over rows in each client's last epoch."""
        import torch

        self.losses.zero_()
        kind, device = self.losses.dtype, self.losses.device
        for number, step in enumerate(steps, 1):
            corrections = torch.tensor([*(1 - beta**number for beta in BETAS), number], dtype=kind)
            inputs = step.rows, step.share.to(kind), step.seeds, step.counted.to(kind), corrections
            kept = tuple(mask.to(device) for mask in step.kept)
            self.take(step.clients, tuple(each.to(device) for each in inputs), kept)

    def take(
        self,
        clients: int,
        inputs_of_step: tuple[torch.Tensor, ...],
        kept: tuple[torch.Tensor, ...] = (),
        initial: bool = False,
    ) -> None:
        """One step of the first ``clients``: forward, backward, clipping, AdamW.

        The inputs are rows, share, seeds and counted of a :class:`~fedrouter.engines.batched.plan.Step`, and AdamW's
        corrections. ``initial`` is the first step of networks that were not written when they started.
        """
        import torch

        rows, share, seeds, counted, corrections = inputs_of_step
        layout, request, run = self.networks.layout, self.request, kernels_of(self.networks)
        w, drop = self.networks.weights(clients, initial), request.dropout
        descent = run.descent(self.networks, clients, request, share, initial)
        inputs = self.embeddings.index_select(0, rows.view(-1)).view(*rows.shape, -1)  # (clients, width, d)
        hidden, layers = inputs, []
        for number in range(1, 1 if layout.projected else len(layout.hidden) + 1):
            matrix, *vectors = (w[name] for name in layout.group(f"layer{number}.weight"))
            mask = None
            if drop:
                mask = kept[number - 1] if kept else run.mask(seeds[number - 1], rows.shape[1], matrix.shape[1], drop)
            above, values = run.activate(hidden, matrix, *vectors, mask, drop)
            layers.append((hidden, values, mask))
            hidden = above
        if layout.projected:
            hidden = torch.bmm(inputs, w[PROJECTION].mT)
        heads, settings = w[HEAD_WEIGHT], (layout.models, request.shared_step, request.distillation)
        losses = self.losses[:clients]
        batch = self.targets, rows, share, counted, losses
        delta, by_vectors = run.loss(hidden, heads, w[HEAD_BIAS], *batch, *settings)
        descent.add(HEAD_WEIGHT, delta, hidden, by_vectors)
        if not request.heads_only:
            delta = torch.bmm(delta, heads)
            if layout.projected:
                descent.add(PROJECTION, delta, inputs)
            for number in range(len(layers), 0, -1):
                below, values, mask = layers[number - 1]
                matrix, _, *norm = (w[name] for name in layout.group(f"layer{number}.weight"))
                delta, by_vectors = run.deactivate(delta, values, *norm, mask, drop)
                descent.add(f"layer{number}.weight", delta, below, by_vectors)
                if number > 1:
                    delta = torch.bmm(delta, matrix)
        descent.step(corrections)
