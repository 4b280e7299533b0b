"""The networks of many clients as slices of one array, and one step of training of all of them.

The mathematics is that of :func:`fedrouter.federation.local_training.train`, with the gradients written out, because
all clients' gradients then stand in one array, over which clipping and AdamW are one operation each. On a GPU each
kind of step is recorded once as a CUDA graph, and what is between matrix products is compiled to few kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from fedrouter.engines.batched.kernels import BETAS, Kernels
from fedrouter.engines.batched.layout import HEAD_BIAS, HEAD_WEIGHT, Layout
from fedrouter.engines.batched.plan import Step
from fedrouter.routers.mlp import PROJECTION, outputs

if TYPE_CHECKING:
    import torch

    from fedrouter.federation.local_training import TrainingJob

LEAST_REPEATS = 4
"""A kind of step that is taken fewer times than this is not recorded as a graph."""


@dataclass
class Networks:
    """Weights, gradients and AdamW's moments of all clients ``(clients, numbers)``.

    With a ``kind`` of half precision, matrix products and gradients are in it: ``half`` is a copy of the weights.
    """

    layout: Layout
    kind: torch.dtype
    parameters: torch.Tensor
    gradients: torch.Tensor
    first: torch.Tensor
    second: torch.Tensor
    half: torch.Tensor | None
    _named: dict[int, tuple[Mapping[str, torch.Tensor], Mapping[str, torch.Tensor]]] = field(default_factory=dict)

    @classmethod
    def of(cls, layout: Layout, clients: int, device: str, kind: torch.dtype) -> Networks:
        """For so many clients, not filled."""
        import torch

        wide = torch.float32 if kind.itemsize == 2 else kind
        parameters, gradients, first, second = (
            torch.zeros(clients, layout.numbers, dtype=each, device=device) for each in (wide, kind, wide, wide)
        )
        half = None if wide == kind else torch.zeros_like(gradients)
        return cls(layout, kind, parameters, gradients, first, second, half)

    def fit(self, layout: Layout, clients: int, device: str, kind: torch.dtype) -> bool:
        """Whether these arrays are those of :meth:`of` for the same."""
        mine = len(self.parameters), self.parameters.device.type, self.kind
        return mine == (clients, device, kind) and self.layout == layout

    def start(self, row: npt.NDArray[np.float32]) -> None:
        """Begin from these weights ``(numbers,)``, all clients the same."""
        import torch

        self.parameters.copy_(torch.from_numpy(row).to(self.parameters))  # one row travels to a GPU, not one a client
        if self.half is not None:
            self.half.copy_(self.parameters)
        self.first.zero_()
        self.second.zero_()

    def named(self, clients: int) -> tuple[Mapping[str, torch.Tensor], Mapping[str, torch.Tensor]]:
        """Weights for matrix products and gradients of the first ``clients``, by name."""
        if clients not in self._named:
            products = self.parameters if self.half is None else self.half
            self._named[clients] = (
                {
                    name: self.layout.view((self.parameters if name.startswith("norm") else products)[:clients], name)
                    for name in self.layout.blocks
                },
                {name: self.layout.view(self.gradients[:clients], name) for name in self.layout.blocks},
            )
        return self._named[clients]


@dataclass
class Stack:
    """The networks of some clients, and their rows one after another.

    ``frozen`` ``(rows, 2, M)`` is what distillation pulls to, for the models with ``anchored`` ``(M,)`` 1.
    """

    networks: Networks
    request: Any
    embeddings: torch.Tensor
    model: torch.Tensor
    targets: torch.Tensor
    frozen: torch.Tensor | None
    anchored: torch.Tensor
    kernels: Kernels
    losses: torch.Tensor
    graphs: dict[tuple[int, int], Callable[..., None]] = field(default_factory=dict)

    @classmethod
    def of(cls, jobs: Sequence[TrainingJob], networks: Networks) -> Stack:
        """A stack of these jobs, which are in :func:`~fedrouter.engines.batched.plan.order_of`."""
        import torch

        request = jobs[0].request
        kind, device = networks.parameters.dtype, networks.parameters.device

        def on_device(parts: Sequence[Any], dtype: torch.dtype) -> torch.Tensor:
            return torch.from_numpy(np.concatenate(parts)).to(device, dtype)

        # As float32 first: the local engine rounds targets to it.
        targets = [np.stack([job.accuracy, job.cost], axis=1).astype(np.float32) for job in jobs]
        anchored = torch.zeros(networks.layout.models, dtype=kind, device=device)
        anchored[[request.models.index(name) for name in request.anchored]] = 1
        frozen = None
        if request.base:
            frozen = on_device([outputs(request.base, job.embeddings).astype(np.float32) for job in jobs], kind)
        return cls(
            networks,
            request,
            on_device([job.embeddings for job in jobs], networks.kind),
            on_device([job.model for job in jobs], torch.int64),
            on_device(targets, kind),
            frozen,
            anchored,
            Kernels.on(device.type),
            torch.zeros(len(jobs), dtype=kind, device=device),
        )

    def run(self, steps: Iterable[Step]) -> None:
        """Take the steps; ``losses`` sums the losses over rows in each client's last epoch."""
        import torch

        self.losses.zero_()
        if self.kernels.recorded:
            self._run_recorded([*steps])
            return
        kind = self.losses.dtype
        for number, step in enumerate(steps, 1):
            corrections = torch.tensor([*(1 - beta**number for beta in BETAS), number], dtype=kind)
            inputs = step.rows, step.share.to(kind), step.seeds, step.counted.to(kind), corrections
            self._take(step.clients, inputs, step.kept)

    def _run_recorded(self, steps: Sequence[Step]) -> None:
        """The same on a GPU: all steps are copied to it first, and their kinds become graphs."""
        import torch

        device, kind = self.losses.device, self.losses.dtype
        groups: dict[tuple[int, int], list[int]] = {}  # numbers of steps, by how many clients take them
        for number, step in enumerate(steps):
            groups.setdefault((step.clients, step.rows.shape[1]), []).append(number)
        numbers = torch.arange(1, len(steps) + 1, device=device, dtype=torch.float64)
        corrections = torch.stack([*(1 - beta**numbers for beta in BETAS), numbers], dim=1).to(kind)
        for shape, members in groups.items():
            rows, share, seeds, counted = (
                torch.stack([getattr(steps[number], part) for number in members]).to(device)
                for part in ("rows", "share", "seeds", "counted")
            )
            share, counted = share.to(kind), counted.to(kind)
            for place, number in enumerate(members):
                inputs = rows[place], share[place], seeds[place], counted[place], corrections[number]
                # The first of its kind is taken as it is, which compiles it; recording takes no step.
                if place == 1 and len(members) >= LEAST_REPEATS and shape not in self.graphs:
                    self.graphs[shape] = self._recorded(shape[0], inputs)
                if shape in self.graphs:
                    self.graphs[shape](*inputs)
                else:
                    self._take(shape[0], inputs, tuple(mask.to(device) for mask in steps[number].kept))

    def _recorded(self, clients: int, like: tuple[torch.Tensor, ...]) -> Callable[..., None]:
        """A step of this many clients as a CUDA graph."""
        import torch

        slots = [each.clone() for each in like]
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self._take(clients, slots, ())

        def replay(*inputs: torch.Tensor) -> None:
            torch._foreach_copy_(slots, list(inputs))
            graph.replay()

        return replay

    def _take(
        self,
        clients: int,
        inputs_of_step: Sequence[torch.Tensor],
        kept: tuple[torch.Tensor, ...],
    ) -> None:
        """One step of the first ``clients``: forward, backward, clipping, AdamW."""
        import torch

        rows, share, seeds, counted, corrections = inputs_of_step
        layout, request, run = self.networks.layout, self.request, self.kernels
        w, g = self.networks.named(clients)
        inputs = self.embeddings.index_select(0, rows.view(-1)).view(*rows.shape, -1)  # (clients, width, d)
        hidden, layers = inputs, []
        for number in range(1, 1 if layout.projected else len(layout.hidden) + 1):
            linear = torch.baddbmm(w[f"layer{number}.bias"][:, None], hidden, w[f"layer{number}.weight"].mT)
            mask = None
            if request.dropout:
                mask = kept[number - 1] if kept else run.mask(seeds[number - 1], *linear.shape[1:], request.dropout)
            norm = w[f"norm{number}.weight"], w[f"norm{number}.bias"]
            above, values = run.activate(linear, *norm, mask, request.dropout)
            layers.append((hidden, values, mask))
            hidden = above
        if layout.projected:
            hidden = torch.bmm(inputs, w[PROJECTION].mT)
        found = torch.baddbmm(w[HEAD_BIAS][:, None], hidden, w[HEAD_WEIGHT].mT)  # (clients, width, 2M + 2 and zeros)
        frozen = None if self.frozen is None else self.frozen[rows]
        settings = layout.models, request.shared_step, request.distillation
        loss, delta = run.loss(found, self.model[rows], self.targets[rows], share, frozen, self.anchored, *settings)
        self.losses[:clients] += loss * counted
        torch.bmm(delta.mT, hidden, out=g[HEAD_WEIGHT])
        g[HEAD_BIAS].copy_(delta.sum(dim=1))
        start = layout.first_head if request.heads_only else 0
        if not request.heads_only:
            delta = torch.bmm(delta, w[HEAD_WEIGHT])
            if layout.projected:
                torch.bmm(delta.mT, inputs, out=g[PROJECTION])
            for number in range(len(layers), 0, -1):
                below, values, mask = layers[number - 1]
                norm = w[f"norm{number}.weight"], w[f"norm{number}.bias"]
                delta, by_weight, by_shift = run.deactivate(delta, values, *norm, mask, request.dropout)
                g[f"norm{number}.weight"].copy_(by_weight)
                g[f"norm{number}.bias"].copy_(by_shift)
                torch.bmm(delta.mT, below, out=g[f"layer{number}.weight"])
                g[f"layer{number}.bias"].copy_(delta.sum(dim=1))
                if number > 1:
                    delta = torch.bmm(delta, w[f"layer{number}.weight"])
        parts = self.networks.parameters, self.networks.gradients, self.networks.first, self.networks.second
        half = None if self.networks.half is None else self.networks.half[:clients, start:]
        settings = request.learning_rate, request.weight_decay, request.clip_norm
        run.adamw(*(part[:clients, start:] for part in parts), corrections, half, *settings)
