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
from fedrouter.engines.batched.plan import HASHED, LOCAL, order_of, steps_of
from fedrouter.engines.batched.stack import Networks, Stack
from fedrouter.routers.mlp import Weights

if TYPE_CHECKING:
    from fedrouter.federation.local_training import TrainingJob

STACK_BYTES = 2**21
"""Of weights of clients that are one computation on the CPU: they, gradients and moments should stay in a core's cache.
Networks that are larger are trained one by one; of small ones many are together, because each operation has a price."""
_LAST = threading.local()
"""The last networks of a thread on the CPU: fresh memory for them takes as long as half of a client's products."""
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
    named. Weights are ``rounded`` to float32, in which they travel. With the precision "bfloat16" matrix products and
    gradients are in it, and weights and moments in float32.
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
    wanted = layout, len(jobs), device, getattr(torch, precision)
    networks: Networks | None = getattr(_LAST, "networks", None)
    if not networks or not networks.fit(*wanted):
        networks = Networks.of(*wanted)
    _LAST.networks = networks if device == "cpu" else None
    networks.start(row)
    stack = Stack.of(jobs, networks)
    stack.run(steps_of(jobs, layout, masks, networks.parameters.dtype))
    rows[:] = networks.parameters.cpu().numpy()
    losses = stack.losses.cpu().numpy()
    like = jobs[0].request.returned_weights()
    trained: list[tuple[Weights, float]] = [({}, 0.0)] * len(jobs)
    for place, own, loss in zip(places, rows, losses, strict=True):
        trained[place] = layout.unpack(own, like), float(loss / len(given[place].model))
    return trained


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
