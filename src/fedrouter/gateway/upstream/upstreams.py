"""Upstreams: the models' own servers, asked in the order of the ranking until one answers.

Only configured addresses are ever connected to: no redirects are followed, no proxy is taken from the environment.
"""

from __future__ import annotations

import asyncio
import io
import logging
import random
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any

import aiohttp
import orjson
from multidict import CIMultiDict
from yarl import URL

from fedrouter.gateway.config import Config, Upstream
from fedrouter.gateway.upstream.circuit_breaker import Breaker

LOG = logging.getLogger("fedrouter.gateway")
OURS = frozenset({401, 403, 404, 405, 407})
"""Answers that say the gateway's own settings are wrong for this upstream: another model may do better."""
AGAIN = frozenset({408, 409, 425, 429})
"""Answers, besides 5xx, after which it makes sense to ask again."""
BACKOFF = 0.2
LARGE = 1 << 20
"""Bytes from which a body is taken apart on a thread and sent in pieces, so that other requests get their turn."""
EVENTS = (b"data:", b":", b"event:", b"id:", b"retry:", b"\n", b"\r")


@dataclass(eq=False)
class Answer:
    """An upstream's answer, complete in ``body``, or begun with ``first`` and to be read on from ``response``."""

    model: Upstream
    status: int
    headers: Any
    body: bytes
    document: Any = None
    response: aiohttp.ClientResponse | None = None
    attempts: int = 1


class Failed(Exception):
    """No model gave an answer; ``status`` is what to tell the client."""

    def __init__(self, status: int, kind: str, message: str, attempts: int, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.status, self.kind, self.attempts, self.retry_after = status, kind, attempts, retry_after


class _Trouble(Exception):
    """One attempt that failed: whether to ask the same model again, and when."""

    def __init__(self, status: int, kind: str, what: str, again: bool, after: float | None = None) -> None:
        super().__init__(what)
        self.status, self.kind, self.again, self.after = status, kind, again, after


class Upstreams:
    """Connections to every configured model; made inside the running loop."""

    def __init__(self, config: Config, failed: Callable[[str, str], None] = lambda model, why: None) -> None:
        self._timing, self._limit = config.timing, config.door.answer_limit
        self._told = failed
        self._models = {model.name: model for model in config.models}
        self._addresses = {model.name: _address(model) for model in config.models}
        self._headers = {model.name: _headers(model) for model in config.models}
        self.breakers = {
            model.name: Breaker(config.timing.breaker_failures, config.timing.breaker_rest) for model in config.models
        }
        self._failing: set[str] = set()
        connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=60, ttl_dns_cache=60)
        self._session = aiohttp.ClientSession(
            connector=connector,
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            trust_env=False,
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=config.timing.connect),
            skip_auto_headers=("User-Agent", "Accept", "Content-Type"),
        )

    def resting(self) -> Collection[str]:
        """Models that are left alone for now."""
        if self._failing:
            self._failing = {name for name in self._failing if self.breakers[name].open}
        return self._failing

    def broke_off(self, name: str, status: str) -> None:
        """A stream that had begun ended badly; if it was the client who left, the model is not to blame."""
        if status != "client_gone":
            self._told(name, "broke off")
            self.breakers[name].failed()
            self._failing.add(name)

    async def close(self) -> None:
        await self._session.close()

    async def ask(
        self,
        order: Sequence[str],
        payload: Callable[[Upstream], bytes],
        streamed: bool,
        permit: Callable[[Upstream], bool] = lambda model: True,
        gone: Callable[[], bool] = lambda: False,
    ) -> Answer:
        """The first answer in the order: an upstream's own, even a refusal that is the client's to hear."""
        attempts, last = 0, None
        deadline = time.monotonic() + self._timing.deadline
        for name in order:
            model, breaker = self._models[name], self.breakers[name]
            for again in range(self._timing.retries + 1):
                if breaker.open or not permit(model):
                    break
                left = deadline - time.monotonic()
                if left <= 0 or (gone() and attempts):
                    raise last_word(last, attempts)
                attempts += 1
                try:
                    answer = await self._attempt(model, payload(model), streamed, min(left, self._timing.answer))
                    breaker.succeeded()
                    answer.attempts = attempts
                    return answer
                except _Trouble as trouble:
                    last = trouble
                    self._told(name, str(trouble))
                    LOG.warning("%s: attempt %d failed: %s", name, again + 1, trouble)
                    self._failing.add(name)
                    if trouble.status != 429:
                        breaker.failed()
                    wait = BACKOFF * 2**again * (0.5 + random.random() / 2) if trouble.after is None else trouble.after
                    if wait > self._timing.longest_wait:
                        breaker.pause(min(wait, 300.0))
                        break
                    if not trouble.again or again == self._timing.retries:
                        break
                    await asyncio.sleep(wait)
        if last is None:
            rest = min((self.breakers[name].seconds_left for name in order), default=0.0)
            raise Failed(
                503, "upstream_error", "Every model that may answer is resting after failures.", attempts, rest
            )
        raise last_word(last, attempts)

    async def _attempt(self, model: Upstream, payload: bytes, streamed: bool, seconds: float) -> Answer:
        response: aiohttp.ClientResponse | None = None
        try:
            async with asyncio.timeout(seconds):
                response = await self._session.post(
                    self._addresses[model.name],
                    data=payload if len(payload) < LARGE else io.BytesIO(payload),
                    headers=self._headers[model.name],
                    allow_redirects=False,
                )
                status = response.status
                if status >= 500 or status in AGAIN:
                    after = _retry_after(response.headers.get("retry-after"))
                    told = status if status == 429 else 502
                    raise _Trouble(told, "upstream_error", f"status {status}", True, after)
                if status in OURS or 300 <= status < 400:
                    raise _Trouble(502, "upstream_error", f"status {status}: check api_base, api_key and model", False)
                kind = response.headers.get("content-type", "")
                if streamed and status == 200 and kind.startswith("text/event-stream"):
                    first = await response.content.readany()
                    if not first.startswith(EVENTS):
                        raise _Trouble(502, "upstream_error", "not a stream of events", True)
                    begun, response = response, None
                    return Answer(model, status, begun.headers, first, None, begun)
                body = await self._read(response)
                document = _document(body) if status == 200 else None
                if status == 200 and document is None:
                    raise _Trouble(502, "upstream_error", "status 200 but not a chat completion", True)
                return Answer(model, status, response.headers, body, document)
        except TimeoutError:
            raise _Trouble(504, "timeout", f"no answer within {seconds:.0f} s", False) from None
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise _Trouble(502, "upstream_error", type(error).__name__, True) from None
        finally:
            if response is not None:
                response.release()

    async def _read(self, response: aiohttp.ClientResponse) -> bytes:
        if (response.content_length or self._limit + 1) <= self._limit:
            return await response.read()
        parts, size = [], 0
        async for part in response.content.iter_any():
            size += len(part)
            if size > self._limit:
                response.close()
                raise _Trouble(502, "upstream_error", f"an answer of more than {self._limit} bytes", False)
            parts.append(part)
        return b"".join(parts)


def last_word(trouble: _Trouble | None, attempts: int) -> Failed:
    if trouble is None:
        return Failed(503, "upstream_error", "No model could be asked.", attempts)
    messages = {429: "The upstream's rate limit is reached.", 504: "The upstream did not answer in time."}
    message = messages.get(trouble.status, "The upstream failed to answer.")
    return Failed(trouble.status, trouble.kind, message, attempts, trouble.after)


def _document(body: bytes) -> dict[str, Any] | None:
    try:
        found = orjson.loads(body)
    except orjson.JSONDecodeError:
        return None
    return found if isinstance(found, dict) and "choices" in found else None


def _address(model: Upstream) -> URL:
    return URL(f"{model.base_url}/chat/completions").with_query(dict(model.query))


def _headers(model: Upstream) -> CIMultiDict[str]:
    headers = CIMultiDict(
        {"content-type": "application/json", "accept-encoding": "identity", "user-agent": "fedrouter"}
    )
    if model.key is not None:
        bearer = model.key_header == "authorization"
        headers[model.key_header] = f"Bearer {model.key}" if bearer else model.key
    return headers


def _retry_after(value: str | None) -> float | None:
    """Seconds, from a number of them or a date."""
    if value is None:
        return None
    try:
        return max(0.0, float(value))
    except ValueError:
        pass
    try:
        return max(0.0, parsedate_to_datetime(value).timestamp() - time.time())
    except (TypeError, ValueError, OverflowError):
        return None
