"""Anthropic's Messages API."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedrouter.gateway.access.pricing import Usage
from fedrouter.gateway.apis.api import Api, Body, Progress, invalid
from fedrouter.gateway.apis.openai import PASSED
from fedrouter.gateway.routing.prompt import length_of

VERSION = "2023-06-01"
"""Of the API, for clients that name none."""


def _message(body: Body) -> Body:
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages or not all(isinstance(entry, dict) for entry in messages):
        raise invalid("messages", "a list of messages")
    system = [{"role": "system", "content": body["system"]}] if body.get("system") else []
    return {"messages": [*system, *messages], "tools": body.get("tools"), "max_tokens": body.get("max_tokens")}


def _answer(document: Body) -> tuple[str, int]:
    content = document.get("content")
    parts = [part for part in (content if isinstance(content, list) else ()) if isinstance(part, dict)]
    texts = [part["text"] for part in parts if isinstance(part.get("text"), str)]
    return "".join(texts), sum(
        length_of(part.get("text") or part.get("input") or part.get("thinking")) for part in parts
    )


def _event(event: Body) -> Progress:
    kind, delta = event.get("type"), event.get("delta")
    if kind == "message_stop":
        return Progress(finished=True, last=True)
    if kind == "message_start":
        message = event.get("message")
        return Progress(usage=message.get("usage") if isinstance(message, dict) else None)
    if kind == "message_delta":
        return Progress(usage=event.get("usage"))
    if kind != "content_block_delta" or not isinstance(delta, dict):
        return Progress()
    text = delta.get("text")
    if isinstance(text, str):
        return Progress(text)
    return Progress(length=sum(len(delta[n]) for n in ("partial_json", "thinking") if isinstance(delta.get(n), str)))


def _usage(usage: Any) -> Usage | None:
    """Input from and for the prompt cache is counted apart from the rest; all of it is input."""
    if not isinstance(usage, Mapping):
        return None
    fresh, read = usage.get("input_tokens"), usage.get("cache_read_input_tokens") or 0
    written = usage.get("cache_creation_input_tokens") or 0
    if not all(isinstance(part, int) for part in (fresh, read, written)):
        return None
    return Usage.of(
        {
            "prompt_tokens": fresh + read + written,  # type: ignore[operator]  # checked
            "completion_tokens": usage.get("output_tokens", 0),
            "prompt_tokens_details": {"cached_tokens": read},
        }
    )


MESSAGES = Api(
    name="messages",
    path="/messages",
    summary="A message (Anthropic's Messages API) by the chosen model.",
    as_chat=_message,
    required={"messages": {"type": "array", "minItems": 1, "items": {"type": "object"}}},
    streams=True,
    asks_for_usage=False,
    is_answer=lambda document: document.get("type") == "message",
    usage=_usage,
    answer=_answer,
    event=_event,
    key_header="x-api-key",
    passed_headers=PASSED | {"anthropic-version": VERSION, "anthropic-beta": None},
    error_event=b"\nevent: error\n",
)
