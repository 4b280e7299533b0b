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

from fedrouter.data.simulator import CAST, Character, simulated_world
from fedrouter.gateway.config import ServerConfig
from fedrouter.gateway.http import HttpError, HttpRequest, Receive, Scope, Send, send_error, send_response
from fedrouter.gateway.http_server import HttpServer, listen, url_of
from fedrouter.gateway.routing.request import human_text, read_prompt

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


class Application:
    """The ASGI application that answers for all models of the cast, after a delay in seconds."""

    def __init__(self, cast: Cast, delay: float) -> None:
        self._cast, self._delay = cast, delay

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = json.loads(await HttpRequest(scope, receive).body(BODY_LIMIT))
        model = body.get("model")
        if model not in self._cast:
            await send_error(send, HttpError(404, "no such model", "model_not_found"))
            return
        input_tokens = read_prompt(body).input_tokens
        last = next((m.get("content") for m in reversed(body["messages"]) if m.get("role") == "user"), "")
        drawn = self._cast.answer(model, human_text(last))
        await asyncio.sleep(self._delay)
        usage = {"prompt_tokens": input_tokens, "completion_tokens": drawn.output_tokens}
        usage["total_tokens"] = sum(usage.values())
        words = [WORDS[index % len(WORDS)] for index in range(min(drawn.output_tokens, 60))]
        if body.get("stream"):
            await _stream(send, body, model, words, usage, drawn)
            return
        message = {"role": "assistant", "content": " ".join(words)}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        found = _envelope(model, "chat.completion") | {"choices": [choice], "usage": usage}
        await send_response(send, 200, json.dumps(found | {"simulated": {"accuracy": drawn.accuracy}}).encode())


async def _stream(
    send: Send, body: dict[str, Any], model: str, words: list[str], usage: dict[str, int], drawn: Drawn
) -> None:
    envelope = _envelope(model, "chat.completion.chunk")

    async def write(data: bytes, more: bool = True) -> None:
        await send({"type": "http.response.body", "body": b"data: " + data + b"\n\n", "more_body": more})

    async def event(choices: list[dict[str, Any]], **more: Any) -> None:
        await write(json.dumps(envelope | {"choices": choices} | more).encode())

    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]})
    for index, word in enumerate(words):
        delta = {"content": f" {word}" if index else word} | ({} if index else {"role": "assistant"})
        await event([{"index": 0, "delta": delta, "finish_reason": None}])
    await event([{"index": 0, "delta": {}, "finish_reason": "stop"}], simulated={"accuracy": drawn.accuracy})
    if (body.get("stream_options") or {}).get("include_usage"):
        await event([], usage=usage)
    await write(b"[DONE]", more=False)


def _envelope(model: str, kind: str) -> dict[str, Any]:
    return {"id": f"chatcmpl-{time.time_ns():x}", "object": kind, "created": int(time.time()), "model": model}


class SimulatedServer:
    """The application on a free port of loopback, in the running event loop."""

    def __init__(self, cast: Cast, delay: float = 0.02) -> None:
        self._app, self.url = Application(cast, delay), ""

    async def start(self) -> None:
        config = ServerConfig(host="127.0.0.1", port=0)
        listening = listen(config)
        self.url = f"{url_of(config.host, listening.getsockname()[1])}/v1"
        self._server = HttpServer(self._app, listening)
        self._serving = asyncio.create_task(self._server.serve())

    async def stop(self) -> None:
        self._server.stop()  # type: ignore[no-untyped-call]
        await asyncio.wait([self._serving], timeout=1.0)
        self._serving.cancel()
