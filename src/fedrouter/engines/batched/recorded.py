"""Steps of training on a GPU as CUDA graphs, which are recorded once and serve all later rounds.

A graph has the addresses of its arrays in it, so they are kept from round to round: networks, rows of the clients as
long as they fit, and the inputs of a step, which are packed into one array. A step of fewer clients is filled up with
some that take no step, so that there are few kinds of steps however many sizes of clients there are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from fedrouter.engines.batched.kernels import BETAS, Targets
from fedrouter.engines.batched.networks import Networks
from fedrouter.engines.batched.plan import Step
from fedrouter.engines.batched.stack import Stack

if TYPE_CHECKING:
    import torch

    from fedrouter.federation.local_training import TrainingJob

SIZES = 16
"""How many numbers of clients steps have, at most."""
ROOM = 1.125
"""Memory for rows over what the first round needs: the clients of others may have more of them."""
RECORDED = "learning_rate", "weight_decay", "clip_norm", "dropout", "shared_step", "heads_only", "distillation"
"""What a graph takes from the request."""
Kind: TypeAlias = tuple[int, int, bool]
"""Clients and rows of a step, and whether it is the initial one."""


class RecordedStack:
    """A stack whose arrays stay where they are, and the graphs of its steps.

    ``losses`` ``(clients,)`` and ``networks.parameters`` are those of the clients last loaded, in their order.
    """

    def __init__(self, networks: Networks) -> None:
        self.networks = networks
        self._stack: Stack | None = None
        self._settings: tuple[Any, ...] = ()
        self._taken: set[Kind] = set()
        self._graphs: dict[Kind, Callable[[torch.Tensor], None]] = {}
        self._pool: Any = None

    @property
    def losses(self) -> torch.Tensor:
        assert self._stack is not None
        return self._stack.losses

    def load(self, jobs: Sequence[TrainingJob]) -> None:
        """Take the jobs of a round, which are in :func:`~fedrouter.engines.batched.plan.order_of`."""
        import torch

        given = Stack.of(jobs, self.networks)
        settings = *(getattr(given.request, name) for name in RECORDED), torch.backends.cuda.matmul.allow_tf32
        stack = self._stack
        if (
            stack is None
            or settings != self._settings
            or len(stack.embeddings) < len(given.embeddings)
            or (stack.targets.frozen is None) != (given.targets.frozen is None)
        ):
            self._stack = stack = _with_room(given, len(self.networks.parameters))
            self._settings = settings
            self._taken.clear()
            self._graphs.clear()
            self._pool = None  # memory that graphs share goes with the last of them
        stack.request = given.request
        for kept, new in zip(_arrays(stack), _arrays(given), strict=True):
            kept[: len(new)].copy_(new)

    def run(self, steps: Iterable[Step]) -> None:
        """Take the steps; ``losses`` sums the losses over rows in each client's last epoch."""
        self.take(self.packed(steps))

    def packed(self, steps: Iterable[Step]) -> Iterator[tuple[Kind, torch.Tensor]]:
        """The steps as their graphs take them; one is packed while the one before is taken."""
        assert self._stack is not None
        for number, step in enumerate(steps, 1):
            clients = self._filled(step.clients)
            kind = clients, step.rows.shape[1], number == 1 and not self._stack.request.heads_only
            yield kind, pack_step(step, clients, number, self.losses.device.type == "cuda")

    def take(self, steps: Iterable[tuple[Kind, torch.Tensor]]) -> None:
        """Take packed steps; the first of a kind as it is, which compiles it, the others as graphs."""
        self.losses.zero_()
        device = self.losses.device
        for kind, packed in steps:
            if kind in self._taken and device.type == "cuda":
                if kind not in self._graphs:
                    self._graphs[kind] = self._recorded(kind, packed)
                self._graphs[kind](packed)
            else:
                self._take(kind, packed.to(device))
                self._taken.add(kind)

    def _filled(self, clients: int) -> int:
        most = len(self.networks.parameters)
        size = -(-most // SIZES)
        return min(most, -(-clients // size) * size)

    def _take(self, kind: Kind, packed: torch.Tensor) -> None:
        assert self._stack is not None
        clients, width, initial = kind
        rows, *others = parts_of(packed, clients, width)
        self._stack.take(clients, (rows.long(), *others), initial=initial)

    def _recorded(self, kind: Kind, like: torch.Tensor) -> Callable[[torch.Tensor], None]:
        """A step of this kind as a CUDA graph; all share their memory, because none is taken beside another."""
        import torch

        inputs = like.to(self.losses.device)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        self._pool = self._pool or torch.cuda.graph_pool_handle()
        with torch.cuda.graph(graph, pool=self._pool):
            self._take(kind, inputs)

        def replay(packed: torch.Tensor) -> None:
            inputs.copy_(packed, non_blocking=True)  # the next is packed while this step is taken
            graph.replay()

        return replay


def _arrays(stack: Stack) -> list[torch.Tensor]:
    targets = stack.targets
    found = [stack.embeddings, targets.model, targets.values, targets.anchored, stack.losses]
    return found if targets.frozen is None else [*found, targets.frozen]


def _with_room(stack: Stack, clients: int) -> Stack:
    """A stack with space for more rows, and for the losses of ``clients``."""

    def larger(array: torch.Tensor) -> torch.Tensor:
        return array.new_zeros(int(ROOM * len(array)), *array.shape[1:])

    targets = stack.targets
    frozen = None if targets.frozen is None else larger(targets.frozen)
    copies = Targets(larger(targets.model), larger(targets.values), frozen, targets.anchored.clone())
    return Stack(stack.networks, stack.request, larger(stack.embeddings), copies, stack.losses.new_zeros(clients))


def pack_step(step: Step, clients: int, number: int, pinned: bool) -> torch.Tensor:
    """What a step takes, filled up to ``clients`` with zeros, in one array of int32; float32 keep their bits."""
    import torch

    layers, width = len(step.seeds), step.rows.shape[1]
    size = (2 * width + layers + 1) * clients + len(BETAS)
    packed = torch.zeros(size, dtype=torch.int32, pin_memory=pinned)
    rows, share, seeds, counted, corrections = parts_of(packed, clients, width)
    rows[: step.clients] = step.rows
    share[: step.clients] = step.share
    seeds[:, : step.clients] = step.seeds
    counted[: step.clients] = step.counted
    corrections.copy_(torch.tensor([1 - beta**number for beta in BETAS]))
    return packed


def parts_of(packed: torch.Tensor, clients: int, width: int) -> tuple[torch.Tensor, ...]:
    """Rows, share, seeds and counted of a step, and AdamW's corrections, as views."""
    import torch

    batch = clients * width
    rows, share, rest = packed[:batch], packed[batch : 2 * batch], packed[2 * batch : -len(BETAS)]
    seeds, counted = rest[:-clients].view(-1, clients), rest[-clients:]
    corrections = packed[-len(BETAS) :].view(torch.float32)
    share, counted = share.view(torch.float32), counted.view(torch.float32)
    return rows.view(clients, width), share.view(clients, width), seeds, counted, corrections
