"""An upstream that answers at once, and a load generator: raw sockets, each in a process of its own.

`python benchmarks/traffic.py upstream` prints its port; `… load` reads a job as JSON from stdin and prints what it
measured. Neither may be the bottleneck when a gateway is measured, so both do the minimum that HTTP allows.
"""

from __future__ import annotations

import asyncio
import json
import random
import re
import statistics
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from urllib.parse import urlsplit

import uvloop

WARM_UP = 1.0
"""Seconds of each measurement that do not count."""
MIN_ANSWERS, MAX_SECONDS = 100, 60.0
"""A measurement continues beyond its seconds until it has this many answers, or has taken this many seconds."""
WORDS = 20
"""Events of a streamed answer that carry a word."""
ANSWERED = {"prompt_tokens": 20, "completion_tokens": WORDS, "total_tokens": 20 + WORDS}


def whole_answer() -> bytes:
    message = {"role": "assistant", "content": "word " * WORDS}
    choices = [{"index": 0, "message": message, "finish_reason": "stop"}]
    body = {"id": "c-1", "object": "chat.completion", "created": 1, "model": "instant", "choices": choices}
    content = json.dumps(body | {"usage": ANSWERED}).encode()
    return b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(content) + content


PACED = "paced"
"""The model whose streams have their pace:"""
TOKENS, PER_SECOND = 40, 20


def events(words: int) -> list[bytes]:
    """The events of a stream, each as one chunk."""
    common = {"id": "c-1", "object": "chat.completion.chunk", "created": 1, "model": "instant"}
    deltas = [({"role": "assistant", "content": ""}, None), *[({"content": "word "}, None)] * words, ({}, "stop")]
    said = [
        json.dumps(common | {"choices": [{"index": 0, "delta": delta, "finish_reason": end}]}) for delta, end in deltas
    ]
    lines = [f"data: {event}\n\n".encode() for event in [*said, "[DONE]"]]
    return [b"%x\r\n%b\r\n" % (len(line), line) for line in lines]


HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
END = b"0\r\n\r\n"
WHOLE, STREAM = whole_answer(), HEAD + b"".join(events(WORDS)) + END
_FIRST, *_WORDS, _STOP, _DONE = events(TOKENS)
PIECES = [HEAD + _FIRST + _WORDS[0], *_WORDS[1:-1], _WORDS[-1] + _STOP + _DONE + END]
"""A paced stream: one piece a token."""


class Instant(asyncio.Protocol):
    """Reads requests of a stated length and answers each."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport, self._held = transport, b""

    def data_received(self, data: bytes) -> None:
        self._held += data
        while (end := self._held.find(b"\r\n\r\n")) >= 0:
            length = re.search(rb"content-length: *(\d+)", self._held[:end], re.IGNORECASE)
            over = end + 4 + (int(length[1]) if length else 0)
            if len(self._held) < over:
                return
            streamed = re.search(rb'"stream": ?true', self._held[end:over])
            if streamed and re.search(rb'"model": ?"paced"', self._held[end:over]):
                self._pace(asyncio.get_running_loop().time(), 0)
            else:
                self._transport.write(STREAM if streamed else WHOLE)
            self._held = self._held[over:]

    def _pace(self, begun: float, piece: int) -> None:
        self._transport.write(PIECES[piece])
        if piece + 1 < len(PIECES):
            due = begun + (piece + 1) / PER_SECOND
            asyncio.get_running_loop().call_at(due, self._pace, begun, piece + 1)


async def serve_instantly() -> None:
    server = await asyncio.get_running_loop().create_server(Instant, "127.0.0.1", 0)
    print(json.dumps({"port": server.sockets[0].getsockname()[1]}), flush=True)
    await server.serve_forever()


@dataclass(frozen=True)
class Measured:
    """One measurement; times in milliseconds. ``busy`` is the share of a core that the load itself took.

    ``cpu`` is the processor time of the server for each request, over all of its processes.
    """

    rate: float
    p50: float
    p99: float
    first_p50: float
    first_p99: float
    busy: float
    statuses: dict[str, int]
    cpu: float = 0.0


class LoadConnection(asyncio.Protocol):
    """One connection; keeps (begun, first byte, over) of every answer."""

    def __init__(self, requests: Iterator[bytes], times: list[tuple[float, float, float]], statuses: Counter) -> None:
        self._requests, self._times, self._statuses = requests, times, statuses
        self._held, self._first = b"", 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self._send()

    def connection_lost(self, error: Exception | None) -> None:
        self._statuses["lost"] += 1

    def _send(self) -> None:
        self._held, self._first = b"", 0.0
        self._begun = time.perf_counter()
        self._transport.write(next(self._requests))

    def data_received(self, data: bytes) -> None:
        now = time.perf_counter()
        self._held += data
        end = self._held.find(b"\r\n\r\n")
        if end < 0:
            return
        self._first = self._first or (now if len(self._held) > end + 4 else 0.0)
        head = self._held[:end].lower()
        length = re.search(rb"content-length: *(\d+)", head)
        over = len(self._held) >= end + 4 + int(length[1]) if length else self._held.endswith(b"0\r\n\r\n")
        if over:
            self._times.append((self._begun, self._first, now))
            self._statuses[head[9:12].decode()] += 1
            self._send()


def requests_to(job: dict) -> Iterator[bytes]:
    """Requests in turn with each text; with ``characters``, every one with a text of that length that is not repeated.

    Unique texts are cut from the others, in an order of their own and with a number, so that no cache has them.
    """
    headers = {"host": urlsplit(job["url"]).netloc, "content-type": "application/json"} | job["headers"]
    start = "".join(f"{name}: {value}\r\n" for name, value in headers.items())

    def request(text: str) -> bytes:
        asked = {"model": job["model"], "messages": [{"role": "user", "content": text}]}
        body = json.dumps(asked | {"stream": True} if job["streamed"] else asked).encode()
        head = f"POST /v1/chat/completions HTTP/1.1\r\n{start}content-length: {len(body)}\r\n\r\n"
        return head.encode() + body

    length = job["characters"]
    if length is None:
        ready = [request(text) for text in job["texts"]]
        while True:
            yield from ready
    everything = " ".join(job["texts"]) * (1 + length // len(" ".join(job["texts"])))
    draw = random.Random(job["seed"])
    while True:
        cut = draw.randrange(len(everything) - length + 1)
        yield request(f"{draw.getrandbits(64):x} {everything[cut : cut + length]}"[:length])


async def load(job: dict) -> Measured:
    times: list[tuple[float, float, float]] = []
    statuses: Counter = Counter()
    asked = requests_to(job)
    loop, parts = asyncio.get_running_loop(), urlsplit(job["url"])
    for _ in range(job["concurrency"]):
        await loop.create_connection(lambda: LoadConnection(asked, times, statuses), parts.hostname, parts.port)
        await asyncio.sleep(job.get("spread", 0.0) / job["concurrency"])  # so that paced streams do not begin together
    await asyncio.sleep(WARM_UP)
    start, busy = time.perf_counter(), time.process_time()
    before = len(times)
    while (passed := time.perf_counter() - start) < job["seconds"] or (
        len(times) - before < MIN_ANSWERS and passed < MAX_SECONDS
    ):
        await asyncio.sleep(0.05)
    end, busy = time.perf_counter(), time.process_time() - busy
    # An answer counts where it ends: at little traffic and much concurrency most begin before the window.
    counted = [each for each in times if start <= each[2] <= end]
    if len(counted) < 2:
        raise SystemExit(f"too few answers from {job['url']}: {dict(statuses)}")
    taken = sorted((over - begun) * 1000 for begun, _, over in counted)
    first = sorted((first - begun) * 1000 for begun, first, _ in counted)
    p99, first_p99 = (each[min(len(each) - 1, round(0.99 * len(each)))] for each in (taken, first))
    rate = len(counted) / (end - start)
    return Measured(
        rate, statistics.median(taken), p99, statistics.median(first), first_p99, busy / (end - start), dict(statuses)
    )


if __name__ == "__main__":
    if sys.argv[1] == "upstream":
        uvloop.run(serve_instantly())
    else:
        print(json.dumps(asdict(uvloop.run(load(json.load(sys.stdin))))))
