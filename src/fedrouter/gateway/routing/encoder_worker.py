"""The process beside the gateway: encodes prompts with `static`, and estimates them with the bundle in service.

Started by :mod:`fedrouter.gateway.routing.encoder_process`, over a socket that is its standard input, and ends with it:
also if the gateway is killed. Messages are JSON with their length before them: a list of texts is a batch, which gets a
reply; an object is a bundle to estimate with from now on.
"""

from __future__ import annotations

import contextlib
import signal
import socket
import struct
from typing import TYPE_CHECKING

import numpy as np
import orjson

if TYPE_CHECKING:
    from fedrouter.evaluations import Embeddings, Floats
    from fedrouter.routers.base import Router

LENGTH = struct.Struct("!I")
"""Before each message its length in bytes."""
HEAD = struct.Struct("!III")
"""Before a reply: the bytes that follow, the number of texts (0 if they could not be encoded), and the number that the
gateway gave the bundle of the estimates (0: there are none). Then embeddings, float32, and estimates, float64."""


class Worker:
    """The encoder and the bundle, if there is one that can be loaded."""

    def __init__(self) -> None:
        from fedrouter.encoders.static import static_encoder

        self._encoder = static_encoder()
        self._router: Router | None = None
        self._number = 0

    def serve(self, path: str, digest: str, number: int) -> None:
        """Estimate with another bundle; with none if it is not the one that the gateway has."""
        from fedrouter.bundle import load

        self._router, self._number = None, 0
        bundle = load(path)
        if bundle.manifest["digest"] == digest:
            self._router, self._number = bundle.router, number

    def reply(self, texts: list[str]) -> bytes:
        """The answer to a batch."""
        embeddings = self._encoder.encode(texts)
        parts, number = [embeddings.tobytes()], 0
        if self._router is not None:
            with contextlib.suppress(Exception):  # the gateway estimates by itself, and says what is wrong
                parts.append(estimates_of(self._router, embeddings).tobytes())
                number = self._number
        body = b"".join(parts)
        return HEAD.pack(len(body), len(texts), number) + body


def estimates_of(router: Router, embeddings: Embeddings) -> Floats:
    """Accuracy, cost and standard error ``(n, 3, P)`` of a router's models; NaN where it has none."""
    found = router.estimate(embeddings)
    error = np.full_like(found.accuracy, np.nan) if found.error is None else found.error
    return np.stack([found.accuracy, found.cost, error], axis=1)


def multiply_in_one_thread() -> None:
    """Keep numpy from spreading the products of this process over all cores.

    A product for a few queries takes microseconds. Threads that wait for the next one, spinning, take the cores that
    requests need: 1.6 ms of processor time a new prompt instead of 0.9 (measured on two cores).
    """
    from threadpoolctl import threadpool_limits

    threadpool_limits(1, user_api="blas")


def main() -> None:
    # They are meant for the gateway, which may still have requests: this process ends with it.
    for meant in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(meant, signal.SIG_IGN)
    multiply_in_one_thread()
    worker = Worker()
    # The gateway may be killed at any moment: in the middle of a batch too.
    with contextlib.suppress(ConnectionError), socket.socket(fileno=0) as channel, channel.makefile("rb") as incoming:
        while len(head := incoming.read(LENGTH.size)) == LENGTH.size:
            message = incoming.read(LENGTH.unpack(head)[0])
            if len(message) < LENGTH.unpack(head)[0]:
                return
            found = orjson.loads(message)
            if isinstance(found, dict):
                with contextlib.suppress(Exception):
                    worker.serve(**found)
                continue
            try:
                reply = worker.reply(found)
            except Exception:  # nothing of it is shown, because it may quote a prompt; the gateway tries each by itself
                reply = HEAD.pack(0, 0, 0)
            channel.sendall(reply)


if __name__ == "__main__":
    main()
