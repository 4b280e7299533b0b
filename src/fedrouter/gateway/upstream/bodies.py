"""Bodies to and from upstreams: the model's name set, answers unpacked, errors and usage read; all else kept."""

from __future__ import annotations

import re
import zlib
from collections.abc import Mapping
from typing import Any, Literal, Protocol

import orjson

from fedrouter.gateway.apis import CHAT, Api, Usage
from fedrouter.gateway.routing.request import Prompt
from fedrouter.gateway.upstream.http_client import Broken, Response

UNPACKED = 1 << 16
"""Most bytes that are unpacked at once, however well they were compressed."""
PACKED = frozenset({b"gzip", b"x-gzip", b"deflate"})
IDENTITY = frozenset({b"", b"identity"})


class Content(Protocol):
    """The body of a response, read in pieces as they come."""

    async def readany(self) -> bytes:
        """What has come; waits if that is nothing, and is empty at the end."""
        ...

    def at_eof(self) -> bool: ...


class UnknownEncoding(ValueError):
    """The body is compressed in a way that cannot be unpacked."""


def content_of(response: Response) -> Content:
    """The body of a response as the upstream meant it; :class:`UnknownEncoding` if that cannot be known."""
    encoding = response.header(b"content-encoding").strip().lower()
    if encoding in IDENTITY:
        return response
    if encoding not in PACKED:
        raise UnknownEncoding
    return Unpacked(response)


class Unpacked:
    """A gzip or deflate body; one that is broken or ends too early is :class:`Broken`, as any other."""

    def __init__(self, packed: Content) -> None:
        self._packed = packed
        self._inflate = _inflate()
        self._waits = False

    async def readany(self) -> bytes:
        while True:
            found = self._next(b"") if self._waits else b""
            if found:
                return found
            piece = await self._packed.readany()
            if not piece:
                if not self._inflate.eof:
                    raise Broken("the compressed body is not complete")
                return b""
            if found := self._next(piece):
                return found

    def at_eof(self) -> bool:
        return not self._waits and self._packed.at_eof()

    def _next(self, piece: bytes) -> bytes:
        """At most :data:`UNPACKED` bytes of what a piece holds; ``_waits`` says whether there may be more."""
        packed = self._inflate.unconsumed_tail + piece
        if self._inflate.eof:  # a gzip body may have several parts
            packed = self._inflate.unused_data + piece
            self._inflate = _inflate()
        try:
            found = self._inflate.decompress(packed, UNPACKED)
        except zlib.error:
            raise Broken("the body is not compressed as it says") from None
        self._waits = len(found) == UNPACKED or bool(self._inflate.unused_data)
        return found


def _inflate() -> zlib._Decompress:
    return zlib.decompressobj(wbits=zlib.MAX_WBITS | 32)  # gzip or zlib, whichever it is


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


_TOKEN = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[{}\[\]:,]', re.DOTALL)
_VALUE = re.compile(rb'\s*:\s*("[^"\\]*")')
_SPACE = b" \t\r\n"
_ASKING = b'{"include_usage":true}'
_MORE = (b"", b',"stream_options":' + _ASKING)


def members(raw: bytes) -> list[tuple[str, int, int, int]]:
    """The top-level members of a JSON object: name, offset of the name, offsets of the value's start and end.

    ``raw`` must be valid JSON. A duplicate name is listed twice.
    """
    found: list[tuple[str, int, int, int]] = []
    depth, name, name_at, value_at = 0, "", 0, -1
    for token in _TOKEN.finditer(raw):
        first = raw[token.start()]
        if first == 0x22:  # a string
            if depth == 1 and value_at < 0:
                name, name_at = orjson.loads(token[0]), token.start()
        elif first in b"{[":
            depth += 1
        elif first == 0x3A:
            if depth == 1:
                value_at = token.end()
        elif first in b"}]":
            depth -= 1
            if depth == 0 and value_at >= 0:
                found.append((name, name_at, *_trimmed(raw, value_at, token.start())))
        elif depth == 1:  # a comma between members
            found.append((name, name_at, *_trimmed(raw, value_at, token.start())))
            value_at = -1
    return found


def _only_model(raw: bytes) -> tuple[int, int] | None:
    """Offsets of the value of ``model`` in a body that has one, if its name occurs once and no other name matters.

    No text can contain these bytes, since its quotes would be escaped. With escaped letters a name could be spelled
    otherwise; then this says None.
    """
    at = raw.find(b'"model"')
    others = raw.find(b'"model"', at + 7) >= 0 or b'"fedrouter"' in raw or b'"stream_options"' in raw
    if at < 0 or others or b"\\u00" in raw:
        return None
    value = _VALUE.match(raw, at + 7)
    return None if value is None else value.span(1)


def _trimmed(raw: bytes, start: int, end: int) -> tuple[int, int]:
    while raw[start] in _SPACE:
        start += 1
    while raw[end - 1] in _SPACE:
        end -= 1
    return start, end


class SplicedBody:
    """A body split around its ``model``, without its ``fedrouter``; joined again for each model that is called.

    Every other byte is kept. No JSON library does this: parsing and writing again changes number formats, white space
    and duplicate keys.
    """

    def __init__(self, raw: bytes, has_model: bool = False) -> None:
        """``has_model``: the body is known to have a ``model``, so that most can be split without looking at all."""
        # None where the model's name goes; a pair where asking for the usage makes a difference: without, and with.
        self._pieces: list[memoryview | tuple[bytes, bytes] | None]
        whole = memoryview(raw)
        model = _only_model(raw) if has_model else None
        if model is not None:
            self._pieces = [whole[: model[0]], None, _MORE, whole[model[1] :]]
            return
        parts = members(raw)
        cuts: list[tuple[int, int, str]] = []
        for index, (name, name_at, start, end) in enumerate(parts):
            if name in ("model", "stream_options"):
                cuts.append((start, end, name))
            elif name == "fedrouter":
                if index + 1 < len(parts):  # with the comma after it
                    cuts.append((name_at, parts[index + 1][1], name))
                else:  # with the comma before it; the member before may have been cut too
                    before = max((e for n, _, _, e in parts[:index] if n != "fedrouter"), default=name_at)
                    cuts = [cut for cut in cuts if cut[2] != "fedrouter" or cut[1] <= before]
                    cuts.append((before, end, name))
        self._pieces = []
        at, has_options = 0, any(name == "stream_options" for *_, name in cuts)
        for start, end, name in cuts:
            self._pieces.append(whole[at:start])
            at = end
            if name == "model":
                self._pieces.append(None)
                if not has_options:
                    self._pieces.append(_MORE)
                    has_options = True
            elif name == "stream_options":
                self._pieces.append((raw[start:end], _asking(raw[start:end])))
        self._pieces.append(whole[at:])

    def to(self, model: str, with_usage: bool = False, extra: Mapping[str, Any] | None = None) -> bytes:
        """The body for an upstream, with this value of ``model``; ``with_usage`` asks for the usage of a stream.

        With ``extra`` fields it is written anew, and not every byte is kept.
        """
        name = orjson.dumps(model)
        chosen = [piece[with_usage] if isinstance(piece, tuple) else piece for piece in self._pieces]
        found = b"".join([name if piece is None else piece for piece in chosen])
        return orjson.dumps({**orjson.loads(found), **extra}) if extra else found


def _asking(options: bytes) -> bytes:
    """A value of ``stream_options`` that asks for the usage; one that no upstream would accept stays as it is."""
    found = orjson.loads(options)
    if found is None:
        return _ASKING
    try:
        return orjson.dumps(found | {"include_usage": True}) if isinstance(found, dict) else options
    except orjson.JSONEncodeError:  # nested deeper than can be written again
        return options


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
