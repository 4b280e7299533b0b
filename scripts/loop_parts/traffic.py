"""Requests to a gateway, each with feedback on its answer, and what the log then says about them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import aiohttp

from fedrouter.errors import FedrouterError
from fedrouter.store.records import Record
from fedrouter.store.store import Store
from loop_parts.gateways import Gateway

AT_ONCE = 4
"""Requests that one organization has under way at a time."""
PAUSE = 0.05
"""Seconds between requests that only keep a gateway at work."""


async def ask(http: aiohttp.ClientSession, gateway: Gateway, prompt: str, feedback: bool = True) -> str:
    """One request, routed; its decision. The feedback is how good the simulated model says its answer was."""
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
    """Ask all prompts, some at a time; their rows of the log, in the order of the prompts."""
    room = asyncio.Semaphore(AT_ONCE)

    async def one(prompt: str) -> str:
        async with room:
            decision = await ask(http, gateway, prompt)
            done()
            return decision

    decisions = await asyncio.gather(*(one(prompt) for prompt in prompts))
    with Store.open(gateway.store, create=False) as store:
        return [_complete(store.get(decision)) for decision in decisions]


def _complete(record: Record | None) -> Record:
    if record is None or record.score is None or record.cost is None or record.embedding is None:
        raise FedrouterError("a request that was answered and scored is not in the log as such")
    return record


async def keep_asking(
    http: aiohttp.ClientSession, gateway: Gateway, prompts: Sequence[str], until: asyncio.Event
) -> int:
    """Ask over and over, without feedback, so that nothing is learned from it; how often."""
    asked = 0
    while not until.is_set():
        await ask(http, gateway, prompts[asked % len(prompts)], feedback=False)
        asked += 1
        await asyncio.sleep(PAUSE)
    return asked
