"""The batched engine: the in-process engine, with the training or clustering of many clients in one computation.

A client answers ``train`` exactly as on the local engine, up to where it would train: its privacy policy, its choice of
rows and what it remembers are its own. There its job waits, in a thread, until it is done with those of others. Only
one client answers at a time, in a fixed order. The same goes for ``cluster``.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextvars import ContextVar, copy_context
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any

from fedrouter.engines.batched.clustering import cluster_together
from fedrouter.engines.batched.training import train_together
from fedrouter.engines.local import LocalFederation
from fedrouter.engines.summed import SummedFederation
from fedrouter.federation.client import Client
from fedrouter.federation.clustering import CLUSTERER
from fedrouter.federation.device import training_device
from fedrouter.federation.local_training import TRAINER
from fedrouter.federation.message import Message, Request

TOGETHER = 64
"""Clients that train together on the CPU, where more of them are no faster; memory grows with them."""
TOGETHER_ON_GPU = 1024


@dataclass(frozen=True)
class Computation:
    """The part of an answer to ``verb`` that is done for many clients at once.

    ``hook`` is where a client hands over its job instead of doing it; ``together`` takes all jobs, and gives what came
    of each in their order.
    """

    verb: str
    hook: ContextVar[Any]
    together: Callable[[Iterable[Any], str, str], Iterator[Any]]


COMPUTATIONS = (Computation("train", TRAINER, train_together), Computation("cluster", CLUSTERER, cluster_together))
BATCHED = {computation.verb: computation for computation in COMPUTATIONS}
"""By verb; every other one is answered as on the local engine."""


class BatchedFederation(LocalFederation):
    """Clients in this process that train and cluster together; every other verb is answered as on the local engine.

    Parameters
    ----------
    device : where they train and cluster; None for the one in use (:func:`~fedrouter.federation.device.use_device`)
    together : how many of them at once, at most
    precision : "float32", "bfloat16" for matrix products in it, or "float64" to compare engines with each other
    """

    def __init__(
        self,
        clients: Iterable[Client],
        device: str | None = None,
        together: int | None = None,
        precision: str = "float32",
    ) -> None:
        super().__init__(clients)
        self._device = device or training_device()
        self._together = together or (TOGETHER if self._device == "cpu" else TOGETHER_ON_GPU)
        self._precision = precision

    def _answers(
        self, names: Sequence[str], verb: str, request: Request[Any], hidden: bool = False
    ) -> Iterator[tuple[str, Message]]:
        computation = BATCHED.get(verb)
        if computation is None:
            yield from super()._answers(names, verb, request, hidden)
            return
        for start in range(0, len(names), self._together):
            some = names[start : start + self._together]
            seats = [_Seat(self._clients[name], verb, request, hidden, computation.hook) for name in some]
            try:
                done = computation.together(_tasks_of(seats), self._device, self._precision)
                for name, seat in zip(some, seats, strict=True):
                    yield name, seat.reply(done)
            finally:
                for seat in seats:
                    seat.close()


class BatchedSummedFederation(BatchedFederation, SummedFederation):
    """The same, and only the totals of sums are seen, as under secure aggregation."""


class _Closed(BaseException):
    """Ends the answer of a client whose job is not done; not an Exception, so that none is caught by mistake."""


@dataclass(frozen=True)
class _Job:
    """What a client wants done."""

    task: Any


@dataclass(frozen=True)
class _Result:
    """What came of it."""

    value: Any


def _tasks_of(seats: Iterable[_Seat]) -> Iterator[Any]:
    """What the clients want done, asked one after the other."""
    for seat in seats:
        if job := seat.job():
            yield job.task


class _Seat:
    """A client that answers a verb in a thread of its own, which waits where its job is to be done."""

    def __init__(self, client: Client, verb: str, request: Request[Any], hidden: bool, hook: ContextVar[Any]) -> None:
        self._said: SimpleQueue[_Job | Message | BaseException] = SimpleQueue()
        self._done: SimpleQueue[_Result | _Closed] = SimpleQueue()
        self._reply: Message | None = None  # of a client that had no job

        def answer() -> None:
            hook.set(self._hand_over)
            try:
                self._said.put(client.answer(verb, request, hidden=hidden))
            except BaseException as error:
                self._said.put(error)

        self._thread = threading.Thread(target=copy_context().run, args=(answer,), daemon=True)

    def job(self) -> _Job | None:
        """The client's job; None if it answers without."""
        self._thread.start()
        said = self._next()
        if isinstance(said, _Job):
            return said
        self._reply = said
        return None

    def reply(self, done: Iterator[Any]) -> Message:
        """The client's reply; if it had a job, what came of it is the next of these."""
        if self._reply is None:
            self._done.put(_Result(next(done)))
            said = self._next()
            assert isinstance(said, Message)
            self._reply = said
        return self._reply

    def close(self) -> None:
        """End the answer if it is still waiting."""
        if self._thread.is_alive():
            self._done.put(_Closed())
            self._thread.join()

    def _next(self) -> _Job | Message:
        said = self._said.get()
        if isinstance(said, BaseException):
            raise said
        return said

    def _hand_over(self, task: Any) -> Any:
        self._said.put(_Job(task))
        done = self._done.get()
        if isinstance(done, _Closed):
            raise done
        return done.value
