"""Send requests to a gateway with feedback on each answer, and read their rows from its log."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import aiohttp

from fedrouter.errors import FedrouterError
from fedrouter.store.records import Record
from fedrouter.store.store import Store
from loop_parts.gateways import Gateway

AT_ONCE = 4
"""Concurrent requests of one organization."""
PAUSE = 0.05
"""Seconds between requests that only keep a gateway busy during a switch."""


async def request(http: aiohttp.ClientSession, gateway: Gateway, prompt: str, feedback: bool = True) -> str:
    """Send one request; returns its decision id. The feedback is the accuracy that the simulated model reports."""
    headers = {"authorization": f"Bearer {gateway.key}"}
    body = {"model": "auto", "messages": [{"role": "user", "content": prompt}]}
    async with http.post(f"{gateway.url}/v1/chat/completions", json=body, headers=headers) as response:
        answer = await response.json()
        if response.status != 200:
            raise FedrouterError(f"{gateway.name}: a request failed with status {response.status}")
        decision = response.headers["x-fedrouter-decision-id"]
    if feedback:
        score = {"decision_id": decision, "score": answer["simulated"]["accuracy"]}
        async with http.post(f"{gateway.url}/v1/feedback", json=score, headers=headers) as response:
            if response.status != 200:
                raise FedrouterError(f"{gateway.name}: feedback failed with status {response.status}")
    return decision


async def send(
    http: aiohttp.ClientSession, gateway: Gateway, prompts: Sequence[str], done: Callable[[], None]
) -> list[Record]:
    """Send all prompts, some concurrently; returns their rows of the log, in the order of the prompts."""
    room = asyncio.Semaphore(AT_ONCE)

    async def one(prompt: str) -> str:
        async with room:
            decision = await request(http, gateway, prompt)
            done()
            return decision

    decisions = await asyncio.gather(*(one(prompt) for prompt in prompts))
    with Store.open(gateway.store, create=False) as store:
        return [_complete(store.get(decision)) for decision in decisions]


def _complete(record: Record | None) -> Record:
    if record is None or record.score is None or record.cost is None or record.embedding is None:
        raise FedrouterError("a request that was answered and scored is incomplete in the log")
    return record


async def keep_sending(
    http: aiohttp.ClientSession, gateway: Gateway, prompts: Sequence[str], until: asyncio.Event
) -> int:
    """Send requests without feedback, so that nothing is learned from them, until an event is set; returns how many."""
    sent = 0
    while not until.is_set():
        await request(http, gateway, prompts[sent % len(prompts)], feedback=False)
        sent += 1
        await asyncio.sleep(PAUSE)
    return sent
