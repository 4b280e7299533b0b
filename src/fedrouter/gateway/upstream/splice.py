"""Byte-exact body splicing: replace ``model`` and cut ``fedrouter`` out of a JSON body, keeping every other byte.

No JSON library does this: parsing and writing again changes number formats, white space and duplicate keys.
"""

from __future__ import annotations

import re

import orjson

_TOKEN = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[{}\[\]:,]', re.DOTALL)
_SPACE = b" \t\r\n"


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


def _trimmed(raw: bytes, start: int, end: int) -> tuple[int, int]:
    while raw[start] in _SPACE:
        start += 1
    while raw[end - 1] in _SPACE:
        end -= 1
    return start, end


class SplicedBody:
    """A body split around its ``model``, without its ``fedrouter``; joined again for each model that is called."""

    def __init__(self, raw: bytes) -> None:
        parts = members(raw)
        whole = memoryview(raw)
        cuts: list[tuple[int, int, bool]] = []
        for index, (name, name_at, start, end) in enumerate(parts):
            if name == "model":
                cuts.append((start, end, True))
            elif name == "fedrouter":
                if index + 1 < len(parts):  # with the comma after it
                    cuts.append((name_at, parts[index + 1][1], False))
                else:  # with the comma before it; the member before may have been cut too
                    before = max((e for n, _, _, e in parts[:index] if n != "fedrouter"), default=name_at)
                    cuts = [cut for cut in cuts if cut[2] or cut[1] <= before]
                    cuts.append((before, end, False))
        self._pieces: list[memoryview | None] = []  # None where the model's name goes
        at = 0
        for start, end, is_model in cuts:
            self._pieces.append(whole[at:start])
            at = end
            if is_model:
                self._pieces.append(None)
        self._pieces.append(whole[at:])

    def to(self, model: str) -> bytes:
        """The body for an upstream, with this value of ``model``."""
        name = orjson.dumps(model)
        return b"".join([name if piece is None else piece for piece in self._pieces])
