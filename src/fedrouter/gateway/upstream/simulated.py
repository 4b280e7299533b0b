"""Simulated upstreams: the fictional models of the simulated world, served by an OpenAI-compatible server on loopback.

No text is generated. A prompt of the simulated world gets the accuracy and the number of tokens that were drawn for it;
any other prompt gets pseudo-random ones. The accuracy is in the answer under ``simulated``, so that demos can score it.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import math
import time
from dataclasses import dataclass
from typing import Any

from aiohttp import web

from fedrouter.data.simulator import CAST, Character, simulated_world
from fedrouter.gateway.routing.prompt import human_text, read_prompt

WORDS = ["this", "is", "a", "simulated", "answer", "of", "no", "meaning", "and", "about", "the", "right", "length"]
BODY_LIMIT = 64 << 20


@dataclass(frozen=True)
class Drawn:
    """Accuracy and length of a fictional model's answer."""

    accuracy: float
    output_tokens: int


class Cast:
    """The fictional models, and their results for the prompts of the simulated world."""

    def __init__(self, seed: int = 0) -> None:
        world = simulated_world(seed).evaluations
        grid = world.grid()
        self._rows = {text: row for row, text in enumerate(world.text or ())}
        self._accuracy, self._cost = grid.accuracy, grid.cost
        self._characters = {character.model.name: (index, character) for index, character in enumerate(CAST)}

    def __contains__(self, model: object) -> bool:
        return model in self._characters

    def answer(self, model: str, prompt: str) -> Drawn:
        """The result of a model for a prompt."""
        index, character = self._characters[model]
        row = self._rows.get(prompt)
        if row is None:
            return _random_answer(character, prompt)
        price = character.model.output_price or 1.0
        dollars = self._cost[row, index] - len(prompt) / 4 * (character.model.input_price or 0.0) / 1e6
        return Drawn(float(self._accuracy[row, index]), max(1, round(dollars * 1e6 / price)))


def _random_answer(character: Character, prompt: str) -> Drawn:
    """An answer to a prompt of unknown difficulty; the same prompt always gets the same answer."""
    chance = 1 / (1 + math.exp(-6.0 * (character.skill - 0.4)))
    drawn = hashlib.sha256(f"{character.model.name} {prompt}".encode(errors="surrogatepass")).digest()[0] / 255
    return Drawn(float(drawn < chance), round(200 * character.words))


def application(cast: Cast, delay: float = 0.02) -> web.Application:
    """The web application that answers for all models of the cast."""

    async def complete(request: web.Request) -> web.StreamResponse:
        body = await request.json()
        model = body.get("model")
        if model not in cast:
            return web.json_response({"error": {"message": "no such model", "code": "model_not_found"}}, status=404)
        input_tokens = read_prompt(body).input_tokens
        last = next((m.get("content") for m in reversed(body["messages"]) if m.get("role") == "user"), "")
        drawn = cast.answer(model, human_text(last))
        await asyncio.sleep(delay)
        usage = {"prompt_tokens": input_tokens, "completion_tokens": drawn.output_tokens}
        usage["total_tokens"] = sum(usage.values())
        words = [WORDS[index % len(WORDS)] for index in range(min(drawn.output_tokens, 60))]
        if body.get("stream"):
            return await _stream(request, body, model, words, usage, drawn)
        message = {"role": "assistant", "content": " ".join(words)}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        found = _envelope(model, "chat.completion") | {"choices": [choice], "usage": usage}
        return web.json_response(found | {"simulated": {"accuracy": drawn.accuracy}})

    app = web.Application(client_max_size=BODY_LIMIT)
    app.router.add_post("/v1/chat/completions", complete)
    return app


async def _stream(
    request: web.Request, body: dict[str, Any], model: str, words: list[str], usage: dict[str, int], drawn: Drawn
) -> web.StreamResponse:
    response = web.StreamResponse(headers={"content-type": "text/event-stream"})
    await response.prepare(request)
    envelope = _envelope(model, "chat.completion.chunk")

    async def event(choices: list[dict[str, Any]], **more: Any) -> None:
        await response.write(b"data: " + json.dumps(envelope | {"choices": choices} | more).encode() + b"\n\n")

    for index, word in enumerate(words):
        delta = {"content": f" {word}" if index else word} | ({} if index else {"role": "assistant"})
        await event([{"index": 0, "delta": delta, "finish_reason": None}])
    await event([{"index": 0, "delta": {}, "finish_reason": "stop"}], simulated={"accuracy": drawn.accuracy})
    if (body.get("stream_options") or {}).get("include_usage"):
        await event([], usage=usage)
    await response.write(b"data: [DONE]\n\n")
    return response


def _envelope(model: str, kind: str) -> dict[str, Any]:
    return {"id": f"chatcmpl-{time.time_ns():x}", "object": kind, "created": int(time.time()), "model": model}


class SimulatedServer:
    """The application on a free port of loopback."""

    def __init__(self, cast: Cast, delay: float = 0.02) -> None:
        self._runner = web.AppRunner(application(cast, delay), access_log=None)
        self.url = ""

    async def start(self) -> None:
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}/v1"

    async def stop(self) -> None:
        await self._runner.cleanup()
