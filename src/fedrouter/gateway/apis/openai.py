"""OpenAI's APIs: chat completions, completions, embeddings and responses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedrouter.gateway.access.pricing import Usage
from fedrouter.gateway.apis.api import Api, Body, Progress, invalid
from fedrouter.gateway.routing.prompt import length_of, whole_number

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
