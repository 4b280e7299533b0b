"""Routing in process, in the shape of OpenAI's client: the gateway's own code, without a server between."""

from __future__ import annotations

import asyncio
import json
import queue
import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Self, TypeVar

from fedrouter.errors import FedrouterError
from fedrouter.gateway.app import App
from fedrouter.gateway.config import Config, read_config
from fedrouter.gateway.gateway import EncoderOf, Gateway, open_gateway
from fedrouter.gateway.http import Message

T = TypeVar("T")
MARK = b"x-fedrouter-"


class RequestRefused(FedrouterError):
    """A request that was not answered: ``status`` and ``code`` are what the gateway would have sent."""

    def __init__(self, status: int, error: Mapping[str, Any]) -> None:
        super().__init__(str(error.get("message", f"status {status}")))
        self.status, self.code = status, error.get("code")


class Answer(dict[str, Any]):
    """A JSON object whose fields are attributes too: ``answer.choices[0].message.content``.

    ``answer.fedrouter`` says how the request was routed: ``decision_id``, ``model``, ``reason`` and more.
    """

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None


class Router:
    """A bundle and the models it chooses from.

    >>> router = Router("bundle", upstreams="gateway.yaml")         # doctest: +SKIP
    >>> answer = router.chat.completions.create(model="auto", messages=[{"role": "user", "content": "2 + 2?"}])
    ...                                                             # doctest: +SKIP
    >>> router.feedback(answer.fedrouter.decision_id, 1.0)          # doctest: +SKIP

    Parameters
    ----------
    bundle : folder of a saved router; it is served as it is, whatever gateways on the same store serve
    upstreams : the gateway's config, or the path of its YAML file
    """

    def __init__(
        self,
        bundle: str | Path | None,
        upstreams: Config | str | Path,
        encoder_of: EncoderOf | None = None,
    ) -> None:
        config = upstreams if isinstance(upstreams, Config) else read_config(upstreams)
        if bundle is not None:
            config = replace(config, routing=replace(config.routing, bundle=str(bundle)))
        config = replace(config, door=replace(config.door, auth=False))
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="fedrouter", daemon=True)
        self._thread.start()
        self.chat = _Chat(self)

        async def opened() -> Gateway:
            gateway = await open_gateway(config, encoder_of, follow=False)
            try:
                await gateway.until_warm()
            except BaseException:
                await gateway.close()
                raise
            return gateway

        self._app = App(opened)
        try:
            self._app.gateway = self._run(opened())
        except BaseException:
            self._stop()
            raise

    def route(self, messages: Sequence[Mapping[str, Any]], model: str = "auto", **settings: Any) -> Answer:
        """The decision alone, with every model's estimates; ``settings`` are those of ``fedrouter`` in a body."""
        body = {"model": model, "messages": list(messages), "fedrouter": settings}
        return self._whole("POST", "/v1/route", body)

    def feedback(self, decision_id: str, score: float) -> Answer:
        """How good an answer was, from 0 to 1."""
        return self._whole("POST", "/v1/feedback", {"decision_id": decision_id, "score": score})

    def close(self) -> None:
        if self._app.gateway is not None:
            self._run(self._app.gateway.close())
            self._app.gateway = None
            self._stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def _begin(
        self, method: str, path: str, body: Mapping[str, Any]
    ) -> tuple[queue.SimpleQueue[Message], Callable[[], object]]:
        """Start a request; what the gateway sends lands in the queue. The other is to be called to hang up."""
        gone = asyncio.Event()
        sent: queue.SimpleQueue[Message] = queue.SimpleQueue()
        inbox: list[Message] = [{"type": "http.request", "body": json.dumps(body).encode(), "more_body": False}]
        scope = {"type": "http", "method": method, "path": path, "query_string": b"", "headers": []}

        async def receive() -> Message:
            if inbox:
                return inbox.pop()
            await gone.wait()
            return {"type": "http.disconnect"}

        async def send(message: Message) -> None:
            sent.put(message)

        asyncio.run_coroutine_threadsafe(self._app(scope, receive, send), self._loop)
        return sent, lambda: self._loop.call_soon_threadsafe(gone.set)

    def _whole(self, method: str, path: str, body: Mapping[str, Any]) -> Answer:
        sent, _ = self._begin(method, path, body)
        start, parts = sent.get(), [sent.get()]
        while parts[-1].get("more_body", False):
            parts.append(sent.get())
        return _answer(start, b"".join(part["body"] for part in parts))

    def _events(self, body: Mapping[str, Any]) -> Iterator[Answer]:
        sent, hang_up = self._begin("POST", "/v1/chat/completions", body)
        try:
            start = sent.get()
            if start["status"] != 200:
                _answer(start, sent.get()["body"])
            rest, more = b"", True
            while more:
                message = sent.get()
                more = message.get("more_body", False)
                *lines, rest = (rest + message["body"]).split(b"\n")
                yield from _parts(lines, _routing(start))
        finally:  # also where the caller stops listening
            hang_up()


class _Chat:
    """``router.chat.completions``, as OpenAI's client has it."""

    def __init__(self, router: Router) -> None:
        self._router = router

    @property
    def completions(self) -> _Chat:
        return self

    def create(
        self,
        *,
        messages: Sequence[Mapping[str, Any]],
        model: str = "auto",
        stream: bool = False,
        extra_body: Mapping[str, Any] | None = None,
        **body: Any,
    ) -> Any:
        """An :class:`Answer`, or with ``stream`` an iterator of its parts; other fields go to the model as they are."""
        whole = {"model": model, "messages": list(messages), **body, **(extra_body or {})}
        if stream:
            return self._router._events(whole | {"stream": True})
        return self._router._whole("POST", "/v1/chat/completions", whole)


def _answer(start: Message, raw: bytes) -> Answer:
    found: Answer = json.loads(raw, object_hook=Answer)
    if start["status"] != 200:
        raise RequestRefused(start["status"], found.get("error") or {})
    found["fedrouter"] = _routing(start)
    return found


def _parts(lines: Sequence[bytes], routing: Answer) -> Iterator[Answer]:
    for line in lines:
        if line.startswith(b"data:") and line[5:].strip() != b"[DONE]":
            event: Answer = json.loads(line[5:], object_hook=Answer)
            if "error" in event:
                raise RequestRefused(502, event["error"])
            event["fedrouter"] = routing
            yield event


def _routing(start: Message) -> Answer:
    """What the headers say about the decision."""
    return Answer(
        (name[len(MARK) :].decode().replace("-", "_"), value.decode("latin-1"))
        for name, value in start["headers"]
        if name.startswith(MARK)
    )
