"""Usage of a streamed answer, read from its server-sent events as they pass: tokens, length, completeness."""

from __future__ import annotations

from typing import Any

import orjson

from fedrouter.gateway.access.pricing import Usage
from fedrouter.gateway.routing.prompt import Prompt, length_of

MAX_LINE = 1 << 20
"""Bytes of a line that is held back until it is complete; a longer line passes in pieces."""


MAX_TEXT = 1 << 18
"""Characters of an answer up to which its text is kept for judges; a longer answer is not judged."""


class UsageTracker:
    """Takes chunks from the upstream and returns the bytes to pass on: whole lines, every byte unchanged.

    A line is held back until it is complete, so that a stream that breaks off leaves no partial event with the client.
    With ``hide_usage``, the event that has only the usage is left out, because the client did not ask for it.
    """

    def __init__(self, keep_text: bool, hide_usage: bool = False) -> None:
        self._rest = b""
        self._hide_usage, self._hidden = hide_usage, False
        self._usage: Any = None
        self._characters = 0
        self._text: list[str] | None = [] if keep_text else None
        self.finished = False
        """A choice has a ``finish_reason``."""
        self.done = False
        """The event ``[DONE]`` was received."""

    def feed(self, chunk: bytes) -> bytes:
        """Process a chunk; returns the complete lines that may be sent now."""
        data = self._rest + chunk if self._rest else chunk
        end = data.rfind(b"\n") + 1
        if not end and len(data) > MAX_LINE:
            end = len(data)
        ready, self._rest = data[:end], data[end:]
        if self._hide_usage:
            return b"".join([line for line in ready.splitlines(keepends=True) if self._passes(line)])
        for line in ready.split(b"\n"):
            if line.startswith(b"data:"):
                self._event(line[5:].strip())
        return ready

    def _passes(self, line: bytes) -> bool:
        """Process a line; False if it belongs to the event that is hidden: its data, or the blank line after it."""
        if line.startswith(b"data:"):
            self._hidden = self._event(line[5:].strip())
            return not self._hidden
        hidden, self._hidden = self._hidden, False
        return not (hidden and not line.strip())

    def rest(self) -> bytes:
        """The incomplete last line, once the stream has ended."""
        if self._rest.startswith(b"data:") and self._event(self._rest[5:].strip()) and self._hide_usage:
            return b""
        return self._rest

    @property
    def complete(self) -> bool:
        return self.done or self.finished

    @property
    def text(self) -> str | None:
        """The whole text; None if it is not kept."""
        return None if self._text is None else "".join(self._text)

    def usage(self, prompt: Prompt) -> Usage:
        """Tokens as reported by the upstream, or estimated from the length of the answer."""
        return Usage.of(self._usage) or Usage.estimate(prompt, self._characters)

    def _event(self, data: bytes) -> bool:
        """Process an event; returns whether it has the usage and nothing else."""
        if data == b"[DONE]":
            self.done = True
            return False
        try:
            event = orjson.loads(data)
        except orjson.JSONDecodeError:
            return False
        if not isinstance(event, dict):
            return False
        if event.get("usage") is not None:
            self._usage = event["usage"]
        choices = event.get("choices")
        for choice in choices if isinstance(choices, list) else ():
            if not isinstance(choice, dict):
                continue
            self.finished = self.finished or choice.get("finish_reason") is not None
            self._delta(choice.get("delta"))
        return isinstance(event.get("usage"), dict) and choices == []

    def _delta(self, delta: Any) -> None:
        if not isinstance(delta, dict):
            return
        content = delta.get("content")
        if isinstance(content, str):
            self._characters += len(content)
            if self._text is not None:
                self._text.append(content)
                if self._characters > MAX_TEXT:
                    self._text = None
        for name in ("tool_calls", "reasoning_content", "refusal"):
            if delta.get(name):
                self._characters += length_of(delta[name])


def answer_text(document: Any) -> str:
    """The text of a complete answer's first choice."""
    try:
        content = document["choices"][0]["message"]["content"]
    except (KeyError, IndexError, TypeError):
        return ""
    return content if isinstance(content, str) else ""


def answer_length(document: Any) -> int:
    """Number of characters in all choices of an answer, to estimate its tokens."""
    choices = document.get("choices")
    return sum(
        length_of(choice.get("message", {}))
        for choice in (choices if isinstance(choices, list) else ())
        if isinstance(choice, dict)
    )
