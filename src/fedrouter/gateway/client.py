"""The gateway in process: a client in the shape of OpenAI's that calls the gateway's code without a server.

The ASGI application is called directly, not through `httpx.ASGITransport`: that returns only after the application has
finished, so an answer could not be streamed and a stream that is no longer read could not be stopped.
"""

from __future__ import annotations

import asyncio
import json
import queue
import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self, TypeVar

from fedrouter.errors import FedrouterError
from fedrouter.gateway.app import App
from fedrouter.gateway.config import Config
from fedrouter.gateway.config_file import read_config
from fedrouter.gateway.gateway import EncoderOf, Gateway, open_gateway
from fedrouter.gateway.http import AsgiMessage

T = TypeVar("T")
HEADER = b"x-fedrouter-"


class RequestRefused(FedrouterError):
    """A request that got no answer; ``status`` and ``code`` are those of the gateway's error response."""

    def __init__(self, status: int, error: Mapping[str, Any]) -> None:
        super().__init__(str(error.get("message", f"status {status}")))
        self.status, self.code = status, error.get("code")


class Answer(dict[str, Any]):
    """A JSON object whose fields are also attributes: ``answer.choices[0].message.content``.

    ``answer.fedrouter`` describes the routing decision: ``decision_id``, ``model``, ``reason`` and more.
    """

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None


class GatewayClient:
    """Routes chat completions in this process, with the same config, decisions, budgets and log as the gateway.

    >>> client = GatewayClient("bundle", upstreams="gateway.yaml")  # doctest: +SKIP
    >>> answer = client.chat.completions.create(model="auto", messages=[{"role": "user", "content": "2 + 2?"}])
    ...                                                             # doctest: +SKIP
    >>> client.feedback(answer.fedrouter.decision_id, 1.0)          # doctest: +SKIP

    Parameters
    ----------
    bundle : folder of a saved router; it is served unchanged, even if the store names another bundle
    upstreams : the gateway's config, or the path of its YAML file
    encoder_of : replaces the encoder that the config and the bundle name
    """

    def __init__(
        self,
        bundle: str | Path | None,
        upstreams: Config | str | Path,
        encoder_of: EncoderOf | None = None,
    ) -> None:
        config = upstreams if isinstance(upstreams, Config) else read_config(upstreams)
        if bundle is not None:
            config = config.replace(routing=config.routing.replace(bundle=str(bundle)))
        config = config.replace(server=config.server.replace(auth=False))
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

    def route(self, messages: Sequence[Mapping[str, Any]], model: str = "auto", **options: Any) -> Answer:
        """The decision and all estimates, without calling a model; ``options`` as under ``fedrouter`` in a body."""
        body = {"model": model, "messages": list(messages), "fedrouter": options}
        return self.request("POST", "/v1/route", body)

    def feedback(self, decision_id: str, score: float) -> Answer:
        """Score an answer from 0 to 1."""
        return self.request("POST", "/v1/feedback", {"decision_id": decision_id, "score": score})

    def request(self, method: str, path: str, body: Mapping[str, Any]) -> Answer:
        """The complete response of the gateway to one request; :class:`RequestRefused` if it is an error."""
        sent, _ = self._begin(method, path, body)
        start, parts = sent.get(), [sent.get()]
        while parts[-1].get("more_body", False):
            parts.append(sent.get())
        return _answer(start, b"".join(part["body"] for part in parts))

    def stream(self, body: Mapping[str, Any]) -> Iterator[Answer]:
        """The events of a streamed chat completion; closing the iterator stops the upstream's stream."""
        sent, disconnect = self._begin("POST", "/v1/chat/completions", body)
        try:
            start = sent.get()
            if start["status"] != 200:
                _answer(start, sent.get()["body"])
            rest, more = b"", True
            while more:
                message = sent.get()
                more = message.get("more_body", False)
                *lines, rest = (rest + message["body"]).split(b"\n")
                yield from _events(lines, _routing(start))
        finally:  # also when the caller closes the iterator
            disconnect()

    def close(self) -> None:
        """Close the gateway and end its thread."""
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
    ) -> tuple[queue.SimpleQueue[AsgiMessage], Callable[[], object]]:
        """Start a request: a queue of the messages that the gateway sends, and a function that disconnects."""
        disconnected = asyncio.Event()
        sent: queue.SimpleQueue[AsgiMessage] = queue.SimpleQueue()
        inbox: list[AsgiMessage] = [{"type": "http.request", "body": json.dumps(body).encode(), "more_body": False}]
        scope = {"type": "http", "method": method, "path": path, "query_string": b"", "headers": []}

        async def receive() -> AsgiMessage:
            if inbox:
                return inbox.pop()
            await disconnected.wait()
            return {"type": "http.disconnect"}

        async def send(message: AsgiMessage) -> None:
            sent.put(message)

        asyncio.run_coroutine_threadsafe(self._app(scope, receive, send), self._loop)
        return sent, lambda: self._loop.call_soon_threadsafe(disconnected.set)


class _Chat:
    """``client.chat.completions``, as in OpenAI's client."""

    def __init__(self, client: GatewayClient) -> None:
        self._client = client

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
        """An :class:`Answer`, or with ``stream`` an iterator of its events; other fields are passed to the model."""
        whole = {"model": model, "messages": list(messages), **body, **(extra_body or {})}
        if stream:
            return self._client.stream(whole | {"stream": True})
        return self._client.request("POST", "/v1/chat/completions", whole)


def _answer(start: AsgiMessage, raw: bytes) -> Answer:
    found: Answer = json.loads(raw, object_hook=Answer)
    if start["status"] != 200:
        raise RequestRefused(start["status"], found.get("error") or {})
    found["fedrouter"] = _routing(start)
    return found


def _events(lines: Sequence[bytes], routing: Answer) -> Iterator[Answer]:
    for line in lines:
        if line.startswith(b"data:") and line[5:].strip() != b"[DONE]":
            event: Answer = json.loads(line[5:], object_hook=Answer)
            if "error" in event:
                raise RequestRefused(502, event["error"])
            event["fedrouter"] = routing
            yield event


def _routing(start: AsgiMessage) -> Answer:
    """The routing decision, from the response headers."""
    return Answer(
        (name[len(HEADER) :].decode().replace("-", "_"), value.decode("latin-1"))
        for name, value in start["headers"]
        if name.startswith(HEADER)
    )
