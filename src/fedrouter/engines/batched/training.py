"""Local training of many clients: on a GPU as one batched computation, on the CPU as one for each core at a time."""

from __future__ import annotations

import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import numpy.typing as npt

from fedrouter.engines.batched.layout import Layout
from fedrouter.engines.batched.networks import Networks
from fedrouter.engines.batched.plan import HASHED, LOCAL, order_of, steps_of
from fedrouter.engines.batched.recorded import RecordedStack
from fedrouter.engines.batched.stack import Stack
from fedrouter.routers.mlp import Weights

if TYPE_CHECKING:
    import torch

    from fedrouter.federation.local_training import TrainingJob

STACK_BYTES = 2**21
"""Of weights of clients that are one computation on the CPU: they, gradients and moments should stay in a core's cache.
Networks that are larger are trained one by one; of small ones many are together, because each operation has a price."""
_LAST = threading.local()
"""The last networks of a thread: fresh memory for them takes as long as half of a client's products on a CPU. On a GPU
they are those of the graphs that were recorded."""
Item = TypeVar("Item")
Found = TypeVar("Found")


def train_together(
    jobs: Iterable[TrainingJob],
    device: str = "cpu",
    precision: str = "float32",
    masks: str | None = None,
    rounded: bool = True,
) -> Iterator[tuple[Weights, float]]:
    """What :func:`~fedrouter.federation.local_training.train` gives for each of the jobs, in their order.

    Jobs share one request and differ in rows and seed. All of them are taken before this returns; on the CPU the first
    are trained meanwhile. ``masks`` are those of the local engine on the CPU, and hashed on a GPU, unless they are
    named. Weights are ``rounded`` to float32, in which they travel. With the precision "bfloat16" matrix products are
    in it, and weights and moments in float32; gradients of matrices are in it on the CPU alone.
    """
    waiting = iter(jobs)
    first = next(waiting, None)
    if first is None:
        return iter(())
    layout = Layout.of(first.request.weights)
    row = layout.pack(first.request.weights)
    masks = masks or (LOCAL if device == "cpu" else HASHED)
    waiting = chain([first], waiting)

    kind = np.float64 if precision == "float64" and not rounded else np.float32
    size = max(1, STACK_BYTES // (4 * layout.numbers)) if device == "cpu" else sys.maxsize

    def stacks() -> Iterator[tuple[list[TrainingJob], npt.NDArray[Any]]]:
        while some := [*islice(waiting, size)]:
            yield some, np.empty((len(some), layout.numbers), kind)

    def train(stack: tuple[list[TrainingJob], npt.NDArray[Any]]) -> list[tuple[Weights, float]]:
        return _train_stack(*stack, layout, row, device, precision, masks)

    return chain.from_iterable(on_each_core(train, stacks()) if device == "cpu" else map(train, stacks()))


def _train_stack(
    given: Sequence[TrainingJob],
    rows: npt.NDArray[Any],
    layout: Layout,
    row: npt.NDArray[np.float32],
    device: str,
    precision: str,
    masks: str,
) -> list[tuple[Weights, float]]:
    """What the jobs give when they are one computation that begins at the weights ``row``, in the memory of ``rows``.

    That is the caller's, because memory that a thread frees is not kept: in each round it would be fresh, and slow.
    """
    import torch

    places = order_of(given)
    jobs = [given[place] for place in places]
    networks = _networks_for(layout, len(jobs), device, getattr(torch, precision))
    networks.start(row, jobs[0].request.heads_only)
    steps = steps_of(jobs, layout, masks, networks.parameters.dtype)
    stack: Stack | RecordedStack
    if networks.fused:
        assert masks == HASHED, "fused kernels hash their masks"
        stack = _LAST.recorded = getattr(_LAST, "recorded", None) or RecordedStack(networks)
        stack.load(jobs)
    else:
        stack = Stack.of(jobs, networks)
    stack.run(steps)
    rows[:] = networks.parameters[: len(jobs)].cpu().numpy()
    losses = stack.losses.cpu().numpy()
    like = jobs[0].request.returned_weights()
    trained: list[tuple[Weights, float]] = [({}, 0.0)] * len(jobs)
    for place, own, loss in zip(places, rows, losses[: len(jobs)], strict=True):
        trained[place] = layout.unpack(own, like), float(loss / len(given[place].model))
    return trained


def _networks_for(layout: Layout, clients: int, device: str, kind: torch.dtype) -> Networks:
    """The last networks of this thread, if they fit, or new ones."""
    last: Networks | None = getattr(_LAST, "networks", None)
    if last and last.fit(layout, clients, device, kind):
        return last
    del last
    _LAST.networks = _LAST.recorded = None  # two of them may not fit into memory
    _LAST.networks = networks = Networks.of(layout, clients, device, kind)
    return networks


def on_each_core(function: Callable[[Item], Found], items: Iterable[Item]) -> Iterator[Found]:
    """What the function gives for each item, with as many threads as torch may use, each of which is one core's.

    Cores that work on one stack wait for each other at every operation; on stacks of their own they do not. All items
    are taken before this returns, and the first are worked on meanwhile.
    """
    import torch

    cores = torch.get_num_threads()
    pool = ThreadPoolExecutor(cores, initializer=torch.set_num_threads, initargs=(1,))

    def end() -> None:
        pool.shutdown(cancel_futures=True)
        torch.set_num_threads(cores)  # some libraries have one number for all threads

    try:
        waiting = deque(pool.submit(function, item) for item in items)
    except BaseException:
        end()
        raise

    def found() -> Iterator[Found]:
        try:
            while len(waiting) > 1:
                yield waiting.popleft().result()
            last = [each.result() for each in waiting]
        finally:
            end()
        yield from last

    return found()
