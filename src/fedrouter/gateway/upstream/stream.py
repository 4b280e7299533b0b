"""What a stream of events says about itself as it passes: its usage, its length, whether it came to its end."""

from __future__ import annotations

from typing import Any

import orjson

from fedrouter.gateway.access.pricing import Usage
from fedrouter.gateway.routing.prompt import Ask, length_of

LONGEST = 1 << 20
"""Bytes of a line that is held back until it is complete; a longer one passes as it comes."""


class Meter:
    """Fed with what the upstream sends, gives back what may be passed on: whole lines, every byte kept.

    A line is held back until it is complete, so that a stream that dies leaves no half event with the client.
    """

    def __init__(self, keep_text: bool) -> None:
        self._rest = b""
        self._usage: Any = None
        self._characters = 0
        self._text: list[str] | None = [] if keep_text else None
        self.finished = False
        """The model said that its answer is complete."""
        self.done = False
        """The stream said that nothing more comes."""

    def feed(self, chunk: bytes) -> bytes:
        data = self._rest + chunk if self._rest else chunk
        end = data.rfind(b"\n") + 1
        if not end and len(data) > LONGEST:
            end = len(data)
        ready, self._rest = data[:end], data[end:]
        for line in ready.split(b"\n"):
            if line.startswith(b"data:"):
                self._event(line[5:].strip())
        return ready

    def rest(self) -> bytes:
        """What is left when the stream has ended by itself."""
        if self._rest.startswith(b"data:"):
            self._event(self._rest[5:].strip())
        return self._rest

    @property
    def complete(self) -> bool:
        return self.done or self.finished

    @property
    def text(self) -> str:
        return "".join(self._text or [])

    def usage(self, ask: Ask) -> Usage:
        """As the upstream reported it, or estimated from what passed."""
        return Usage.of(self._usage) or Usage.guessed(ask, self._characters)

    def _event(self, data: bytes) -> None:
        if data == b"[DONE]":
            self.done = True
            return
        try:
            event = orjson.loads(data)
        except orjson.JSONDecodeError:
            return
        if not isinstance(event, dict):
            return
        if event.get("usage") is not None:
            self._usage = event["usage"]
        choices = event.get("choices")
        for choice in choices if isinstance(choices, list) else ():
            if not isinstance(choice, dict):
                continue
            self.finished = self.finished or choice.get("finish_reason") is not None
            self._said(choice.get("delta"))

    def _said(self, delta: Any) -> None:
        if not isinstance(delta, dict):
            return
        content = delta.get("content")
        if isinstance(content, str):
            self._characters += len(content)
            if self._text is not None:
                self._text.append(content)
        for name in ("tool_calls", "reasoning_content", "refusal"):
            if delta.get(name):
                self._characters += length_of(delta[name])


def answer_text(document: Any) -> str:
    """What a complete answer says, in its first choice."""
    try:
        content = document["choices"][0]["message"]["content"]
    except (KeyError, IndexError, TypeError):
        return ""
    return content if isinstance(content, str) else ""


def answer_length(document: Any) -> int:
    """Characters of all choices' messages, for an estimate of tokens."""
    choices = document.get("choices")
    return sum(
        length_of(choice.get("message", {}))
        for choice in (choices if isinstance(choices, list) else ())
        if isinstance(choice, dict)
    )
