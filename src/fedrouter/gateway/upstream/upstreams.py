"""Upstreams: the servers of the models, called in the order of the ranking until one answers.

Only configured addresses are connected to: redirects are not followed, proxies from the environment are ignored.
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any, Protocol

import orjson

from fedrouter.gateway.apis import CHAT, Api
from fedrouter.gateway.config import Config, Upstream
from fedrouter.gateway.http import Headers
from fedrouter.gateway.upstream.bodies import (
    MARK,
    MAX_READ,
    REFUSING,
    Content,
    Refusal,
    UnknownEncoding,
    content_of,
    error_in,
    first_data,
    refusal_in,
    refusal_of,
)
from fedrouter.gateway.upstream.deployments import CircuitBreaker, Deployment, Deployments, State
from fedrouter.gateway.upstream.http_client import Broken, HttpClient, Response, Unreachable

LOG = logging.getLogger("fedrouter.gateway")
MISCONFIGURED = frozenset({401, 403, 404, 405, 407})
"""Statuses that mean the gateway's settings for this upstream are wrong; another model may still answer."""
RETRYABLE = frozenset({408, 409, 425, 429})
"""Statuses, besides 5xx, after which a retry makes sense."""
BACKOFF = 0.2
"""Seconds before the first retry; doubled for each further one."""
BUSY_WAIT, BUSY_PAUSE = 0.5, 1.0
"""Seconds to wait for a busy model (429) while another one could answer, and for which it then rests at least."""
LONGEST_WAIT = 5.0
"""A longer Retry-After, in seconds, moves on to the next model."""
COOLDOWN = 5.0
"""Seconds for which a deployment rests after 429 or a failure, unless it asks for more; others serve meanwhile."""
CONNECT_SECONDS = 5.0
MOST_WAIT = 86_400.0
"""Seconds of a Retry-After that are passed on at most."""
DEADLINE = 300.0
"""Seconds for all attempts of a request together."""
ANSWER_LIMIT = 64 << 20
"""Largest answer that is not streamed, in bytes."""
MAX_PAUSE = 300.0
"""Longest pause in seconds that an upstream can ask for with Retry-After."""
LARGE = 1 << 20
"""Bytes from which a body is parsed on a thread and sent in pieces, so that it does not block other requests."""
EVENT_PREFIXES = (b"data:", b":", b"event:", b"id:", b"retry:", b"\n", b"\r")


@dataclass(eq=False)
class UpstreamResponse:
    """A response of an upstream: complete in ``body``, or a stream of which ``body`` is the first chunk.

    ``document`` is the JSON of a complete answer with status 200; ``response`` is open for the rest of a stream, which
    is read from ``content``.
    ``refusal`` is why this model refuses what another one may answer, and ``failed`` that its stream begins with an
    error.
    """

    model: Upstream
    status: int
    headers: Headers
    body: bytes
    document: Any = None
    response: Response | None = None
    content: Content | None = None
    attempts: int = 1
    refusal: Refusal | None = None
    failed: bool = False
    release: Callable[[], None] = lambda: None
    """To be called when a stream has ended, so that it no longer counts as in progress."""


class UpstreamsFailed(Exception):
    """No model answered; ``status`` and ``kind`` are for the client."""

    def __init__(self, status: int, kind: str, message: str, attempts: int, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.status, self.kind, self.attempts, self.retry_after = status, kind, attempts, retry_after


class _AttemptFailed(Exception):
    """One failed attempt: whether the same model should be retried, and after how many seconds.

    ``paid`` is whether the upstream may have charged for it.
    """

    def __init__(
        self, status: int, kind: str, what: str, retry: bool, after: float | None = None, paid: bool = False
    ) -> None:
        super().__init__(what)
        self.status, self.kind, self.retry, self.after, self.paid = status, kind, retry, after, paid


class Payer(Protocol):
    """Who pays for attempts: a request, by the budget of its key."""

    async def reserve(self, model: Upstream) -> bool:
        """Reserve what one more attempt at this model may cost; False if it must not be made."""
        ...

    def lose(self) -> None:
        """The attempt failed after it was sent, and may have been charged."""
        ...


class Upstreams:
    """Connections to all configured models; must be created inside the running event loop."""

    def __init__(self, config: Config, on_failure: Callable[[str, str], None] = lambda model, why: None) -> None:
        self._timing, self._limit = config.timing, ANSWER_LIMIT
        self._on_failure = on_failure
        self._models = {model.name: model for model in config.models}
        self._deployments = {model.name: Deployments(model) for model in config.models}
        self.breakers = {model.name: CircuitBreaker(config.timing.breaker_rest) for model in config.models}
        self._failing: set[str] = set()
        self._client = HttpClient(CONNECT_SECONDS)

    def unavailable(self) -> Collection[str]:
        """Models to skip for now: their circuit breakers are open, or half-open with a probe under way."""
        if not self._failing:
            return ()
        self._failing = {name for name in self._failing if self.breakers[name].state is not State.CLOSED}
        return [name for name in self._failing if not self.breakers[name].available]

    def stream_failed(self, name: str) -> None:
        """Count a stream that had begun and then broke off as a failure of its model."""
        self.breakers[name].failed()
        self._failing.add(name)
        self._on_failure(name, "broke off")

    async def close(self) -> None:
        self._client.close()

    async def complete(
        self,
        order: Sequence[str],
        payload: Callable[[Upstream], bytes],
        streamed: bool,
        payer: Payer | None = None,
        disconnected: Callable[[], bool] = lambda: False,
        api: Api = CHAT,
        headers: Mapping[str, str] | None = None,
    ) -> UpstreamResponse:
        """The first response of the models in this order, with retries; :class:`UpstreamsFailed` if there is none.

        An upstream's rejection of the request itself, such as 400, is a response too: the client has to see it. If
        that is only because this model's context is too short or it lacks a parameter, the next models are tried first.
        All models in the order must speak the ``api``; ``headers`` are the client's that are passed on.
        ``payer`` is asked before each attempt and may forbid it; after ``disconnected`` there is no further attempt.
        """
        attempts, last, unpaid = 0, None, False
        refused: UpstreamResponse | None = None
        deadline = time.monotonic() + DEADLINE
        for name in order:
            model, breaker, is_last = self._models[name], self.breakers[name], name == order[-1]
            if refused is not None and refused.refusal == "context" and not _longer(model, refused.model):
                continue
            deployments = self._deployments[name]
            retries = self._timing.retries + len(deployments) - 1
            for retry in range(retries + 1):
                ticket = breaker.acquire()
                if ticket is None:
                    break
                try:
                    if payer is not None and not await payer.reserve(model):
                        unpaid = True
                        breaker.abandoned(ticket)
                        break
                    left = deadline - time.monotonic()
                    if left <= 0 or (disconnected() and attempts):
                        raise _all_failed(last, attempts)
                    attempts += 1
                    seconds = min(left, self._timing.answer)
                    deployment = deployments.pick(api)
                    body = payload(deployment.model)
                    found = await self._attempt(deployment, body, streamed, seconds, api, headers or {})
                    if found.failed and not (is_last and retry == retries):
                        assert found.response is not None
                        found.response.close()
                        found.release()
                        raise _AttemptFailed(502, "upstream_error", "an error as first event", found.refusal is None)
                except _AttemptFailed as failure:
                    last = failure
                    self._failing.add(name)
                    if failure.paid and payer is not None:
                        payer.lose()
                    if failure.status == 429:  # busy, not broken
                        breaker.abandoned(ticket)
                    else:
                        breaker.failed(ticket)
                    # After the ticket is returned: a callback that raises must not keep the model out.
                    self._on_failure(name, str(failure))
                    LOG.warning("%s: attempt %d failed: %s", name, retry + 1, failure)
                    backoff = BACKOFF * 2**retry * (0.5 + random.random() / 2)
                    wait = backoff if failure.after is None else failure.after
                    if failure.retry and len(deployments) > 1:
                        deployment.rest(min(max(wait, COOLDOWN), MAX_PAUSE))
                        if retry < retries and deployments.any_ready(api):
                            continue
                    if failure.status == 429 and not is_last and (retry or wait > BUSY_WAIT):
                        breaker.pause(min(max(wait, BUSY_PAUSE), MAX_PAUSE))
                        break
                    if wait > LONGEST_WAIT:
                        breaker.pause(min(wait, MAX_PAUSE))
                        break
                    if not failure.retry or retry == retries:
                        break
                    await asyncio.sleep(wait)
                except BaseException:
                    breaker.abandoned(ticket)
                    raise
                else:
                    breaker.succeeded(ticket)
                    if found.refusal is not None and found.response is None and len(order) > 1:
                        refused = refused or found  # what the chosen model said, if no other one answers
                        break
                    found.attempts = attempts
                    return found
        if refused is not None:
            refused.attempts = attempts
            return refused
        if last is None and unpaid:
            message = "What is left of the budget of this key or session does not cover the request."
            raise UpstreamsFailed(429, "insufficient_quota", message, attempts)
        if last is None:
            rest = min((self.breakers[name].seconds_left for name in order), default=0.0)
            message = "Every model that may answer is unavailable after failures."
            raise UpstreamsFailed(503, "upstream_error", message, attempts, rest)
        raise _all_failed(last, attempts)

    async def _attempt(
        self,
        deployment: Deployment,
        payload: bytes,
        streamed: bool,
        seconds: float,
        api: Api,
        headers: Mapping[str, str],
    ) -> UpstreamResponse:
        model = deployment.model
        response: Response | None = None
        streaming = False
        deployment.begin()
        try:
            async with asyncio.timeout(seconds):
                response = await self._client.post(deployment.targets[api.name], headers, payload)
                status = response.status
                if status >= 500 or status in RETRYABLE:
                    after = _retry_after(response.header(b"retry-after").decode("latin-1"))
                    shown = status if status == 429 else 502
                    raise _AttemptFailed(shown, "upstream_error", f"status {status}", True, after)
                if status in MISCONFIGURED or 300 <= status < 400:
                    raise _AttemptFailed(
                        502, "upstream_error", f"status {status}: check api_base, api_key and model", False
                    )
                if status < 300 and status != 200:  # not an answer, and a client would take it for one
                    raise _AttemptFailed(502, "upstream_error", f"status {status}", False, paid=status > 200)
                content, kind = content_of(response), response.header(b"content-type")
                if streamed and status == 200 and kind.startswith(b"text/event-stream"):
                    first = await _first_event(content)
                    if not first.removeprefix(MARK).startswith(EVENT_PREFIXES):
                        raise _AttemptFailed(502, "upstream_error", "not a stream of events", True)
                    error = error_in(first_data(first))
                    begun, response, streaming = response, None, True
                    return UpstreamResponse(
                        model,
                        status,
                        begun.headers,
                        first,
                        response=begun,
                        content=content,
                        refusal=None if error is None else refusal_in(error),
                        failed=error is not None,
                        release=deployment.end,
                    )
                body = await self._read(response, content)
                document = _document(body, api) if status == 200 else None
                if status == 200 and document is None:
                    raise _AttemptFailed(
                        502, "upstream_error", f"status 200 but no answer of the API {api.name}", True, paid=True
                    )
                refusal = refusal_of(body) if status in REFUSING else None
                return UpstreamResponse(model, status, response.headers, body, document, refusal=refusal)
        except Unreachable as error:  # nothing was sent
            raise _AttemptFailed(502, "upstream_error", f"unreachable: {error}", True) from None
        except TimeoutError:
            raise _AttemptFailed(504, "timeout", f"no answer within {seconds:.0f} s", False, paid=True) from None
        except UnknownEncoding:
            what = "an unknown content-encoding, though none was asked for"
            raise _AttemptFailed(502, "upstream_error", what, False, paid=True) from None
        except (OSError, ValueError) as error:
            what = str(error) if isinstance(error, Broken) else type(error).__name__
            raise _AttemptFailed(502, "upstream_error", what, True, paid=True) from None
        finally:
            if response is not None:
                response.release()
            if not streaming:
                deployment.end()

    async def _read(self, response: Response, content: Content) -> bytes:
        parts, size = [], 0
        while part := await content.readany():
            size += len(part)
            if size > self._limit:
                response.close()
                raise _AttemptFailed(
                    502, "upstream_error", f"an answer of more than {self._limit} bytes", False, paid=True
                )
            parts.append(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)


async def _first_event(content: Content) -> bytes:
    """A stream up to its first event with data, which comments may precede."""
    begun = await content.readany()
    while first_data(begun) is None and len(begun) < MAX_READ:
        if not MARK.startswith(begun) and not begun.removeprefix(MARK).startswith(EVENT_PREFIXES):
            break
        more = await content.readany()
        if not more:
            break
        begun += more
    return begun


def _longer(model: Upstream, other: Upstream) -> bool:
    """Whether a model may have a longer context than another one."""
    return model.context is None or other.context is None or model.context > other.context


def _all_failed(last: _AttemptFailed | None, attempts: int) -> UpstreamsFailed:
    """The error for the client after the last attempt."""
    if last is None:
        return UpstreamsFailed(503, "upstream_error", "No model could be called in time.", attempts, 1.0)
    messages = {429: "The upstream's rate limit is reached.", 504: "The upstream did not answer in time."}
    message = messages.get(last.status, "The upstream failed to answer.")
    return UpstreamsFailed(last.status, last.kind, message, attempts, last.after)


def _document(body: bytes, api: Api) -> dict[str, Any] | None:
    try:
        found = orjson.loads(body)
    except orjson.JSONDecodeError:
        return None
    return found if isinstance(found, dict) and api.is_answer(found) else None


def _retry_after(value: str) -> float | None:
    """Seconds to wait, from a Retry-After header with a number or a date."""
    if not value:
        return None
    try:
        found = float(value)
    except ValueError:
        try:
            found = parsedate_to_datetime(value).timestamp() - time.time()
        except (TypeError, ValueError, OverflowError):
            return None
    return min(max(0.0, found), MOST_WAIT) if math.isfinite(found) else None
