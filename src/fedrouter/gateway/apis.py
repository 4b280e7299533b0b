"""The APIs that clients speak: each as far as routing reads it, and what an answer costs. All else passes unread."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from fedrouter.gateway.config import Upstream
from fedrouter.gateway.http import HttpError
from fedrouter.gateway.routing.request import CHARACTERS_PER_TOKEN, Prompt, length_of, whole_number
from fedrouter.store.records import MOST_TOKENS

RESERVED_TOKENS = 1000
"""Output tokens to reserve in a budget for a request that sets no `max_tokens`."""
DEFAULT_OUTPUT = 500
"""Expected tokens of an answer without a prediction or a limit."""


@dataclass(frozen=True)
class Usage:
    """Tokens of one request; ``cached`` input tokens were in the upstream's prompt cache.

    ``partial``: the answer broke off, and the upstream may have charged for more than it sent.
    """

    input_tokens: int
    output_tokens: int
    cached: int = 0
    estimated: bool = False
    partial: bool = False

    @classmethod
    def of(cls, usage: Any) -> Usage | None:
        """The usage that an upstream reported; None if it is not in OpenAI's format."""
        if not isinstance(usage, Mapping):
            return None
        prompt: Any = usage.get("prompt_tokens")
        completion: Any = usage.get("completion_tokens", 0)
        if not _count(prompt) or not _count(completion):
            return None
        total: Any = usage.get("total_tokens")
        if _count(total):  # some upstreams leave reasoning tokens out of the completion's, but not out of the total
            completion = max(completion, total - prompt)
        details = usage.get("prompt_tokens_details")
        cached: Any = details.get("cached_tokens") if isinstance(details, Mapping) else 0
        return cls(prompt, completion, min(cached, prompt) if _count(cached) else 0)

    @classmethod
    def estimate(cls, prompt: Prompt, characters: int) -> Usage:
        """Usage estimated from the lengths of prompt and answer, for an upstream that reports none."""
        return cls(prompt.input_tokens, math.ceil(characters / CHARACTERS_PER_TOKEN), estimated=True)


def _count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MOST_TOKENS


def cost_of(usage: Usage, model: Upstream) -> float:
    """Cost in US dollars."""
    cached_price = model.input_price if model.cached_input_price is None else model.cached_input_price
    fresh = usage.input_tokens - usage.cached
    return (fresh * model.input_price + usage.cached * cached_price + usage.output_tokens * model.output_price) / 1e6


def cached_discount(model: Upstream, tokens: int) -> float:
    """US dollars that input tokens cost less while they are in the model's prompt cache."""
    cached_price = model.input_price if model.cached_input_price is None else model.cached_input_price
    return max(0.0, model.input_price - cached_price) * tokens / 1e6


def cost_to_reserve(model: Upstream, prompt: Prompt, predicted: float | None, default_output: int) -> float:
    """US dollars that a request may cost: at its own limit of output tokens, for each answer that it asks for.

    Without a limit, ``default_output`` tokens or the router's estimate, whichever is more.
    """
    output = (prompt.max_output or default_output) * prompt.choices
    cost = (prompt.input_tokens * model.input_price + output * model.output_price) / 1e6
    if prompt.max_output is not None or predicted is None or math.isnan(predicted):
        return cost
    return max(cost, predicted)


def expected_cost(model: Upstream, prompt: Prompt, predicted: float | None) -> float:
    """US dollars that a request is expected to cost: the router's estimate, or one from the request's length."""
    input_cost = prompt.input_tokens * model.input_price
    if predicted is None or math.isnan(predicted):
        output = min(DEFAULT_OUTPUT, prompt.max_output or DEFAULT_OUTPUT)
        return (input_cost + output * model.output_price) / 1e6
    return max(predicted, input_cost / 1e6)


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


PASSED = dict.fromkeys(("traceparent", "tracestate", "idempotency-key", "x-request-id", "x-client-request-id"))
"""Headers that every API passes on: of a distributed trace, and ids by which a request is known elsewhere."""
TEXTS: Mapping[str, Any] = {"type": ["string", "array"]}
_FINAL = ("response.completed", "response.incomplete", "response.failed")


def _chat(body: Body) -> Body:
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages or not all(isinstance(entry, dict) for entry in messages):
        raise invalid("messages", "a list of messages")
    return body


def _chat_answer(document: Body) -> tuple[str, int]:
    choices = [choice for choice in _list(document.get("choices")) if isinstance(choice, dict)]
    message = choices[0].get("message") if choices else None
    content = message.get("content") if isinstance(message, dict) else None
    length = sum(length_of(choice.get("message", {})) for choice in choices)
    return (content if isinstance(content, str) else ""), length


def _chat_event(event: Body) -> Progress:
    text, length, finished = "", 0, False
    choices = event.get("choices")
    for choice in _list(choices):
        if not isinstance(choice, dict):
            continue
        finished = finished or choice.get("finish_reason") is not None
        delta = choice.get("delta")
        if not isinstance(delta, dict):
            continue
        content = delta.get("content")
        text += content if isinstance(content, str) else ""
        length += sum(length_of(delta[n]) for n in ("tool_calls", "reasoning_content", "refusal") if delta.get(n))
    only = isinstance(event.get("usage"), dict) and choices == []
    return Progress(text, length, event.get("usage"), finished, only)


def _prompt(body: Body) -> Body:
    """A completion's prompt: a text, tokens, or a list of either, each of which gets ``n`` answers."""
    prompts = body.get("prompt")
    each = len(prompts) if isinstance(prompts, list) and not isinstance(next(iter(prompts), None), int) else 1
    answers = max(whole_number(body.get("n")) or 1, whole_number(body.get("best_of")) or 1)
    messages = [{"role": "user", "content": _joined("prompt", prompts)}]
    return dict(body) | {"messages": messages, "n": answers * each}


def _input(body: Body) -> Body:
    return dict(body) | {"messages": [{"role": "user", "content": _joined("input", body.get("input"))}]}


def _joined(field: str, value: Any) -> str:
    if isinstance(value, str) and value:
        return value
    entries = _list(value)
    if not entries:
        raise invalid(field, "a text or a list of texts")
    # Tokens instead of texts have a length but no words; four characters stand for one.
    return "\n".join(entry if isinstance(entry, str) else "    " * max(1, len(_list(entry))) for entry in entries)


def _completion_answer(document: Body) -> tuple[str, int]:
    texts = [choice.get("text") for choice in _list(document.get("choices")) if isinstance(choice, dict)]
    found = [text for text in texts if isinstance(text, str)]
    return (found[0] if found else ""), sum(map(len, found))


def _completion_event(event: Body) -> Progress:
    choices = [choice for choice in _list(event.get("choices")) if isinstance(choice, dict)]
    text = "".join(choice["text"] for choice in choices if isinstance(choice.get("text"), str))
    finished = any(choice.get("finish_reason") is not None for choice in choices)
    only = isinstance(event.get("usage"), dict) and event.get("choices") == []
    return Progress(text, 0, event.get("usage"), finished, only)


def _response(body: Body) -> Body:
    """A request for a response: its input is a text or a list of items, some of which are messages."""
    given = body.get("input")
    if isinstance(given, str):
        given = [{"role": "user", "content": given}]
    if not isinstance(given, list) or not given or not all(isinstance(item, dict) for item in given):
        raise invalid("input", "a text or a list of items")
    chat = {"messages": [*_instructions(body), *given], "tools": body.get("tools")}
    text = body.get("text")
    if isinstance(text, dict):
        chat["response_format"] = text.get("format")
    return chat | {"max_tokens": body.get("max_output_tokens")}


def _instructions(body: Body) -> list[dict[str, Any]]:
    instructions = body.get("instructions")
    return [{"role": "system", "content": instructions}] if isinstance(instructions, str) else []


def _response_answer(document: Body) -> tuple[str, int]:
    output = [item for item in _list(document.get("output")) if isinstance(item, dict)]
    parts = [part for item in output for part in _list(item.get("content")) if isinstance(part, dict)]
    texts = [part["text"] for part in parts if isinstance(part.get("text"), str)]
    calls = sum(length_of(item.get("arguments")) for item in output if item.get("arguments"))
    return "".join(texts), sum(map(len, texts)) + calls


def _response_event(event: Body) -> Progress:
    kind, delta = event.get("type"), event.get("delta")
    if kind in _FINAL:
        response = event.get("response")
        usage = response.get("usage") if isinstance(response, dict) else None
        return Progress(usage=usage, finished=True, last=True)
    if not isinstance(delta, str):
        return Progress()
    return Progress(delta) if kind == "response.output_text.delta" else Progress(length=len(delta))


def _response_usage(usage: Any) -> Usage | None:
    if not isinstance(usage, Mapping):
        return None
    names = {"prompt_tokens": "input_tokens", "completion_tokens": "output_tokens"}
    names |= {"prompt_tokens_details": "input_tokens_details", "total_tokens": "total_tokens"}
    return Usage.of({ours: usage[theirs] for ours, theirs in names.items() if theirs in usage})


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


CHAT = Api(
    name="chat",
    path="/chat/completions",
    summary="A chat completion by the chosen model.",
    as_chat=_chat,
    required={"messages": {"type": "array", "minItems": 1, "items": {"type": "object"}}},
    streams=True,
    asks_for_usage=True,
    is_answer=lambda document: "choices" in document,
    usage=Usage.of,
    answer=_chat_answer,
    event=_chat_event,
    key_header="authorization",
    passed_headers=PASSED,
    error_event=b"\n",
)
COMPLETIONS = Api(
    name="completions",
    path="/completions",
    summary="A completion of a text by the chosen model.",
    as_chat=_prompt,
    required={"prompt": TEXTS},
    streams=True,
    asks_for_usage=True,
    is_answer=lambda document: "choices" in document,
    usage=Usage.of,
    answer=_completion_answer,
    event=_completion_event,
    key_header="authorization",
    passed_headers=PASSED,
    error_event=b"\n",
)
EMBEDDINGS = Api(
    name="embeddings",
    path="/embeddings",
    summary="Embeddings by a named model.",
    as_chat=_input,
    required={"input": TEXTS},
    streams=False,
    asks_for_usage=False,
    is_answer=lambda document: "data" in document,
    usage=Usage.of,
    answer=lambda document: ("", 0),
    event=lambda event: Progress(),
    key_header="authorization",
    passed_headers=PASSED,
    error_event=b"\n",
    chosen_freely=False,
)
RESPONSES = Api(
    name="responses",
    path="/responses",
    summary="A response (OpenAI's Responses API) by the chosen model.",
    as_chat=_response,
    required={"input": TEXTS},
    streams=True,
    asks_for_usage=False,
    is_answer=lambda document: "output" in document,
    usage=_response_usage,
    answer=_response_answer,
    event=_response_event,
    key_header="authorization",
    passed_headers=PASSED | {"openai-beta": None},
    error_event=b"\nevent: error\n",
)


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


APIS: Mapping[str, Api] = {api.name: api for api in (CHAT, COMPLETIONS, EMBEDDINGS, RESPONSES, MESSAGES)}
