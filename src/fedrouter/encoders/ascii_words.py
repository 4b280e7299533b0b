"""Words of ASCII texts, found and looked up by array operations: dozens of words for the price of one.

Each word gets a 64-bit hash, a slice of one cumulative sum over the texts, and the hash its row in a table of words
seen before. Only words that are not there are cut out and divided one by one. The result is that of the plain way,
which :mod:`fedrouter.encoders.tokens` and :mod:`fedrouter.encoders.shape` go for every other text.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from fedrouter.encoders.shape import DIGIT, ENGLISH, PROGRAM, Counts, ascii_classes
from fedrouter.evaluations import Integers

MOST: Final = 4_096
"""Characters of the longest text."""
TOGETHER: Final = 4 * MOST
"""Characters of all texts that are read at once, with a space before and after each."""
SLOT_BITS: Final = 16
"""The table has two to this power rows of 32 bytes. A word may be in two of them, and replaces what the second has."""
WIDTH: Final = 14
"""Tokens of a word that has a row; the few with more are divided each time."""
IS_ENGLISH, IS_PROGRAM = 1, 2

_KINDS: Final = np.concatenate([ascii_classes(), np.zeros(128, np.uint8)])
_IS_SPACE: Final = np.array([chr(code).isspace() and code < 128 for code in range(256)])
_PADDING: Final = (0,) * WIDTH
_FIRST, _SECOND = np.uint64(64 - SLOT_BITS), np.uint64(64 - 2 * SLOT_BITS)
_MASK: Final = np.uint64((1 << SLOT_BITS) - 1)
_ZERO: Final = np.zeros(1, np.intp)
_COLUMNS: Final = np.arange(WIDTH, dtype=np.uint16)


class AsciiWords:
    """Counts and tokens of ASCII texts; ``tokens_of`` divides a single word."""

    def __init__(self, tokens_of: Callable[[str], tuple[int, ...]]) -> None:
        self._tokens_of = tokens_of
        # A word's hash is a polynomial of its characters' values at a point, both random: nobody can aim at a row.
        self._values = np.frombuffer(secrets.token_bytes(256 * 8), np.uint64) | np.uint64(1)
        point = secrets.randbits(64) | 1
        self._powers, self._inverses = (
            np.cumprod(np.concatenate([[np.uint64(1)], np.full(TOGETHER, base, np.uint64)]), dtype=np.uint64)
            for base in (point, pow(point, -1, 1 << 64))
        )
        self._hashes = np.zeros(1 << SLOT_BITS, np.uint64)
        self._rows = np.zeros((1 << SLOT_BITS, 2 + WIDTH), np.uint16)
        """Number of tokens, flags, tokens."""
        self._lock = threading.Lock()

    def read(self, texts: Sequence[str], lengths: Sequence[int]) -> Iterator[tuple[Counts, Integers]]:
        """What is counted in each text, and its tokens.

        Texts of at most `MOST` characters, the ends of ones of these ``lengths``; at most `TOGETHER` in all.
        """
        joined = " ".join(["", *texts, ""])
        codes = np.frombuffer(joined.encode(), np.uint8)
        kinds, space = _KINDS.take(codes), _IS_SPACE.take(codes)
        edges = np.flatnonzero(space[1:] != space[:-1])  # before the first and at the last character of each word
        starts, ends = edges[::2] + 1, edges[1::2] + 1
        sums = np.cumsum(self._values.take(codes) * self._powers[: len(codes)], dtype=np.uint64).take(edges)
        hashes = (sums[1::2] - sums[::2]) * self._inverses.take(starts)
        rows, long = self._found(joined, hashes, starts, ends)
        tokens, widths = rows[:, 2:][rows[:, :1] > _COLUMNS].astype(np.intp), rows[:, 0]
        numbers, characters, flags = kinds.take(starts) == DIGIT, ends - starts, rows[:, 1]
        begin = np.cumsum([1, *(len(text) + 1 for text in texts)])
        first = np.searchsorted(starts, begin)
        token = np.concatenate([_ZERO, np.cumsum(widths, dtype=np.intp)]).take(first).tolist()
        words = first.tolist()
        for index, (text, length, at) in enumerate(zip(texts, lengths, begin.tolist(), strict=False)):
            own = slice(words[index], words[index + 1])
            found = tokens[token[index] : token[index + 1]]
            if long:
                inside = {at - own.start: each for at, each in long.items() if own.start <= at < own.stop}
                found = _with_long(found, widths[own], inside)
            counts = Counts(
                text=text,
                length=length,
                count=own.stop - own.start,
                distinct=_distinct(hashes[own]),
                longest=int(characters[own].max(initial=0)),
                numbers=int(np.count_nonzero(numbers[own])),
                program=int(np.count_nonzero(flags[own] & IS_PROGRAM)),
                english=int(np.count_nonzero(flags[own] & IS_ENGLISH)),
                classes=np.bincount(kinds[at : at + len(text)], minlength=12).tolist(),
            )
            yield counts, found

    def _found(
        self, joined: str, hashes: npt.NDArray[np.uint64], starts: Integers, ends: Integers
    ) -> tuple[npt.NDArray[np.uint16], dict[int, tuple[int, ...]]]:
        """The rows of words ``(n, 2 + WIDTH)``, and by their index the tokens of those that have too many for a row."""
        slots, long = (hashes >> _FIRST).astype(np.intp), dict[int, tuple[int, ...]]()
        with self._lock:  # between the check of a row and its use no other thread may replace it
            rows = self._rows.take(slots, axis=0)
            others = np.flatnonzero(self._hashes.take(slots) != hashes)
            if len(others):
                second = (hashes.take(others) >> _SECOND & _MASK).astype(np.intp)
                rows[others] = self._rows.take(second, axis=0)
                missing = np.flatnonzero(self._hashes.take(second) != hashes.take(others))
                for index, slot in zip(others.take(missing).tolist(), second.take(missing).tolist(), strict=True):
                    word = joined[starts[index] : ends[index]]
                    tokens = self._tokens_of(word)
                    flags = (word in ENGLISH) * IS_ENGLISH + (word in PROGRAM) * IS_PROGRAM
                    if len(tokens) > WIDTH:
                        long[index] = tokens
                        rows[index, :2] = 0, flags
                        continue
                    rows[index] = (len(tokens), flags, *tokens, *_PADDING[len(tokens) :])
                    chosen = slot if self._hashes[slots[index]] else slots[index]
                    self._rows[chosen], self._hashes[chosen] = rows[index], hashes[index]
        return rows, long


def _distinct(hashes: npt.NDArray[np.uint64]) -> int:
    found = np.sort(hashes)
    return int(np.count_nonzero(found[1:] != found[:-1])) + (len(found) > 0)


def _with_long(tokens: Integers, lengths: npt.NDArray[np.uint16], long: dict[int, tuple[int, ...]]) -> Integers:
    """The tokens with those of long words, which have a length of 0 so far, at their places."""
    if not long:
        return tokens
    parts, at, before = [], 0, np.cumsum(lengths)
    for index, found in long.items():
        parts += [tokens[at : before[index]], np.array(found, np.intp)]
        at = int(before[index])
    return np.concatenate([*parts, tokens[at:]])
