"""Byte-exact body splicing: a JSON body with another ``model``, without ``fedrouter``, and every other byte kept.

A streamed request can be made to ask for its usage.

No JSON library does this: parsing and writing again changes number formats, white space and duplicate keys.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import orjson

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
    """A body split around its ``model``, without its ``fedrouter``; joined again for each model that is called."""

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
