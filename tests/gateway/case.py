"""One request as a test sends it, down to its bytes, and the sound bodies that the bent ones are made of."""

import copy
import random
from dataclasses import dataclass, field
from typing import Any

KNOWN = "0" * 31 + "1"
"""A decision that the log has."""
CHAT, ROUTE, FEEDBACK = "/v1/chat/completions", "/v1/route", "/v1/feedback"
RESPONSES, MESSAGES, COMPLETIONS, EMBEDDINGS = "/v1/responses", "/v1/messages", "/v1/completions", "/v1/embeddings"
PAGE = "/page/api/"
BODY_LIMIT = 1 << 20
"""What the gateway under test is configured to take."""
TOOL = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties": {}}}}
IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}


@dataclass
class Case:
    """One request; ``cut`` bytes of it are never sent, and ``odd`` is whether HTTP itself was bent."""

    seed: int
    path: str
    body: bytes
    method: str = "POST"
    version: str = "HTTP/1.1"
    headers: list[tuple[bytes, bytes]] = field(default_factory=lambda: [(b"content-type", b"application/json")])
    ways: list[str] = field(default_factory=list)
    chunked: bool = False
    cut: int = 0
    odd: bool = False
    with_key: bool = True

    def raw(self, key: str, cookie: str = "") -> bytes:
        """The bytes to send, with a key that opens the gateway, or with the cookie of a session on its page."""
        draw = random.Random(self.seed)
        headers = [(b"host", b"gateway"), *self.headers]
        if self.with_key and self.path.startswith(PAGE):
            headers += [(b"cookie", cookie.encode()), (b"x-page-request", b"1")]
        elif self.with_key:
            headers.append((b"authorization", f"Bearer {key}".encode()))
        if self.chunked:
            headers.append((b"transfer-encoding", b"chunked"))
            body = _chunks(self.body, draw)
        else:
            headers.append((b"content-length", b"%d" % len(self.body)))
            body = self.body
        head = f"{self.method} {self.path} {self.version}\r\n".encode("latin-1")
        whole = head + b"".join(name + b": " + value + b"\r\n" for name, value in headers) + b"\r\n" + body
        return whole[: len(whole) - min(self.cut, len(body))]

    def __str__(self) -> str:
        return f"seed {self.seed} ({', '.join(self.ways)}; {self.method} {self.path[:60]}; {self.body[:120]!r})"


def _chunks(body: bytes, draw: random.Random) -> bytes:
    parts, at = [], 0
    smallest = max(1, len(body) // 200)
    while at < len(body):
        size = draw.choice((1, 7, 1000, 70_000)) * smallest
        part = body[at : at + size]
        parts.append(b"%x%s\r\n%s\r\n" % (len(part), draw.choice((b"", b"", b";x=y")), part))
        at += size
    return b"".join(parts) + b"0\r\n" + draw.choice((b"", b"", b"x-trailer: 1\r\n")) + b"\r\n"


def conversation(draw: random.Random) -> dict[str, Any]:
    """A sound chat body."""
    text = f"How far is it to star {draw.randrange(500)}?"
    content: Any = draw.choice((text, [{"type": "text", "text": text}], [{"type": "text", "text": text}, IMAGE]))
    messages: list[Any] = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": content}]
    if draw.random() < 0.3:
        call = {"id": "c", "type": "function", "function": {"name": "weather", "arguments": "{}"}}
        messages += [{"role": "assistant", "content": None, "tool_calls": [call]}]
        messages += [{"role": "tool", "tool_call_id": "c", "content": "rain"}, {"role": "user", "content": text}]
    body: dict[str, Any] = {
        "model": draw.choice(("auto", "auto", "atlas-max", "router-bayes-10")),
        "messages": messages,
    }
    more: dict[str, Any] = {
        "stream": draw.random() < 0.5,
        "tools": [TOOL],
        "temperature": 0.5,
        "max_tokens": 100,
        "stream_options": {"include_usage": True},
        "response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": "object"}}},
        "metadata": {"a": "b"},
        "fedrouter": {
            "tradeoff": 5.0,
            "allow": ["atlas-*", "indigo-nano"],
            "max_price": 90,
            "session": "s",
            "task": "t",
            "expected": "far",
            "off": False,
            "explain": True,
        },
    }
    for name in draw.sample(sorted(more), draw.randrange(len(more))):
        body[name] = more[name]
    return copy.deepcopy(body)


def score(draw: random.Random) -> dict[str, Any]:
    return {"decision_id": draw.choice((KNOWN, KNOWN, "f" * 32)), "score": draw.choice((0, 0.5, 1))}


def other_request(draw: random.Random) -> tuple[str, str, dict[str, Any]]:
    """A sound request to what is not chat: its method, path and body."""
    chat = conversation(draw)
    text, streamed = f"How far is it to star {draw.randrange(500)}?", {"stream": draw.random() < 0.5}
    common = {"model": chat["model"]} | streamed | ({"fedrouter": chat["fedrouter"]} if "fedrouter" in chat else {})
    parts = [{"role": "user", "content": [{"type": "input_text", "text": text}]}]
    bodies: list[tuple[str, str, dict[str, Any]]] = [
        ("POST", RESPONSES, common | {"input": draw.choice((text, parts)), "instructions": "Be brief."}),
        ("POST", RESPONSES, common | {"input": text, "previous_response_id": "resp_instant"}),
        ("POST", MESSAGES, common | {"messages": chat["messages"][1:2], "max_tokens": 100, "system": "Be brief."}),
        ("POST", COMPLETIONS, common | {"prompt": draw.choice((text, [text])), "max_tokens": 100}),
        ("POST", EMBEDDINGS, {"model": "atlas-max", "input": draw.choice((text, [text, text]))}),
        ("PUT", "/v1/tradeoff", {draw.choice(("dial", "quality", "tradeoff")): 0.5}),
        ("POST", f"{PAGE}session", {"key": "fr-not-a-key"}),
        ("POST", f"{PAGE}keys", {"name": "a", "daily_budget": 1.0, "rate_per_minute": 60, "expires": 2e9}),
        ("PUT", f"{PAGE}keys/{'f' * 12}", {"name": "a", "daily_budget": None}),
        ("PUT", f"{PAGE}dial", {"dial": 5.0}),
        ("POST", f"{PAGE}estimate", {"messages": chat["messages"][1:2]}),
        ("POST", f"{PAGE}chat", {"model": "auto", "messages": chat["messages"][1:2]}),
        ("POST", f"{PAGE}replay", {"decision_id": KNOWN, "bundle": "sha256:0"}),
        ("POST", f"{PAGE}feedback", score(draw)),
        ("POST", f"{PAGE}use", {"digest": "sha256:0"}),
    ]
    return copy.deepcopy(draw.choice(bodies))
