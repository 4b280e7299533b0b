"""The record of an API: how its requests, answers and events are read. Everything else passes through unread."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from fedrouter.gateway.access.pricing import Usage
from fedrouter.gateway.http import HttpError

Body = Mapping[str, Any]


@dataclass(frozen=True)
class Progress:
    """What one event of a stream says."""

    text: str = ""
    """Text of the answer that the event adds."""
    length: int = 0
    """Characters of the answer that the event adds besides the text: tool calls, reasoning."""
    usage: Any = None
    """Tokens so far, to be merged over what earlier events said."""
    finished: bool = False
    """Whether the answer is complete with this event."""
    only_usage: bool = False
    """Whether the event has the usage and nothing else, which a client that did not ask must not see."""
    last: bool = False
    """Whether no further event comes: a client may stop listening here."""


@dataclass(frozen=True)
class Api:
    """One API. All fields are required, so that none can be forgotten."""

    name: str
    """How configs call it, in `params.api`."""
    path: str
    """Below `/v1` here, and below an upstream's `api_base`."""
    summary: str
    as_chat: Callable[[Body], Body]
    """A request as a chat body, for reading the prompt and what it needs; :class:`HttpError` if it is not one."""
    required: Mapping[str, Mapping[str, Any]]
    """JSON Schemas of the fields that a request must have besides `model`."""
    streams: bool
    asks_for_usage: bool
    """Whether a stream reports its usage only if `stream_options` asks for it."""
    is_answer: Callable[[Body], bool]
    """Whether a JSON document with status 200 is an answer of this API."""
    usage: Callable[[Any], Usage | None]
    """Tokens, from what the answer has under `usage`; None if it is not in this API's format."""
    answer: Callable[[Body], tuple[str, int]]
    """The text of an answer, and the number of all its characters."""
    event: Callable[[Body], Progress]
    key_header: str
    """Header for the upstream's key, unless the config names one."""
    passed_headers: Mapping[str, str | None]
    """Headers of the client that an upstream gets, with their defaults."""
    error_event: bytes
    """What precedes the data of an error in a stream."""
    chosen_freely: bool = True
    """Whether any model may answer; otherwise a request names its model, or only one model speaks the API."""


def invalid(field: str, expected: str) -> HttpError:
    """The error for a field of a request."""
    return HttpError(400, f"{field}: expected {expected}.", "invalid_value", param=field)
