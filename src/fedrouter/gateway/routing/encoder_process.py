"""The gateway's side of a process that encodes and estimates: under load, another core does that part of routing.

Python runs one thread at a time, and encoding and estimating are a large part of what a new prompt costs. Batches of
texts go over a socket and come back as embeddings and estimates (:mod:`fedrouter.gateway.routing.encoder_worker`). A
process that ends is started again; meanwhile the gateway does everything by itself.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple, cast

import numpy as np
import orjson

from fedrouter.evaluations import Embeddings, Floats
from fedrouter.gateway.routing.bundles import ServedBundle
from fedrouter.gateway.routing.encoder_worker import HEAD, LENGTH
from fedrouter.gateway.routing.served import Served

LOG = logging.getLogger("fedrouter.gateway")
PATIENCE = 30.0
"""Seconds after which a process that does not answer is killed; no request waits that long for it."""
AGAIN, AT_MOST = 1.0, 60.0
"""Seconds until a process that has ended is started again; twice as many after every start that fails."""


class Encoded(NamedTuple):
    """A batch as it comes back: embeddings ``(n, d)``, and estimates with the bundle in service if it has them."""

    embeddings: Embeddings
    served: ServedBundle | None
    estimates: Floats | None
    """``(n, 3, P)`` over the router's own pool, as :meth:`ServedBundle.keep` takes them."""


Then = Callable[[Encoded | None], None]
"""Called with a batch; None if the process did not encode it."""


class EncoderProcess(asyncio.Protocol):
    """The process and the batches that it has; created by :meth:`start` inside the running event loop."""

    def __init__(self, dimension: int) -> None:
        self._dimension = dimension
        self._process: subprocess.Popen[bytes] | None = None
        self._transport: asyncio.Transport | None = None
        self._asked: deque[Then] = deque()
        self._since = 0.0
        """When it began with the first of them, or could have."""
        self._received = bytearray()
        self._late: asyncio.TimerHandle | None = None
        self._served: Served | None = None
        self._number = 0
        self._pause = AGAIN
        self._restart: asyncio.Task[None] | None = None
        self._closing = False
        self.ready = False
        """Whether it can be given batches: its encoder is loaded, and it has not ended."""

    @classmethod
    async def start(cls, dimension: int) -> EncoderProcess:
        """Start the process; it is ``ready`` as soon as it has loaded the encoder."""
        found = cls(dimension)
        if not await found._start():
            found._start_again()
        return found

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    @property
    def waiting(self) -> float:
        """Seconds for which it has been at a batch."""
        return time.monotonic() - self._since if self._asked else 0.0

    def follow(self, served: Served | None) -> None:
        """Say what is in service, so that batches from now on are estimated with it."""
        if served is self._served or self._transport is None:
            return
        self._served = served
        self._number += 1
        if isinstance(served, ServedBundle):
            path = os.path.abspath(served.bundle.path)
            self._send(orjson.dumps({"path": path, "digest": served.digest, "number": self._number}))

    def encode(self, texts: Sequence[str], then: Then) -> None:
        """Encode a batch; batches are encoded in the order in which they come."""
        try:
            message = orjson.dumps(texts)
        except orjson.JSONEncodeError:  # a lone surrogate cannot be sent
            then(None)
            return
        self._asked.append(then)
        if len(self._asked) == 1:
            self._begin()
        self._send(message)

    async def close(self) -> None:
        """End the process; it has nothing to save."""
        self._closing = True
        if self._restart is not None:
            self._restart.cancel()
            await asyncio.wait([self._restart])
        if self._transport is not None:
            self._transport.abort()
        if self._process is not None:
            self._process.kill()  # it ends with its socket, except if it was stopped
            await asyncio.to_thread(self._process.wait)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # of a socket, though uvloop's is not derived from it

    def data_received(self, data: bytes) -> None:
        self._received += data
        while len(self._received) >= HEAD.size:
            size, texts, number = HEAD.unpack_from(self._received)
            if len(self._received) < HEAD.size + size:
                return
            body = bytes(self._received[HEAD.size : HEAD.size + size])
            del self._received[: HEAD.size + size]
            self._end_waiting()
            then = self._asked.popleft()
            if self._asked:
                self._begin()
            then(self._encoded(body, texts, number) if texts else None)

    def connection_lost(self, exc: Exception | None) -> None:
        self.ready = False
        self._transport = self._served = None
        self._received.clear()
        self._end_waiting()
        while self._asked:
            self._asked.popleft()(None)
        if not self._closing:
            LOG.error("the encoder's process has ended: the gateway encodes prompts by itself until it is back")
            self._start_again()

    def _encoded(self, body: bytes, texts: int, number: int) -> Encoded:
        count = texts * self._dimension
        embeddings = np.frombuffer(body, np.float32, count).reshape(texts, self._dimension)
        if number != self._number or not isinstance(self._served, ServedBundle):  # of a bundle before, or of none
            return Encoded(embeddings, None, None)
        estimates = np.frombuffer(body, np.float64, offset=embeddings.nbytes)
        return Encoded(embeddings, self._served, estimates.reshape(texts, 3, -1))

    def _send(self, message: bytes) -> None:
        assert self._transport is not None
        self._transport.write(LENGTH.pack(len(message)) + message)

    def _begin(self) -> None:
        """It begins with a batch; if it never answers it is killed, but loading takes as long as it takes."""
        self._since = time.monotonic()
        if self.ready and self._process is not None:
            self._late = asyncio.get_running_loop().call_later(PATIENCE, self._process.kill)

    def _end_waiting(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None

    async def _start(self) -> bool:
        """Start a process; False if there is none: the gateway is only slower without it."""
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                self._process = await asyncio.to_thread(_process, theirs)
            except OSError as error:
                ours.close()
                LOG.warning("no process for the encoder (%s): the gateway encodes prompts by itself", _kind(error))
                return False
        await asyncio.get_running_loop().create_connection(lambda: self, sock=ours)
        self.encode([""], self._loaded)
        return True

    def _loaded(self, found: Encoded | None) -> None:
        self.ready = found is not None
        if self.ready:
            self._pause = AGAIN

    def _start_again(self) -> None:
        self._restart = asyncio.get_running_loop().create_task(self._after_a_pause())

    async def _after_a_pause(self) -> None:
        started = False
        while not started:
            if self._process is not None:
                await asyncio.to_thread(self._process.wait)
            await asyncio.sleep(self._pause)
            self._pause = min(2 * self._pause, AT_MOST)
            started = await self._start()


def _kind(error: Exception) -> str:
    return type(error).__name__


def _process(channel: socket.socket) -> subprocess.Popen[bytes]:
    # It imports from where the gateway does, never from the folder in which the gateway was started (-P).
    path = os.pathsep.join(filter(None, sys.path))
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "fedrouter.gateway.routing.encoder_worker"],
        stdin=channel.fileno(),
        stdout=subprocess.DEVNULL,
        env=os.environ | {"PYTHONPATH": path},
    )
