"""Ten minutes of mixed traffic over upstreams that fail: memory stays flat, and no connection or task is left behind.

`FEDROUTER_SOAK=3600` makes it an hour. Few clients ask, so that a core is left to other tests.
"""

import asyncio
import os
import re
import statistics
import time
from contextlib import suppress
from pathlib import Path

import httpx2 as httpx
import pytest

from gateway.process import GatewayProcess, settings
from gateway.running import NAMES, eventually
from gateway.traffic import Heard, clients_at_work, session_of
from gateway.wire import send

SECONDS = float(os.environ.get("FEDROUTER_SOAK", "600"))
CLIENTS = 4
MOST_GROWTH = 0.05
"""Of memory, from the second quarter of the time to the last; in the first one, caches and pools fill."""
CACHED = 50
"""Entries of the caches of embeddings and estimates, which are full early on."""
BENT = b"POST /v1/feedback HTTP/1.1\r\nhost: gateway\r\ncontent-length: 99999\r\n\r\n{"
WAYS = (
    *("instant", "drip", "slow", "split", "no-usage", "broken", "reset", "busy", "dies"),
    *("error-first", "too-long", "rubbish"),
)
EXPECTED = frozenset({"upstream_error", "timeout", "context_length_exceeded"})
"""Failures of upstreams are passed on as such; none may be the gateway's own."""
SOUND = ("rows wait for the store: it did not answer in time", "ERROR quality: ")
"""Errors that may be logged: where disk or processors are busy with other things, rows are written later; and these
upstreams' answers are no better for being dear, so that the promise is not kept, and the alarm says so."""
LONG = {"model": "auto", "stream": True, "messages": [{"role": "user", "content": "x" * 5000}]}


def sockets(pid: int) -> int:
    """Open sockets of a process."""
    links = (os.readlink(path) for path in Path(f"/proc/{pid}/fd").iterdir() if path.is_symlink())
    return sum(link.startswith("socket:") for link in links)


def gauge(gateway: GatewayProcess, name: str) -> float:
    lines = (
        "GET /metrics HTTP/1.1",
        "host: gateway",
        f"authorization: Bearer {gateway.key}",
        "connection: close",
        "\r\n",
    )
    page = asyncio.run(send(gateway.url, "\r\n".join(lines).encode())).body.decode()
    return float(re.search(rf"^{name} (.*)$", page, re.MULTILINE)[1])


async def soak(gateway: GatewayProcess, heard: Heard) -> list[float]:
    """Clients that ask, and each second one that hangs up while it is answered and one while it asks; the memory."""
    samples, end = [], time.monotonic() + SECONDS
    async with (
        clients_at_work(gateway.url, gateway.key, heard, "soak", CLIENTS, ("auto",) * 6 + NAMES),
        session_of(gateway.url, gateway.key) as session,
    ):
        while time.monotonic() < end:
            with suppress(TimeoutError, httpx.TransportError):
                await asyncio.wait_for(session.post("/v1/chat/completions", json=LONG), 0.05)
            await send(gateway.url, BENT, hang_up=True)
            for path in ("/v1/models", "/health/ready", "/metrics"):
                assert (await session.get(path)).status_code == 200
            samples.append(gateway.megabytes())
            await asyncio.sleep(1)
    return samples


@pytest.mark.slow
def test_memory_stays_flat_and_nothing_is_left_behind(tmp_path, bundle, upstream):
    config = settings(tmp_path, bundle, upstream.url, dict(zip(NAMES, WAYS, strict=True)))
    config["routing"] |= {"cached_prompts": CACHED}
    config["judges"] = {"list": [{"kind": "regex", "settings": {"pattern": "word"}}]}
    config["timing"]["answer"] = 5
    gateway, heard = GatewayProcess(tmp_path, config), Heard(expected=EXPECTED)
    gateway.start()
    try:
        before, tasks = sockets(gateway.pid), gauge(gateway, "fedrouter_tasks")
        samples = asyncio.run(soak(gateway, heard))
        quarter = len(samples) // 4
        early, late = (statistics.median(part) for part in (samples[quarter : 2 * quarter], samples[-quarter:]))
        print(f"\n{SECONDS:.0f} s: {len(heard.answered)} answers, {dict(heard.refused)}, {len(heard.scored)} scores")
        print(f"memory: {early:.1f} MB in the second quarter, {late:.1f} MB in the last")
        assert (heard.wrong[:5], heard.broken_off) == ([], 0)
        assert heard.answered
        assert heard.refused
        assert late - early < MOST_GROWTH * early
        assert eventually(lambda: gauge(gateway, "fedrouter_in_progress") == 0, 30)
        assert eventually(lambda: gauge(gateway, "fedrouter_tasks") <= tasks, 30)
        # What is kept open for the next request: at most one connection for each that was called at once.
        assert eventually(lambda: sockets(gateway.pid) <= before + 4 * CLIENTS, 90)
        errors = [line for line in gateway.printed().splitlines() if " ERROR " in line]
        assert [line for line in errors if not any(each in line for each in SOUND)] == []
    finally:
        gateway.stop()
