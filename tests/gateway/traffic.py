"""Clients that keep a gateway busy and note what they were told; and what of that its log does not have."""

import asyncio
import json
import random
import sqlite3
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx2 as httpx

from fedrouter.store.store import Store

WORKERS = 16
BEHAVIOURS = {"*": "instant", "atlas-max": "drip", "atlas-mini": "split", "ember-med": "slow"}
MODELS = ("auto", "auto", "auto", "atlas-max", "atlas-mini", "ember-med")
APIS = ("chat/completions",) * 4 + ("responses", "messages", "completions", "embeddings")
ENDS = {
    "chat/completions": b"data: [DONE]\n\n",
    "completions": b"data: [DONE]\n\n",
    "responses": b'"type": "response.completed"',
    "messages": b'"type": "message_stop"',
}
"""What the last event of a whole stream has."""
GONE = httpx.TransportError


@dataclass
class Heard:
    """What clients were told."""

    answered: dict[str, bool] = field(default_factory=dict)
    """Decision ids of complete answers, and whether they were streamed."""
    scored: list[tuple[str, float]] = field(default_factory=list)
    """Feedback that was acknowledged."""
    wrong: list[str] = field(default_factory=list)
    refused: Counter[str] = field(default_factory=Counter)
    """Errors that are ``expected``, by their code."""
    broken_off: int = 0
    expected: frozenset[str] = frozenset()
    """Codes of errors that a client may get."""


class Client:
    """Asks, listens and scores until it is stopped or the gateway is gone."""

    def __init__(self, session: httpx.AsyncClient, heard: Heard, draw: random.Random, models: Sequence[str]) -> None:
        self._session, self._heard, self._draw, self._models = session, heard, draw, models
        self._mine: list[str] = []
        self.stopped = False

    async def run(self) -> None:
        try:
            while not self.stopped:
                await self._ask()
                if self._mine and self._draw.random() < 0.5:
                    await self._score(self._draw.choice(self._mine[-5:]))
        except GONE:
            self._heard.broken_off += 1

    async def _ask(self) -> None:
        api = self._draw.choice(APIS)
        streamed = self._draw.random() < 0.5 and api in ENDS
        async with self._session.stream("POST", f"/v1/{api}", json=self._body(api, streamed)) as response:
            if response.status_code != 200:
                said = (await response.aread()).decode()
                code = json.loads(said)["error"].get("code")
                if code in self._heard.expected:
                    self._heard.refused[code] += 1
                else:
                    self._heard.wrong.append(f"{response.status_code}: {said}")
                return
            streamed = streamed and response.headers["content-type"].startswith("text/event-stream")
            said, decision = b"", response.headers["x-fedrouter-decision-id"]
            try:
                async for piece in response.aiter_raw():
                    said += piece
            finally:
                # A client may stop listening at [DONE]: what says so is complete, whatever becomes of the connection.
                last = said.rstrip(b"\n").rpartition(b"\n\n")[2] + b"\n\n"
                complete = (
                    ENDS[api] in last if streamed else len(said) == int(response.headers.get("content-length", -1))
                )
                if complete:
                    self._heard.answered[decision] = streamed
                    self._mine.append(decision)
            if not complete and b'"error"' not in said:
                self._heard.wrong.append(f"an answer that ends without a word: {said[-80:]!r}")

    def _body(self, api: str, streamed: bool) -> dict[str, Any]:
        text = f"What is {self._draw.randrange(200)} squared?"
        model = self._draw.choice(self._models)
        if api == "embeddings":
            return {"model": "indigo-nano", "input": text}
        field: dict[str, Any] = {"messages": [{"role": "user", "content": text}], "max_tokens": 50}
        field = {"responses": {"input": text}, "completions": {"prompt": text}}.get(api, field)
        return {"model": model, "stream": streamed} | field

    async def _score(self, decision: str) -> None:
        body = {"decision_id": decision, "score": self._draw.choice((0.0, 0.25, 0.5, 1.0))}
        response = await self._session.post("/v1/feedback", json=body)
        if response.status_code == 503 and "decision_pending" in response.text:
            pass  # at another worker, which the store did not answer in time; later scores may come through
        elif response.status_code == 200:
            answer = response.json()
            self._heard.scored.append((answer["decision_id"], answer["score"]))
        else:
            self._heard.wrong.append(f"{response.status_code}: {response.text}")


def session_of(url: str, key: str) -> httpx.AsyncClient:
    return httpx.AsyncClient(base_url=url, headers={"authorization": f"Bearer {key}"}, timeout=60)


async def load(url: str, key: str, heard: Heard, enough: int, seed: str, then: Callable[[], None]) -> None:
    """Clients at work until so many more answers are complete; ``then`` is called in the middle of it."""
    async with session_of(url, key) as session:
        clients = [Client(session, heard, random.Random(f"{seed} {n}"), MODELS) for n in range(WORKERS)]
        at_work = [asyncio.create_task(client.run()) for client in clients]
        goal = len(heard.answered) + enough
        while len(heard.answered) < goal and not heard.wrong and not all(task.done() for task in at_work):
            await asyncio.sleep(0.001)
        then()
        await asyncio.wait_for(asyncio.gather(*at_work), 60)


@asynccontextmanager
async def clients_at_work(
    url: str, key: str, heard: Heard, seed: str, workers: int = WORKERS, models: Sequence[str] = MODELS
) -> AsyncIterator[None]:
    """Clients that ask, listen and score for the duration of the block."""
    async with session_of(url, key) as session:
        clients = [Client(session, heard, random.Random(f"{seed} {n}"), models) for n in range(workers)]
        at_work = [asyncio.create_task(client.run()) for client in clients]
        try:
            yield
        finally:
            for client in clients:
                client.stopped = True
            await asyncio.wait_for(asyncio.gather(*at_work), 60)


def missing(path, heard: Heard) -> list[str]:
    """What a client was told and the log does not have."""
    with Store.open(f"sqlite:///{path}", create=False) as store:
        rows = {record.id: record for record in store.rows()}
    connection = sqlite3.connect(path)
    kept = set(connection.execute("SELECT decision, score FROM feedback"))
    assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    assert connection.execute("PRAGMA foreign_key_check").fetchall() == []
    connection.close()
    lost = [f"answer {decision}" for decision in heard.answered if decision not in rows]
    for decision, streamed in heard.answered.items():
        row = rows.get(decision)
        if row and (row.status, row.streamed, row.cost is None) != ("ok", streamed, False):
            lost.append(f"part of the row of {decision}")
    lost += [f"score {score} of {decision}" for decision, score in heard.scored if (decision, score) not in kept]
    lost += [
        f"standing score of {decision}"
        for decision, _ in heard.scored
        if decision not in rows or rows[decision].score is None
    ]
    return lost
