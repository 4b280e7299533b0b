"""Usage of a streamed answer, read from its server-sent events as they pass: tokens, length, completeness."""

from __future__ import annotations

from typing import Any

import orjson

from fedrouter.gateway.access.pricing import Usage
from fedrouter.gateway.apis.api import Api
from fedrouter.gateway.apis.openai import CHAT
from fedrouter.gateway.routing.prompt import Prompt
from fedrouter.gateway.upstream.refusals import MARK

MAX_LINE = 1 << 20
"""Bytes of a line that is held back until it is complete; a longer line passes in pieces."""


MAX_TEXT = 1 << 18
"""Characters of an answer up to which its text is kept for judges; a longer answer is not judged."""


class UsageTracker:
    """Takes chunks from the upstream and returns the bytes to pass on: whole lines, every byte unchanged.

    A line is held back until it is complete, so that a stream that breaks off leaves no partial event with the client.
    With ``hide_usage``, the event that has only the usage is left out, because the client did not ask for it.
    """

    def __init__(self, keep_text: bool, hide_usage: bool = False, api: Api = CHAT) -> None:
        self._rest, self._api = b"", api
        self._begun = False
        self._hide_usage, self._hidden = hide_usage, False
        self._usage: Any = None
        self._characters = 0
        self._text: list[str] | None = [] if keep_text else None
        self.failed = False
        """The upstream said that it failed, in the middle of its answer."""
        self.finished = False
        """The answer is complete: a choice has a ``finish_reason``, or the API's last event came."""
        self.answer_id: Any = None
        """The id that the answer itself has; later requests and feedback may refer to it."""
        self.done = False
        """The last event was received: ``[DONE]``, or the one with which the API ends its streams."""

    def feed(self, chunk: bytes) -> bytes:
        """Process a chunk; returns the complete lines that may be sent now."""
        data = self._rest + chunk if self._rest else chunk
        end = max(data.rfind(b"\n"), data.rfind(b"\r")) + 1
        if not end and len(data) > MAX_LINE:
            end = len(data)
        ready, self._rest = data[:end], data[end:]
        mark = b""
        if ready and not self._begun:
            self._begun, mark = True, MARK if ready.startswith(MARK) else b""
        lines = ready[len(mark) :].splitlines(keepends=self._hide_usage)
        if self._hide_usage:
            return mark + b"".join([line for line in lines if self._passes(line)])
        for line in lines:
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
        return self._api.usage(self._usage) or Usage.estimate(prompt, self._characters)

    def least_usage(self, prompt: Prompt) -> Usage:
        """Tokens of an answer that broke off: what was reported so far, or estimated if that is more."""
        reported, estimated = self.usage(prompt), Usage.estimate(prompt, self._characters)
        return reported if reported.output_tokens >= estimated.output_tokens else estimated

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
        if self.answer_id is None:
            self.answer_id = next((part["id"] for part in _named(event) if "id" in part), None)
        kind = event.get("type")
        self.failed = self.failed or bool(event.get("error")) or kind in ("error", "response.failed")
        found = self._api.event(event)
        if isinstance(found.usage, dict):  # Anthropic's comes in two parts
            self._usage = (self._usage or {}) | found.usage
        self.finished = self.finished or found.finished
        self.done = self.done or found.last
        self._characters += len(found.text) + found.length
        if self._text is not None and found.text:
            self._text.append(found.text)
            if self._characters > MAX_TEXT:
                self._text = None
        return found.only_usage


def _named(event: dict[str, Any]) -> list[dict[str, Any]]:
    """What may have the answer's id: the answer that an event begins, or the event."""
    inner = (event.get(name) for name in ("response", "message"))
    return [*(part for part in inner if isinstance(part, dict)), event]
