"""Ten minutes of mixed traffic over upstreams that fail: memory stays flat, and no connection or task is left behind.

`FEDROUTER_SOAK=3600` makes it an hour. Traffic is slow enough to leave a core to other tests.
"""

import asyncio
import os
import random
import re
import statistics
import time
from collections import Counter
from pathlib import Path

import httpx2 as httpx
import pytest

from gateway.process import GatewayProcess, settings
from gateway.running import NAMES, eventually
from gateway.wire import send

SECONDS = float(os.environ.get("FEDROUTER_SOAK", "600"))
PER_SECOND = 30
MOST_GROWTH = 0.05
"""Of memory, from the second quarter of the time to the last; in the first one, caches and pools fill."""
CACHED = 50
"""Entries of the caches of embeddings and estimates, which are full early on: no prompt comes twice."""
BENT = b"POST /v1/feedback HTTP/1.1\r\ncontent-length: 99999\r\n\r\n{"
WAYS = (
    *("instant", "drip", "slow", "split", "no-usage", "broken", "reset", "busy", "dies"),
    *("error-first", "too-long", "rubbish"),
)
STALLED = "rows wait for the store: it did not answer in time"
"""On a machine whose disk or processors are busy with other things; the rows are written later."""
PATIENT, HURRIED = 60.0, 0.05
"""Seconds for an answer."""

pytestmark = pytest.mark.slow


class Soak:
    """Clients of every kind, one request after another at a fixed rate."""

    def __init__(self, gateway: GatewayProcess, seconds: float) -> None:
        self._gateway, self._seconds, self._draw = gateway, seconds, random.Random(15)
        self.seen: Counter[str] = Counter()
        self.wrong: list[str] = []
        self.megabytes: list[float] = []
        self._decisions: list[str] = []

    async def run(self) -> None:
        headers = {"authorization": f"Bearer {self._gateway.key}"}
        limits = httpx.Limits(max_connections=None)
        async with httpx.AsyncClient(
            base_url=self._gateway.url, headers=headers, timeout=PATIENT, limits=limits
        ) as session:
            begun, number, requests = time.monotonic(), 0, set()
            while (now := time.monotonic() - begun) < self._seconds:
                if now >= number / PER_SECOND:
                    number += 1
                    task = asyncio.create_task(self._one(session, number))
                    requests.add(task)
                    task.add_done_callback(requests.discard)
                    if number % PER_SECOND == 0:
                        self.megabytes.append(self._gateway.megabytes())
                await asyncio.sleep(0.002)
            await asyncio.gather(*requests)

    async def _one(self, session: httpx.AsyncClient, number: int) -> None:
        kind = self._draw.choice(("chat",) * 12 + ("hang up",) * 2 + ("route", "feedback", "bent", "read"))
        self.seen[kind] += 1
        try:
            if kind == "bent":
                await send(self._gateway.url, BENT, hang_up=True)
            elif kind == "read":
                self._check(kind, await session.get(self._draw.choice(("/v1/models", "/health/ready", "/metrics"))))
            elif kind == "feedback" and self._decisions:
                score = {"decision_id": self._decisions[-1], "score": self._draw.random()}
                self._check(kind, await session.post("/v1/feedback", json=score))
            elif kind == "route":
                self._check(kind, await session.post("/v1/route", json=self._body(number)))
            else:
                async with asyncio.timeout(HURRIED if kind == "hang up" else PATIENT):
                    await self._chat(session, number)
        except TimeoutError:
            if kind != "hang up":
                self.wrong.append(f"{kind}: no answer")
        except httpx.TransportError as error:
            if kind not in ("hang up", "bent"):
                self.wrong.append(f"{kind}: {error!r}")

    async def _chat(self, session: httpx.AsyncClient, number: int) -> None:
        response = await session.post("/v1/chat/completions", json=self._body(number))
        said = response.content
        self.seen[f"status {response.status_code}"] += 1
        if response.status_code != 200:
            # Failures of upstreams are passed on as such; none may be the gateway's own.
            code = response.json()["error"].get("code")
            if code not in ("upstream_error", "timeout", "context_length_exceeded"):
                self.wrong.append(f"{response.status_code}: {said[:200]!r}")
            return
        self._decisions = [*self._decisions[-20:], response.headers["x-fedrouter-decision-id"]]
        streamed = response.headers["content-type"].startswith("text/event-stream")
        if streamed and not said.endswith(b"data: [DONE]\n\n") and b'"error"' not in said:
            self.wrong.append(f"an answer that ends without a word: {said[-80:]!r}")

    def _body(self, number: int) -> dict[str, object]:
        model = self._draw.choice(("auto",) * 6 + NAMES)
        text = f"What is {number} squared? " + "x" * 5000 * (number % 3 == 0)
        return {
            "model": model,
            "messages": [{"role": "user", "content": text}],
            "stream": self._draw.random() < 0.5,
            "max_tokens": 50,
        }

    def _check(self, kind: str, response: httpx.Response) -> None:
        status = response.status_code
        self.seen[f"{kind} {status}"] += 1
        if status >= 500 or (status >= 400 and kind != "feedback"):
            self.wrong.append(f"{kind} {status}: {response.content[:200]!r}")


def sockets(pid: int) -> int:
    """Open sockets of a process."""
    links = (os.readlink(path) for path in Path(f"/proc/{pid}/fd").iterdir() if path.is_symlink())
    return sum(link.startswith("socket:") for link in links)


def gauge(gateway: GatewayProcess, name: str) -> float:
    raw = f"GET /metrics HTTP/1.1\r\nauthorization: Bearer {gateway.key}\r\nconnection: close\r\n\r\n".encode()
    page = asyncio.run(send(gateway.url, raw)).body.decode()
    return float(re.search(rf"^{name} (.*)$", page, re.MULTILINE)[1])


def test_memory_stays_flat_and_nothing_is_left_behind(tmp_path, bundle, upstream):
    config = settings(tmp_path, bundle, upstream.url, dict(zip(NAMES, WAYS, strict=True)))
    config["routing"] |= {"encoder_cache": CACHED, "estimates_cache": CACHED, "sticky": {"seconds": 10}}
    config["judges"] = {"list": [{"kind": "regex", "settings": {"pattern": "word"}}]}
    config["timing"]["idle"] = 5
    gateway = GatewayProcess(tmp_path, config)
    gateway.start()
    try:
        before, tasks = sockets(gateway.pid), gauge(gateway, "fedrouter_tasks")
        soak = Soak(gateway, SECONDS)
        asyncio.run(soak.run())
        quarter = len(soak.megabytes) // 4
        early = statistics.median(soak.megabytes[quarter : 2 * quarter])
        late = statistics.median(soak.megabytes[-quarter:])
        print(f"\n{SECONDS:.0f} s: {dict(sorted(soak.seen.items()))}")
        print(f"samples: {[round(megabytes, 1) for megabytes in soak.megabytes[:: max(1, len(soak.megabytes) // 12)]]}")
        print(f"memory: {early:.1f} MB in the second quarter, {late:.1f} MB in the last")
        print(f"before: {before} sockets, {tasks:.0f} tasks; at the end: {sockets(gateway.pid)} sockets")
        assert not soak.wrong, soak.wrong[:5]
        assert late - early < MOST_GROWTH * early
        assert eventually(lambda: gauge(gateway, "fedrouter_in_progress") == 0, 30)
        assert eventually(lambda: gauge(gateway, "fedrouter_tasks") <= tasks, 30)
        # What is kept open for the next request: at most one connection for each that was called at once.
        assert eventually(lambda: sockets(gateway.pid) <= before + 2 * PER_SECOND, 90)
        print(f"later: {sockets(gateway.pid)} sockets, {gauge(gateway, 'fedrouter_tasks'):.0f} tasks")
        errors = [line for line in gateway.printed().splitlines() if " ERROR " in line]
        assert [line for line in errors if STALLED not in line] == []
    finally:
        gateway.stop()
