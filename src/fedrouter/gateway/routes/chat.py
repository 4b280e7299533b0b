"""POST /v1/chat/completions and the other APIs: route, call the model, log, answer with the upstream's own bytes."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from functools import partial
from typing import Any

from fedrouter.gateway.apis import APIS, CHAT, RESPONSES, Api, Usage, cost_of
from fedrouter.gateway.config import Upstream
from fedrouter.gateway.gateway import Gateway
from fedrouter.gateway.http import (
    CLIENT_GONE,
    SHUTDOWN,
    Headers,
    HttpError,
    HttpRequest,
    Interrupted,
    Send,
    send_error,
    send_response,
    shutting_down,
)
from fedrouter.gateway.pipeline import RequestContext, admit, route_request
from fedrouter.gateway.routes.endpoint import OBJECT, Endpoint, request_schema
from fedrouter.gateway.upstream.bodies import Content, SplicedBody, UsageTracker
from fedrouter.gateway.upstream.http_client import Response
from fedrouter.gateway.upstream.upstreams import LARGE, UpstreamResponse, UpstreamsFailed
from fedrouter.store.engine import StoreFailed
from fedrouter.store.records import STATUSES, Key

PASSED_HEADERS = frozenset(
    {
        *(b"content-type", b"cache-control", b"x-request-id", b"request-id", b"retry-after", b"retry-after-ms"),
        *(b"openai-model", b"openai-processing-ms", b"openai-version"),
    }
)
PASSED_PREFIXES = (b"x-ratelimit-", b"anthropic-ratelimit-")
"""The headers of an upstream that clients get; others concern its connection, its account or browsers."""
MAX_JUDGED = 1 << 18
"""Bytes of a request up to which its answer is judged; larger ones would take too much memory in the queue."""
STREAM_SECONDS = 3600.0
"""Most seconds of a stream."""
MAX_ANSWER_ID = 200
"""Characters of an answer's id that are logged."""
END_TIMEOUT = 1.0
"""Seconds for a connection to end after its stream has."""


async def answer(api: Api, gateway: Gateway, request: HttpRequest, send: Send) -> None:
    started = time.perf_counter()
    await chat_as(gateway, request, await admit(gateway, request), started, send, api)


async def chat_as(
    gateway: Gateway, request: HttpRequest, key: Key, started: float, send: Send, api: Api = CHAT
) -> None:
    """Answer a request of a key that was authenticated and admitted."""
    if gateway.writer.full:  # before anything is paid for
        raise StoreFailed(f"store: {gateway.store.where}: too many rows wait for it")
    with gateway.in_progress.of(key):
        async with route_request(gateway, request, key, started, api=api) as context:
            if gateway.telemetry is not None:
                context.span = gateway.telemetry.begin(context)
            await _answer(gateway, context, send)


async def _answer(gateway: Gateway, context: RequestContext, send: Send) -> None:
    raw = context.raw
    # Splicing a body with millions of small values takes seconds: do that on a thread.
    spliced = SplicedBody(raw, has_model=True) if len(raw) < LARGE else await asyncio.to_thread(SplicedBody, raw)
    wants_usage = context.asks_for_usage
    judged = context.body if gateway.judge_queue is not None and len(raw) <= MAX_JUDGED else None
    context.release_body()
    del raw
    await Exchange(gateway, context, judged, wants_usage, send).run(spliced)


class Exchange:
    """One request from its decision to the last byte of its answer."""

    def __init__(
        self,
        gateway: Gateway,
        context: RequestContext,
        judged: dict[str, Any] | None,
        wants_usage: bool,
        send: Send,
    ) -> None:
        assert context.interrupted is not None
        self._gateway, self._context, self._interrupted = gateway, context, context.interrupted
        self._judged, self._wants_usage, self._send = judged, wants_usage, send

    async def run(self, spliced: SplicedBody) -> None:
        context, called = self._context, time.perf_counter()
        try:
            found = await self._called(spliced)
        except UpstreamsFailed as failure:
            context.upstream_seconds = time.perf_counter() - called
            await self._end(failure, failure.attempts)
            return
        context.upstream_seconds = time.perf_counter() - called
        if found is None:  # nobody waits for the answer any more; what it may cost so far is charged
            context.lose()
            await self._end(None, 1)
        elif found.response is None or found.content is None:
            await self._complete(found)
        else:
            try:
                await self._stream(found, found.response, found.content)
            finally:
                found.response.close()  # unless it has ended and was released: whatever failed, nobody reads it
                found.release()

    async def _called(self, spliced: SplicedBody) -> UpstreamResponse | None:
        """The upstream's response; None if the request was interrupted before it came."""
        context, task, waiting = self._context, asyncio.current_task(), True
        assert task is not None
        cancelled = False

        def interrupt(_: Interrupted) -> None:
            nonlocal cancelled
            if waiting:
                cancelled = True
                task.cancel()

        # Cancels this very task, as `asyncio.timeout` does: one more task for each request would cost more than that.
        self._interrupted.add_done_callback(interrupt)
        try:
            return await self._gateway.upstreams.complete(
                context.decision.order,
                lambda model: spliced.to(
                    model.target, context.streamed and _asks(context.api, model), model.params.extra_body
                ),
                context.streamed,
                context,
                self._interrupted.done,
                context.api,
                context.headers_passed,
            )
        except asyncio.CancelledError:
            if not cancelled or task.uncancel():  # somebody else cancels the whole request
                raise
            return None
        finally:
            waiting = False
            self._interrupted.remove_done_callback(interrupt)

    async def _end(self, failure: UpstreamsFailed | None, attempts: int) -> None:
        """Log and answer a request that no model has answered: all failed, or it was interrupted."""
        if self._interrupted.done():
            status, error = self._interrupted.result(), shutting_down()
        else:
            assert failure is not None
            status, error = failure.kind if failure.kind in STATUSES else "refused", _failed(failure)
        await self._commit(status, None, None, attempts)
        await send_error(self._send, error, self._context.headers(None))

    async def _commit(
        self,
        status: str,
        served: Upstream | None,
        usage: Usage | None,
        attempts: int,
        text: str | None = None,
        answer: Any = None,
    ) -> None:
        """Write the log row; the answer may end only after this has returned."""
        context, gateway = self._context, self._gateway
        context.answer = answer[:MAX_ANSWER_ID] if isinstance(answer, str) else None
        record = context.record(status, served, usage, attempts, gateway.embedder)
        await gateway.writer.put(record)
        context.settle(record.cost)
        gateway.metrics.served(record, context.key_name)
        if context.span is not None:
            context.span.end(context, record, served)
        if served is not None and status == "ok":
            gateway.decider.sticky.served(context.session, served.name, record.input_tokens or 0)
            if text is not None and self._judged is not None and gateway.judge_queue is not None:
                gateway.judge_queue.offer(record, self._judged, text)

    async def _remember(self, response_id: Any, served: Upstream) -> None:
        """Remember which model gave a response of the Responses API: later requests may refer to it."""
        if self._context.api is RESPONSES and isinstance(response_id, str):
            gateway, key = self._gateway, self._context.key
            await gateway.decider.sticky.put_response(gateway.store, key, response_id, served.name)

    async def _complete(self, found: UpstreamResponse) -> None:
        """Pass on a complete response."""
        served, text = found.model, None
        if found.status == 200:
            api = self._context.api
            usage = api.usage(found.document.get("usage"))
            if usage is None or self._judged is not None:
                text, length = api.answer(found.document)
                usage = usage or Usage.estimate(self._context.prompt, length)
            await self._remember(found.document.get("id"), served)
            gone = self._interrupted.done() and self._interrupted.result() == CLIENT_GONE
            text = text if self._judged is not None else None
            status, answer = CLIENT_GONE if gone else "ok", found.document.get("id")
            await self._commit(status, served, usage, found.attempts, text, answer)
        else:  # the upstream rejected the client's request
            await self._commit("refused", served, None, found.attempts)
        await send_response(self._send, found.status, found.body, _passed(found) + self._context.headers(served))

    async def _stream(self, found: UpstreamResponse, response: Response, content: Content) -> None:
        """Pass on events as they arrive. After the first one there are no retries: a failure becomes an error event."""
        context, send, timing = self._context, self._send, self._context.config.timing
        hide_usage = _asks(context.api, found.model) and not self._wants_usage
        tracker, status = UsageTracker(self._judged is not None, hide_usage, context.api), "ok"
        over = False  # it costs more than the budget has, as if the upstream ignored `max_tokens`
        self._interrupted.add_done_callback(lambda _: response.close())
        headers = _passed(found) + context.headers(found.model)
        began, chunk = time.perf_counter(), found.body
        context.first_token = began - context.started
        self._gateway.metrics.observe("fedrouter_first_token_seconds", context.first_token, model=found.model.name)
        try:
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            while chunk:
                ready = tracker.feed(chunk)
                if tracker.done:
                    break
                if ready:
                    await send({"type": "http.response.body", "body": ready, "more_body": True})
                if context.budget and not context.covers(tracker.least_usage(context.prompt), found.model):
                    status, over = "refused", True
                    break
                async with asyncio.timeout(min(timing.answer, began + STREAM_SECONDS - time.perf_counter())):
                    chunk = await content.readany()
            if not over:
                last = ready + tracker.rest() if tracker.done else tracker.rest()
                status = "ok" if tracker.complete and not tracker.failed else "upstream_error"
        except TimeoutError:
            status = "timeout"
        except OSError:
            status = "upstream_error"
        if (why := self._interrupted.result() if self._interrupted.done() else None) is not None:
            status = why if why == CLIENT_GONE or not tracker.done else status
        context.upstream_seconds += time.perf_counter() - began
        text = tracker.text if status == "ok" else None
        await self._remember(tracker.answer_id, found.model)
        usage = tracker.usage(context.prompt)
        if status != "ok" and (usage.estimated or tracker.failed or not tracker.complete):
            # Usage that came before the end, as in Anthropic's first event, does not have the whole answer.
            context.lose(cost_of(tracker.least_usage(context.prompt), found.model))
            usage = replace(usage, partial=True)
        await self._commit(status, found.model, usage, found.attempts, text, tracker.answer_id)
        if status != "ok":
            response.close()
            if not self._interrupted.done() and not over:  # otherwise the model is not to blame
                self._gateway.upstreams.stream_failed(found.model.name)
            last = context.api.error_event + b"data: " + _broken(status).body() + b"\n\n"
        else:
            last = await self._pass_on(response, content, last)
        await send({"type": "http.response.body", "body": last})

    async def _pass_on(self, response: Response, content: Content, last: bytes) -> bytes:
        """Send the last event and what follows it, if anything; returns what is still to be sent.

        The upstream should now end its stream, so that the connection can be reused; it is closed if that does not
        happen.
        """
        try:
            async with asyncio.timeout(END_TIMEOUT):
                while not content.at_eof():
                    await self._send({"type": "http.response.body", "body": last, "more_body": True})
                    last = b""
                    last = await content.readany()
            response.release()
        except (TimeoutError, OSError):
            response.close()
        return last


def _asks(api: Api, model: Upstream) -> bool:
    """Whether the gateway asks for the usage of a stream."""
    return api.asks_for_usage and model.params.stream_usage


def _passed(found: UpstreamResponse) -> Headers:
    """The upstream's headers that the client gets; none that are for the gateway alone, as `Connection` says."""
    own = {each.strip() for name, value in found.headers if name == b"connection" for each in value.lower().split(b",")}
    return [
        (name, value)
        for name, value in found.headers
        if (name in PASSED_HEADERS or name.startswith(PASSED_PREFIXES)) and name not in own
    ]


def _failed(failure: UpstreamsFailed) -> HttpError:
    wait = failure.retry_after
    headers = [(b"retry-after", b"%d" % max(1, round(wait)))] if wait is not None else []
    kind = "rate_limit_error" if failure.status == 429 else "upstream_error"
    kind = failure.kind if failure.kind == "insufficient_quota" else kind
    return HttpError(failure.status, str(failure), failure.kind, kind, headers=headers)


def _broken(status: str) -> HttpError:
    if status == SHUTDOWN:
        return shutting_down()
    if status == "refused":
        return HttpError(
            429,
            "The answer costs more than is left of this key's daily budget.",
            "insufficient_quota",
            "insufficient_quota",
        )
    what = "stopped sending" if status == "timeout" else "broke off"
    return HttpError(502, f"The upstream {what} in the middle of its answer.", status, "upstream_error")


def _endpoint(api: Api) -> Endpoint:
    return Endpoint(
        f"/v1{api.path}",
        "POST",
        partial(answer, api),
        api.summary,
        body=request_schema(api.required, ("model",)),
        answer=OBJECT,
        errors=(404, 502, 504),
        streams=api.streams,
    )


ENDPOINTS = tuple(_endpoint(api) for api in APIS.values())
