"""The encoder `static` in a process of its own, so that a gateway under load encodes prompts on another core.

Python runs one thread at a time, and encoding is a large part of what a routed request costs. Batches of texts go over
a socket and come back as embeddings. The process ends with the socket: also if the gateway is killed.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import struct
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Sequence
from typing import cast

import numpy as np
import orjson

from fedrouter.evaluations import Embeddings

LOG = logging.getLogger("fedrouter.gateway")
LENGTH = struct.Struct("!I")
"""Before each message its length in bytes; of a reply 0 if the batch could not be encoded."""
PATIENCE = 5.0
"""Seconds after which a process that does not answer is killed: a batch takes milliseconds, and all prompts wait."""
Encoded = Callable[[Embeddings | None], None]
"""Called with the embeddings ``(n, d)`` of a batch; None if the process did not encode it."""


class EncoderProcess(asyncio.Protocol):
    """The process and the batches that it has; created by :meth:`start` inside the running event loop."""

    def __init__(self, process: subprocess.Popen[bytes], dimension: int) -> None:
        self._process, self._dimension = process, dimension
        self._transport: asyncio.Transport | None = None
        self._asked: deque[Encoded] = deque()
        self._received = bytearray()
        self._late: asyncio.TimerHandle | None = None
        self._closing = False
        self.ready = False
        """Whether it can be given batches: its encoder is loaded, and it has not ended."""

    @classmethod
    async def start(cls, dimension: int) -> EncoderProcess | None:
        """Start the process; it is ``ready`` as soon as it has loaded the encoder.

        None if it cannot be started: the gateway is only slower without it.
        """
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                found = cls(await asyncio.to_thread(_process, theirs), dimension)
            except OSError as error:
                ours.close()
                what = "no process for the encoder (%s): prompts are encoded by the gateway's own"
                LOG.warning(what, type(error).__name__)
                return None
        await asyncio.get_running_loop().create_connection(lambda: found, sock=ours)
        found.encode([""], found._loaded)
        return found

    @property
    def pid(self) -> int:
        return self._process.pid

    def encode(self, texts: Sequence[str], encoded: Encoded) -> None:
        """Encode a batch; batches are encoded in the order in which they come."""
        assert self._transport is not None
        try:
            message = orjson.dumps(texts)
        except orjson.JSONEncodeError:  # a lone surrogate cannot be sent
            encoded(None)
            return
        self._asked.append(encoded)
        if self.ready and self._late is None:  # loading takes as long as it takes
            self._late = asyncio.get_running_loop().call_later(PATIENCE, self._process.kill)
        self._transport.write(LENGTH.pack(len(message)) + message)

    async def close(self) -> None:
        """End the process; it has nothing to save."""
        self._closing = True
        if self._transport is not None:
            self._transport.abort()
        self._process.kill()  # it ends with its socket, except if it was stopped
        await asyncio.to_thread(self._process.wait)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # of a socket, though uvloop's is not derived from it

    def data_received(self, data: bytes) -> None:
        self._received += data
        while len(self._received) >= LENGTH.size:
            end = LENGTH.size + LENGTH.unpack_from(self._received)[0]
            if len(self._received) < end:
                return
            reply = bytes(self._received[LENGTH.size : end])
            del self._received[:end]
            self._end_waiting()
            self._asked.popleft()(np.frombuffer(reply, np.float32).reshape(-1, self._dimension) if reply else None)

    def connection_lost(self, exc: Exception | None) -> None:
        self.ready = False
        self._end_waiting()
        while self._asked:
            self._asked.popleft()(None)
        if not self._closing:
            LOG.error("the encoder's process has ended: prompts are encoded by the gateway's own until a restart")
            asyncio.get_running_loop().run_in_executor(None, self._process.wait)

    def _end_waiting(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None

    def _loaded(self, found: Embeddings | None) -> None:
        self.ready = found is not None


def _process(channel: socket.socket) -> subprocess.Popen[bytes]:
    # It imports from where the gateway does, never from the folder in which the gateway was started (-P).
    path = os.pathsep.join(filter(None, sys.path))
    return subprocess.Popen(
        [sys.executable, "-P", "-m", __name__],
        stdin=channel.fileno(),
        stdout=subprocess.DEVNULL,
        env=os.environ | {"PYTHONPATH": path},
    )


def main() -> None:
    """Encode what comes over the socket that is this process's standard input, until it is closed."""
    # They are meant for the gateway, which may still have requests: this process ends with it.
    for meant in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(meant, signal.SIG_IGN)
    from fedrouter.encoders.static import static_encoder

    encoder = static_encoder()
    # The gateway may be killed at any moment: in the middle of a batch too.
    with contextlib.suppress(ConnectionError), socket.socket(fileno=0) as channel, channel.makefile("rb") as incoming:
        while len(head := incoming.read(LENGTH.size)) == LENGTH.size:
            message = incoming.read(LENGTH.unpack(head)[0])
            if len(message) < LENGTH.unpack(head)[0]:
                return
            try:
                reply = encoder.encode(orjson.loads(message)).tobytes()
            except Exception:  # nothing of it is shown, because it may quote a prompt; the gateway tries each by itself
                reply = b""
            channel.sendall(LENGTH.pack(len(reply)) + reply)


if __name__ == "__main__":
    main()
