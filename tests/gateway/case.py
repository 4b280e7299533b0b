"""One request as a test sends it, down to its bytes, and the sound bodies that the bent ones are made of."""

from __future__ import annotations

import copy
import random
from dataclasses import dataclass, field
from typing import Any

KNOWN = "0" * 31 + "1"
"""A decision that the log has."""
CHAT, ROUTE, FEEDBACK = "/v1/chat/completions", "/v1/route", "/v1/feedback"
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

    def raw(self, key: str) -> bytes:
        """The bytes to send, with a key that opens the gateway."""
        draw = random.Random(self.seed)
        headers = [(b"host", b"gateway"), *self.headers]
        if self.with_key:
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
        "model": draw.choice(("auto", "auto", "atlas-max", "router-kmeans-10")),
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
