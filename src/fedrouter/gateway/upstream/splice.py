"""A request's JSON changed in two places only, every other byte kept: key order, number formats, unknown fields."""

from __future__ import annotations

import re

import orjson

_TOKEN = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[{}\[\]:,]', re.DOTALL)
_SPACE = b" \t\r\n"


def members(raw: bytes) -> list[tuple[str, int, int, int]]:
    """The members of the object that ``raw`` is: name, where the name starts, where its value starts and ends.

    ``raw`` has been parsed before, so it is JSON; a name that is there twice is listed twice.
    """
    found: list[tuple[str, int, int, int]] = []
    depth, name, name_at, value_at = 0, "", 0, -1
    for token in _TOKEN.finditer(raw):
        mark = raw[token.start()]
        if mark == 0x22:  # a string
            if depth == 1 and value_at < 0:
                name, name_at = orjson.loads(token[0]), token.start()
        elif mark in b"{[":
            depth += 1
        elif mark == 0x3A:
            if depth == 1:
                value_at = token.end()
        elif mark in b"}]":
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


class Spliced:
    """The parts of a body around its ``model`` and without its ``fedrouter``; joined anew for each model asked."""

    def __init__(self, raw: bytes) -> None:
        parts = members(raw)
        whole = memoryview(raw)
        cuts: list[tuple[int, int, bool]] = []
        for place, (name, name_at, start, end) in enumerate(parts):
            if name == "model":
                cuts.append((start, end, True))
            elif name == "fedrouter":
                if place + 1 < len(parts):  # with the comma after it
                    cuts.append((name_at, parts[place + 1][1], False))
                else:  # with the comma before it; what stood before may have been cut too
                    before = max((e for n, _, _, e in parts[:place] if n != "fedrouter"), default=name_at)
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
        name = orjson.dumps(model)
        return b"".join([name if piece is None else piece for piece in self._pieces])
