"""Refusals that concern one model and not the request: another model may well answer it."""

from __future__ import annotations

import re
from typing import Any, Literal

import orjson

REFUSING = frozenset({400, 413, 422})
"""Statuses with which an upstream rejects a request."""
Refusal = Literal["context", "parameter"]
"""The request is longer than the model's context, or has a parameter that the model does not take."""
CONTEXT_CODES = frozenset({"context_length_exceeded", "context_window_exceeded", "string_above_max_length"})
PARAMETER_CODES = frozenset({"unsupported_parameter", "unsupported_value", "unknown_parameter", "unsupported_feature"})
# Many servers that speak OpenAI's API send no code, only words.
_CONTEXT = re.compile(r"context (length|window|size)|(prompt|input|request) is too long|too many (input )?tokens", re.I)
_PARAMETER = re.compile(
    r"(unsupported|unrecognized|unknown|unexpected) (request )?(param|arg|value|keyword)"
    r"|(does not|doesn't|not) support|is not supported|extra inputs are not permitted",
    re.I,
)
MARK = b"\xef\xbb\xbf"
"""With which a stream may begin: it says that what follows is UTF-8, and nothing else."""
MAX_READ = 1 << 16
"""Bytes of an error that are looked at."""


def refusal_of(body: bytes) -> Refusal | None:
    """Why this model refuses the request, if that concerns the model; None for any other error."""
    if len(body) > MAX_READ:
        return None
    try:
        return refusal_in(orjson.loads(body))
    except orjson.JSONDecodeError:
        return None


def refusal_in(document: Any) -> Refusal | None:
    """The same for an error that was read."""
    error = document.get("error", document) if isinstance(document, dict) else None
    if isinstance(error, str):
        error = {"message": error}
    if not isinstance(error, dict):
        return None
    codes = {str(error.get("code")), str(error.get("type"))}
    message = str(error.get("message", ""))[:4096]
    if codes & CONTEXT_CODES or _CONTEXT.search(message):
        return "context"
    if codes & PARAMETER_CODES or _PARAMETER.search(message):
        return "parameter"
    return None


def first_data(begun: bytes) -> bytes | None:
    """The data of a stream's first event; None while it is not complete."""
    for line in begun.removeprefix(MARK).splitlines(keepends=True):
        if line.startswith(b"data:") and line.endswith((b"\n", b"\r")):
            return line[5:].strip()
    return None


def error_in(data: bytes | None) -> Any:
    """The event, if it is an error and nothing else; otherwise None."""
    if data is None or b'"error"' not in data:
        return None
    try:
        event = orjson.loads(data)
    except orjson.JSONDecodeError:
        return None
    return event if isinstance(event, dict) and event.get("error") and not event.get("choices") else None
