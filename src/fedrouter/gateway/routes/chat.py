"""POST /v1/chat/completions: decide, ask, log, answer. The answer's bytes are the upstream's own."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

import aiohttp
import orjson

from fedrouter.gateway.access.limits import Purse
from fedrouter.gateway.access.pricing import Usage, expected_cost
from fedrouter.gateway.config import Upstream
from fedrouter.gateway.http import Headers, Refusal, Request, Send, answer, refuse
from fedrouter.gateway.request_context import Turn
from fedrouter.gateway.routing.options import read_wishes
from fedrouter.gateway.routing.prompt import read_ask
from fedrouter.gateway.upstream.splice import Spliced
from fedrouter.gateway.upstream.stream import Meter, answer_length, answer_text
from fedrouter.gateway.upstream.upstreams import LARGE, Answer, Failed

if TYPE_CHECKING:
    from fedrouter.gateway.gateway import Gateway

DROPPED = frozenset(
    {
        *("connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "te", "trailer", "upgrade"),
        *("transfer-encoding", "content-length", "set-cookie", "server", "date", "alt-svc"),
        "strict-transport-security",
    }
)
"""Headers of an upstream that are between it and us."""
JUDGED = 1 << 18
"""Bytes of a request up to which its answer is judged: larger ones would fill the memory while they wait."""
END = 1.0
"""Seconds for a connection to end after its stream has."""


def read_body(raw: bytes) -> dict[str, Any]:
    """A chat body far enough understood to route it; the rest is the upstream's business."""
    try:
        body = orjson.loads(raw)
    except orjson.JSONDecodeError:
        raise Refusal(400, "The body is not JSON.", "invalid_json") from None
    if not isinstance(body, dict):
        raise Refusal(400, "The body is not a JSON object.", "invalid_json")
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages or not all(isinstance(entry, dict) for entry in messages):
        raise Refusal(400, "messages: expected a list of messages.", "invalid_value", param="messages")
    if not isinstance(body.get("stream"), bool | None):
        raise Refusal(400, "stream: expected true or false.", "invalid_value", param="stream")
    return body


async def chat(gateway: Gateway, request: Request, send: Send) -> None:
    begun = time.perf_counter()
    key = await gateway.doorkeeper.key_of(request)
    gateway.rates.admit(key)
    raw = await request.body(gateway.config.door.body_limit)
    body = read_body(raw)
    current = gateway.bundles.current
    wishes = read_wishes(request, body, gateway.decider.places, current.family if current else None)
    ask = read_ask(body)
    purse = await gateway.budgets.purse(key)
    decision = await gateway.decider.decide(
        ask, wishes, key.id, purse.affordable if purse else None, gateway.upstreams.resting()
    )
    turn = Turn(gateway.config, key.id, ask, wishes, decision, body.get("stream") is True, begun)
    # Millions of small values take seconds to look through: nobody else waits for that.
    spliced = Spliced(raw) if len(raw) < LARGE else await asyncio.to_thread(Spliced, raw)
    judged = body if gateway.background is not None and len(raw) <= JUDGED else None
    del body  # may be large, and waiting for an answer may take long
    gone = asyncio.ensure_future(request.gone())
    try:
        await _Exchange(gateway, turn, purse, gone, judged, send).run(spliced)
    finally:
        gone.cancel()
        if purse is not None:
            purse.settle(None)  # nothing, if it was settled before


class _Exchange:
    """One request from its decision to the last byte of its answer."""

    def __init__(
        self,
        gateway: Gateway,
        turn: Turn,
        purse: Purse | None,
        gone: asyncio.Future[None],
        judged: dict[str, Any] | None,
        send: Send,
    ) -> None:
        self._gateway, self._turn, self._purse = gateway, turn, purse
        self._gone, self._judged, self._send = gone, judged, send

    async def run(self, spliced: Spliced) -> None:
        turn, upstreams = self._turn, self._gateway.upstreams
        asked_at = time.perf_counter()
        try:
            found = await upstreams.ask(
                turn.decision.order, lambda model: spliced.to(model.model), turn.streamed, self._permit, self._gone.done
            )
        except Failed as failure:
            turn.upstream_seconds = time.perf_counter() - asked_at
            await self._commit("client_gone" if self._gone.done() else failure.kind, None, None, failure.attempts)
            await refuse(self._send, _refusal(failure), turn.headers(None))
            return
        turn.upstream_seconds = time.perf_counter() - asked_at
        if found.response is None:
            await self._whole(found)
        else:
            await self._relay(found, found.response)

    def _permit(self, model: Upstream) -> bool:
        """Whether the key's budget still pays for one more attempt, at this model."""
        if self._purse is None:
            return True
        decision = self._turn.decision
        predicted = decision.cost_at(decision.order.index(model.name))
        return self._purse.reserve(expected_cost(model, self._turn.ask, predicted))

    async def _commit(
        self, status: str, served: Upstream | None, usage: Usage | None, attempts: int, text: str | None = None
    ) -> None:
        """The record is in the log when this returns; only then may the answer end."""
        turn, gateway = self._turn, self._gateway
        record = turn.record(status, served, usage, attempts, gateway.embedder)
        await gateway.writer.put(record)
        if self._purse is not None:
            self._purse.settle(record.cost)
        gateway.metrics.served(record)
        if served is not None and status == "ok":
            gateway.decider.sticky.served(gateway.decider.session(turn.ask, turn.wishes, turn.key), served.name)
            if text is not None and self._judged is not None and gateway.background is not None:
                gateway.background.offer(record, self._judged, text)

    async def _whole(self, found: Answer) -> None:
        served, text = found.model, None
        if found.status == 200:
            usage = Usage.of(found.document.get("usage")) or Usage.guessed(
                self._turn.ask, answer_length(found.document)
            )
            status = "client_gone" if self._gone.done() else "ok"
            text = answer_text(found.document) if self._judged is not None else None
            await self._commit(status, served, usage, found.attempts, text)
        else:  # the upstream refused what the client sent
            await self._commit("refused", served, None, found.attempts)
        await answer(self._send, found.status, found.body, _passed(found) + self._turn.headers(served))

    async def _relay(self, found: Answer, response: aiohttp.ClientResponse) -> None:
        """Events as they come. Once the first has gone out nothing is asked again: what breaks then is said."""
        turn, send = self._turn, self._send
        meter, status = Meter(self._judged is not None), "ok"
        self._gone.add_done_callback(lambda _: response.close())
        headers = _passed(found) + turn.headers(found.model)
        began, chunk = time.perf_counter(), found.body
        try:
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            while chunk:
                ready = meter.feed(chunk)
                if meter.done:
                    break
                if ready:
                    await send({"type": "http.response.body", "body": ready, "more_body": True})
                async with asyncio.timeout(turn.config.timing.idle):
                    chunk = await response.content.readany()
            last = ready + meter.rest() if meter.done else meter.rest()
            status = "ok" if meter.complete else "upstream_error"
        except TimeoutError:
            status = "timeout"
        except (aiohttp.ClientError, OSError):
            status = "upstream_error"
        if self._gone.done():
            status = "client_gone"
        turn.upstream_seconds += time.perf_counter() - began
        text = meter.text if status == "ok" else None
        await self._commit(status, found.model, meter.usage(turn.ask), found.attempts, text)
        if status != "ok":
            response.close()
            self._gateway.upstreams.broke_off(found.model.name, status)
            last = b"\ndata: " + _broken(status).body() + b"\n\n"
        await send({"type": "http.response.body", "body": last})
        if status == "ok":
            await _finish(response)


async def _finish(response: aiohttp.ClientResponse) -> None:
    """Read a stream's very end, so that its connection can serve again; if that does not come, let it go."""
    try:
        async with asyncio.timeout(END):
            while await response.content.readany():
                pass
        response.release()
    except (TimeoutError, aiohttp.ClientError, OSError):
        response.close()


def _passed(found: Answer) -> Headers:
    return [
        (name.lower().encode("latin-1"), value.encode("latin-1", "replace"))
        for name, value in found.headers.items()
        if name.lower() not in DROPPED and not name.lower().startswith("x-fedrouter-")  # of a gateway behind this one
    ]


def _refusal(failure: Failed) -> Refusal:
    wait = failure.retry_after
    headers = [(b"retry-after", b"%d" % max(1, round(wait)))] if wait is not None else []
    kind = "rate_limit_error" if failure.status == 429 else "upstream_error"
    return Refusal(failure.status, str(failure), failure.kind, kind, headers=headers)


def _broken(status: str) -> Refusal:
    what = "stopped sending" if status == "timeout" else "broke off"
    return Refusal(502, f"The upstream {what} in the middle of its answer.", status, "upstream_error")
