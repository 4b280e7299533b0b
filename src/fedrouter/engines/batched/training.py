"""Local training of many clients at once: the network of every client is a slice of one batched computation.

The mathematics is that of :func:`fedrouter.federation.local_training.train`, with the gradients written out, because
all clients' gradients then stand in one array, over which clipping and AdamW are one operation each. On a GPU each
kind of step is recorded once as a CUDA graph, and what is between matrix products is compiled to few kernels.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from fedrouter.engines.batched.kernels import BETAS, Kernels
from fedrouter.engines.batched.layout import HEAD_BIAS, HEAD_WEIGHT, Layout
from fedrouter.engines.batched.plan import HASHED, LOCAL, Step, order_of, steps_of
from fedrouter.routers.mlp import PROJECTION, Weights, outputs

if TYPE_CHECKING:
    import torch

    from fedrouter.federation.local_training import TrainingJob

STACK_BYTES = 2**21
"""Of weights of clients that are one computation on the CPU: they, gradients and moments should stay in a core's cache.
Networks that are larger are trained one by one; of small ones many are together, because each operation has a price."""
_LAST = threading.local()
"""The last stack of a thread on the CPU: fresh memory for its arrays takes as long as half of a client's products."""
Item = TypeVar("Item")
Found = TypeVar("Found")
LEAST_REPEATS = 4
"""A kind of step that is taken fewer times than this is not recorded as a graph."""


def train_together(
    jobs: Sequence[TrainingJob],
    device: str = "cpu",
    precision: str = "float32",
    masks: str | None = None,
    rounded: bool = True,
) -> list[tuple[Weights, float]]:
    """What :func:`~fedrouter.federation.local_training.train` gives for each of the jobs, in their order.

    Jobs share one request and differ in rows and seed. ``masks`` are those of the local engine on the CPU, and hashed
    on a GPU, unless they are named. Weights are ``rounded`` to float32, in which they travel. With the precision
    "bfloat16" matrix products and gradients are in it, and weights and moments in float32.
    """
    places = order_of(jobs)
    layout = Layout.of(jobs[0].request.weights)
    masks = masks or (LOCAL if device == "cpu" else HASHED)
    size = len(jobs) if device != "cpu" else max(1, STACK_BYTES // (4 * layout.numbers))
    stacks = [[jobs[place] for place in places[start : start + size]] for start in range(0, len(jobs), size)]

    def one(stack: Sequence[TrainingJob]) -> list[tuple[Weights, float]]:
        return _train_stack(stack, layout, device, precision, masks, rounded)

    found = on_each_core(one, stacks) if device == "cpu" else [one(stack) for stack in stacks]
    _LAST.__dict__.clear()  # of this thread; the others have ended
    trained: list[tuple[Weights, float]] = [({}, 0.0)] * len(jobs)
    for place, each in zip(places, (each for stack in found for each in stack), strict=True):
        trained[place] = each
    return trained


def _train_stack(
    jobs: Sequence[TrainingJob], layout: Layout, device: str, precision: str, masks: str, rounded: bool
) -> list[tuple[Weights, float]]:
    """What the jobs, which are in :func:`order_of`, give when they are one computation."""
    import torch

    steps = steps_of(jobs, layout, masks)
    spare = getattr(_LAST, "stack", None) if device == "cpu" else None
    state = Stack.of(jobs, layout, device, getattr(torch, precision), spare)
    state.run(steps)
    if device == "cpu":
        _LAST.stack = state
    rows, losses = state.parameters.cpu().numpy(), state.losses.cpu().numpy()
    rows = rows.astype(np.float32 if rounded else rows.dtype)
    like = jobs[0].request.returned_weights()
    return [
        (layout.unpack(row, like), float(loss / len(job.model)))
        for row, loss, job in zip(rows, losses, jobs, strict=True)
    ]


def on_each_core(function: Callable[[Item], Found], items: Sequence[Item]) -> list[Found]:
    """What the function gives for each item, with as many threads as torch may use, each of which is one core's.

    Cores that work on one stack wait for each other at every operation; on stacks of their own they do not.
    """
    import torch

    cores = torch.get_num_threads()
    if cores == 1 or len(items) == 1:
        return [function(item) for item in items]
    with ThreadPoolExecutor(cores, initializer=torch.set_num_threads, initargs=(1,)) as pool:
        found = list(pool.map(function, items))
    torch.set_num_threads(cores)  # some libraries have one number for all threads
    return found


@dataclass
class Stack:
    """Weights, gradients and AdamW's moments of all clients ``(clients, numbers)``, and their rows one after another.

    ``frozen`` ``(rows, 2, M)`` is what distillation pulls to, for the models with ``anchored`` ``(M,)`` 1. ``half``
    is a copy of the weights in half precision, if matrix products are in it.
    """

    layout: Layout
    request: Any
    parameters: torch.Tensor
    gradients: torch.Tensor
    first: torch.Tensor
    second: torch.Tensor
    embeddings: torch.Tensor
    model: torch.Tensor
    targets: torch.Tensor
    frozen: torch.Tensor | None
    anchored: torch.Tensor
    kernels: Kernels
    losses: torch.Tensor
    half: torch.Tensor | None = None
    graphs: dict[tuple[int, int], Callable[..., None]] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        jobs: Sequence[TrainingJob],
        layout: Layout,
        device: str,
        kind: torch.dtype,
        spare: Stack | None = None,
    ) -> Stack:
        """A stack for these jobs, in the memory of a ``spare`` one if that fits."""
        import torch

        request = jobs[0].request

        def on_device(parts: Sequence[Any], dtype: torch.dtype) -> torch.Tensor:
            return torch.from_numpy(np.concatenate(parts)).to(device, dtype)

        products, kind = kind, torch.float32 if kind.itemsize == 2 else kind
        row = torch.from_numpy(layout.pack(request.weights)).to(device, kind)
        if spare and (spare.parameters.shape, spare.parameters.dtype) == ((len(jobs), layout.numbers), kind):
            parameters, gradients, first, second = spare.parameters, spare.gradients, spare.first, spare.second
            parameters[:] = row
            first.zero_()
            second.zero_()
            gradients = gradients if gradients.dtype == products else torch.zeros_like(parameters, dtype=products)
        else:
            parameters = row.repeat(len(jobs), 1)
            gradients = torch.zeros_like(parameters, dtype=products)
            first, second = torch.zeros_like(parameters), torch.zeros_like(parameters)
        # As float32 first: the local engine rounds targets to it.
        targets = [np.stack([job.accuracy, job.cost], axis=1).astype(np.float32) for job in jobs]
        anchored = torch.zeros(layout.models, dtype=kind, device=device)
        anchored[[request.models.index(name) for name in request.anchored]] = 1
        frozen = None
        if request.base:
            frozen = on_device([outputs(request.base, job.embeddings).astype(np.float32) for job in jobs], kind)
        return cls(
            layout,
            request,
            parameters,
            gradients,
            first,
            second,
            on_device([job.embeddings for job in jobs], products),
            on_device([job.model for job in jobs], torch.int64),
            on_device(targets, kind),
            frozen,
            anchored,
            Kernels.on(device),
            torch.zeros(len(jobs), dtype=kind, device=device),
            parameters.to(products) if products != kind else None,
        )

    def run(self, steps: Sequence[Step]) -> None:
        """Take the steps; ``losses`` sums the losses over rows in each client's last epoch."""
        import torch

        device, kind = self.parameters.device, self.parameters.dtype
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
                if self.kernels.recorded and place == 1 and len(members) >= LEAST_REPEATS and shape not in self.graphs:
                    self.graphs[shape] = self._recorded(shape[0], inputs)
                if shape in self.graphs:
                    self.graphs[shape](*inputs)
                else:
                    self._take(shape[0], inputs, tuple(mask.to(device) for mask in steps[number].kept))

    def restart(self, weights: Weights) -> None:
        """Begin again from these weights, with the same rows."""
        import torch

        self.parameters.copy_(torch.from_numpy(self.layout.pack(weights)).to(self.parameters))
        if self.half is not None:
            self.half.copy_(self.parameters)
        for each in (self.first, self.second, self.losses):
            each.zero_()

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
        layout, request, run = self.layout, self.request, self.kernels
        weights, gradients = self.parameters[:clients], self.gradients[:clients]
        half = None if self.half is None else self.half[:clients]

        def w(name: str) -> torch.Tensor:
            return layout.view(weights if half is None or name.startswith("norm") else half, name)

        def g(name: str) -> torch.Tensor:
            return layout.view(gradients, name)

        inputs = self.embeddings[rows]  # (clients, width, d)
        hidden, layers = inputs, []
        for number in range(1, 1 if layout.projected else len(layout.hidden) + 1):
            linear = torch.baddbmm(w(f"layer{number}.bias")[:, None], hidden, w(f"layer{number}.weight").mT)
            mask = None
            if request.dropout:
                mask = kept[number - 1] if kept else run.mask(seeds[number - 1], *linear.shape[1:], request.dropout)
            norm = w(f"norm{number}.weight"), w(f"norm{number}.bias")
            above, normal, scale = run.activate(linear, *norm, mask, request.dropout)
            layers.append((hidden, normal, scale, mask))
            hidden = above
        if layout.projected:
            hidden = torch.bmm(inputs, w(PROJECTION).mT)
        found = torch.baddbmm(w(HEAD_BIAS)[:, None], hidden, w(HEAD_WEIGHT).mT)  # (clients, width, 2M + 2 and zeros)
        frozen = None if self.frozen is None else self.frozen[rows]
        settings = layout.models, request.shared_step, request.distillation
        loss, delta = run.loss(found, self.model[rows], self.targets[rows], share, frozen, self.anchored, *settings)
        self.losses[:clients] += loss * counted
        torch.bmm(delta.mT, hidden, out=g(HEAD_WEIGHT))
        g(HEAD_BIAS).copy_(delta.sum(dim=1))
        start = layout.first_head if request.heads_only else 0
        if not request.heads_only:
            delta = torch.bmm(delta, w(HEAD_WEIGHT))
            if layout.projected:
                torch.bmm(delta.mT, inputs, out=g(PROJECTION))
            for number in range(len(layers), 0, -1):
                below, normal, scale, mask = layers[number - 1]
                norm = w(f"norm{number}.weight"), w(f"norm{number}.bias")
                delta, by_weight, by_shift = run.deactivate(delta, normal, scale, *norm, mask, request.dropout)
                g(f"norm{number}.weight").copy_(by_weight)
                g(f"norm{number}.bias").copy_(by_shift)
                torch.bmm(delta.mT, below, out=g(f"layer{number}.weight"))
                g(f"layer{number}.bias").copy_(delta.sum(dim=1))
                if number > 1:
                    delta = torch.bmm(delta, w(f"layer{number}.weight"))
        run.adamw(
            weights[:, start:],
            gradients[:, start:],
            self.first[:clients, start:],
            self.second[:clients, start:],
            corrections,
            None if half is None else half[:, start:],
            request.learning_rate,
            request.weight_decay,
            request.clip_norm,
        )
