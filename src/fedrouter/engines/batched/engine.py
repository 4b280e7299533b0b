"""The batched engine: the in-process engine, with the training of many clients in one computation.

A client answers ``train`` exactly as on the local engine, up to where it would train: its privacy policy, its choice of
rows and what it remembers are its own. There its job waits, in a thread, until all that train together have one. Only
one thread runs at a time, in a fixed order.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from contextvars import copy_context
from queue import SimpleQueue
from typing import Any

from fedrouter.engines.batched.training import train_together
from fedrouter.engines.local import LocalFederation
from fedrouter.engines.summed import SummedFederation
from fedrouter.federation.client import Client
from fedrouter.federation.device import training_device
from fedrouter.federation.local_training import TRAINER, TrainingJob
from fedrouter.federation.message import Message, Request
from fedrouter.routers.mlp import Weights

TOGETHER = 64
"""Clients that train together on the CPU, where more of them are no faster; memory grows with them."""
TOGETHER_ON_GPU = 1024


class BatchedFederation(LocalFederation):
    """Clients in this process that train together; every other verb is answered as on the local engine.

    Parameters
    ----------
    device : where they train; None for the one in use (:func:`~fedrouter.federation.device.use_device`)
    together : how many of them at once, at most
    precision : "float32", or "float64" to compare engines with each other
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
        if verb != "train":
            yield from super()._answers(names, verb, request, hidden)
            return
        for start in range(0, len(names), self._together):
            some = names[start : start + self._together]
            seats = [_Seat(self._clients[name], request, hidden) for name in some]
            try:
                jobs = [seat.job() for seat in seats]
                waiting = [job for job in jobs if job]
                trained = iter(train_together(waiting, self._device, self._precision) if waiting else ())
                for name, seat, job in zip(some, seats, jobs, strict=True):
                    yield name, seat.reply(next(trained) if job else None)
            finally:
                for seat in seats:
                    seat.close()


class BatchedSummedFederation(BatchedFederation, SummedFederation):
    """The same, and only the totals of sums are seen, as under secure aggregation."""


class _Closed(BaseException):
    """Ends the answer of a client that is not trained; not an Exception, so that none is caught by mistake."""


class _Seat:
    """A client that answers ``train`` in a thread of its own, which waits where it would train."""

    def __init__(self, client: Client, request: Request[Any], hidden: bool) -> None:
        self._said: SimpleQueue[TrainingJob | Message | BaseException] = SimpleQueue()
        self._trained: SimpleQueue[tuple[Weights, float] | _Closed] = SimpleQueue()
        self._reply: Message | None = None

        def answer() -> None:
            TRAINER.set(self._train)
            try:
                self._said.put(client.answer("train", request, hidden=hidden))
            except BaseException as error:
                self._said.put(error)

        self._thread = threading.Thread(target=copy_context().run, args=(answer,), daemon=True)

    def job(self) -> TrainingJob | None:
        """What the client would train on; None if it answers without."""
        self._thread.start()
        said = self._next()
        if isinstance(said, TrainingJob):
            return said
        self._reply = said
        return None

    def reply(self, trained: tuple[Weights, float] | None) -> Message:
        """The client's reply, once it has these weights and this loss."""
        if trained is not None:
            self._trained.put(trained)
            said = self._next()
            assert isinstance(said, Message)
            self._reply = said
        assert self._reply is not None
        return self._reply

    def close(self) -> None:
        """End the answer if it is still waiting."""
        if self._thread.is_alive():
            self._trained.put(_Closed())
            self._thread.join()

    def _next(self) -> TrainingJob | Message:
        said = self._said.get()
        if isinstance(said, BaseException):
            raise said
        return said

    def _train(self, job: TrainingJob) -> tuple[Weights, float]:
        self._said.put(job)
        trained = self._trained.get()
        if isinstance(trained, _Closed):
            raise trained
        return trained
