"""Live updates by server-sent events: the newest decisions, read from the store about once a second.

The store is polled rather than the request path watched: requests of other gateways on the store show up too, and a
request costs nothing more while a page is open.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter

import orjson

from fedrouter.errors import FedrouterError
from fedrouter.gateway.gateway import Gateway
from fedrouter.gateway.http import HttpError, Send
from fedrouter.gateway.page import session
from fedrouter.gateway.page.endpoint import PageEndpoint, Visit
from fedrouter.store.page.search import Row, newer

EVERY = 1.0
"""Seconds between two looks at the store."""
MOST = 20
"""Decisions in one event; the page shows no more at once."""
KEEP_ALIVE = 15.0
CHECKED = 15.0
"""Seconds after which the session is checked again; it is checked before each event too."""
MOST_STREAMS, OF_ONE_KEY = 64, 8
"""Streams that may be open, of all keys and of one."""
_open: Counter[str] = Counter()
"""Open streams by key."""


async def events(gateway: Gateway, visit: Visit, send: Send) -> None:
    """Send the newest decisions until the browser leaves, the session ends or the gateway stops."""
    key = visit.key.id
    if _open.total() >= MOST_STREAMS or _open[key] >= OF_ONE_KEY:
        again = [(b"retry-after", b"10")]
        raise HttpError(503, "Too many pages are open.", "too_many_pages", "server_error", headers=again)
    ends = [asyncio.ensure_future(visit.request.disconnected())]
    ends.append(asyncio.ensure_future(_leaving(gateway)))
    _open[key] += 1
    try:
        headers = [(b"content-type", b"text/event-stream"), (b"x-accel-buffering", b"no")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await _follow(gateway, visit, send, ends)
        await send({"type": "http.response.body", "body": b""})
    finally:
        _open[key] -= 1
        for end in ends:
            end.cancel()


async def _follow(gateway: Gateway, visit: Visit, send: Send, ends: list[asyncio.Task[None]]) -> None:
    last, said, checked = (time.time(), ""), time.monotonic(), time.monotonic()
    await _send(send, b"retry: 2000\n\n")
    while True:
        done, _ = await asyncio.wait(ends, timeout=EVERY, return_when=asyncio.FIRST_COMPLETED)
        if done:
            return
        try:
            rows = await asyncio.to_thread(_newer, gateway, last, visit.own)
            if rows or time.monotonic() - checked > CHECKED:
                await session.key_of(gateway, visit.request)
                checked = time.monotonic()
        except HttpError:  # the session has ended
            return
        except FedrouterError:  # the store is away; look again
            rows = []
        if rows:
            last, said = (rows[0]["time"], rows[0]["id"]), time.monotonic()
            await _send(send, b"event: decisions\ndata: " + orjson.dumps(rows) + b"\n\n")
        elif time.monotonic() - said > KEEP_ALIVE:
            said = time.monotonic()
            await _send(send, b": still here\n\n")


async def _leaving(gateway: Gateway) -> None:
    await gateway.interruptions.leaving.wait()


def _newer(gateway: Gateway, last: tuple[float, str], own: str | None) -> list[Row]:
    with gateway.store.reading() as connection:
        return newer(connection, last, own, MOST)


async def _send(send: Send, body: bytes) -> None:
    await send({"type": "http.response.body", "body": body, "more_body": True})


ENDPOINTS = (PageEndpoint("events", "GET", "key", events, long=True),)
