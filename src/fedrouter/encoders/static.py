"""The encoder ``static``: averaged token vectors and statistics of the text's shape; numpy only, no neural network.

The vectors are WordLlama's (MIT; NOTICE beside the table), trained so that the mean over a text's tokens compares well
with that of another text. The statistics (:mod:`fedrouter.encoders.shape`) are further dimensions, with constants that
belong to the encoder: an embedding depends on its text alone.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from itertools import chain, pairwise
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from fedrouter.encoders.encoder import Watch
from fedrouter.encoders.identity import STATIC, EncoderIdentity
from fedrouter.encoders.shape import (
    DIGIT,
    ENGLISH,
    PROGRAM,
    READ,
    STATISTICS,
    Counts,
    ascii_classes,
    standardized,
    statistics_of,
)
from fedrouter.encoders.weights import STATIC_FILES, STATIC_WEIGHTS, verify_files
from fedrouter.evaluations import Embeddings, Integers

LONGEST: Final = 24
"""A longer word is divided into parts of this many characters, so that no word takes more than a few microseconds."""
REMEMBERED: Final = 50_000
"""Words whose tokens are kept in memory."""
START: Final = "▁"
"""The sign of a word's start in the vocabulary."""
NO_PIECE: Final = 1 << 32
"""Above the number of any piece."""


class _Remembered(dict[str, tuple[int, ...]]):
    """The tokens of words, divided when first asked for; a plain look-up afterwards, which no other cache matches."""

    def __init__(self, divided: Callable[[str], tuple[int, ...]]) -> None:
        super().__init__()
        self._divided = divided

    def __missing__(self, word: str) -> tuple[int, ...]:
        found = self._divided(word)
        if len(word) < LONGEST:  # a longer one is hardly ever a word, and may be large
            if len(self) >= REMEMBERED:
                self.clear()
            self[word] = found
        return found


class Tokenizer:
    """Tokens of a vocabulary by byte-pair encoding; a character that is not in it becomes its bytes.

    The pieces are in order of their frequency: the first that two neighbors form together is merged first. A text's
    words repeat, so a word is divided once, then remembered.
    """

    def __init__(self, pieces: Sequence[str], bytes_at: int) -> None:
        """
        Parameters
        ----------
        pieces : the vocabulary; a token's number is its index
        bytes_at : index of the token of byte 0, which those of the other 255 follow
        """
        self._numbers = {piece: number for number, piece in enumerate(pieces) if number >= bytes_at + 256}
        self._bytes_at = bytes_at
        self._remembered = _Remembered(self._divided)

    def tokens(self, text: str) -> list[int]:
        """The tokens of a text; space counts only as the end of a word."""
        return list(chain.from_iterable(map(self._remembered.__getitem__, text.split())))

    def of_word(self, word: str) -> tuple[int, ...]:
        """The tokens of a word."""
        return self._remembered[word]

    def _divided(self, word: str) -> tuple[int, ...]:
        """The tokens of a word, a long one part by part."""
        word = START + word
        if len(word) <= LONGEST:
            return tuple(self._merged(word))
        parts = (word[start : start + LONGEST] for start in range(0, len(word), LONGEST))
        return tuple(token for part in parts for token in self._merged(part))

    def _merged(self, word: str) -> list[int]:
        """Merge the neighbors that form the most frequent piece, until no two form one."""
        parts, number = list(word), self._numbers.get
        pairs = [number(left + right, NO_PIECE) for left, right in pairwise(parts)]
        while pairs and (first := min(pairs)) != NO_PIECE:
            at = pairs.index(first)
            parts[at] += parts.pop(at + 1)
            del pairs[at]
            if at:
                pairs[at - 1] = number(parts[at - 1] + parts[at], NO_PIECE)
            if at < len(pairs):
                pairs[at] = number(parts[at] + parts[at + 1], NO_PIECE)
        try:
            return [self._numbers[part] for part in parts]
        except KeyError:
            return [token for part in parts for token in self._token(part)]

    def _token(self, part: str) -> list[int]:
        number = self._numbers.get(part)
        return [number] if number is not None else [self._bytes_at + byte for byte in part.encode()]


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
    """Counts and tokens of ASCII texts by array operations: dozens of words for the price of one.

    Each word gets a 64-bit hash, a slice of one cumulative sum over the texts, and the hash its row in a table of words
    seen before. Only words that are not there are cut out and divided one by one, by ``tokens_of``. The result is that
    of the plain way, which every other text goes.
    """

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


FOLDER: Final = Path(__file__).parent / "table"
VECTORS: Final = "vectors.safetensors"
"""``vectors (tokens, d) int8``, ``scales (tokens,) float16``, and the ``pieces`` of the vocabulary, one a line."""
SHAPE: Final = "shape.safetensors"
"""``center`` and ``scale`` of the statistics, float32."""
BYTES_AT: Final = 3
SHAPE_SHARE: Final = 0.3
"""The share of the statistics in the squared length of an embedding, where all of them are of ordinary size."""
WORDS_WEIGHT: Final = np.float32(np.sqrt(1 - SHAPE_SHARE))
SHAPE_WEIGHT: Final = np.float32(np.sqrt(SHAPE_SHARE / len(STATISTICS)))
WINDOW: Final = MOST
"""The number of characters, from the end, whose words are averaged."""
TOKENS: Final = 1_024
"""The number of tokens, from the end, that are averaged; few texts of `WINDOW` characters have more."""


class StaticEncoder:
    """A loaded encoder; its embeddings have length one."""

    name = STATIC

    def __init__(self) -> None:
        from safetensors.numpy import load_file

        verify_files(FOLDER, STATIC_FILES, "fedrouter")
        table, shape = load_file(FOLDER / VECTORS), load_file(FOLDER / SHAPE)
        self._vectors, self._scales = table["vectors"], table["scales"].astype(np.float32)
        self._center, self._scale = shape["center"], shape["scale"]
        self._tokenizer = Tokenizer(table["pieces"].tobytes().decode().split("\n"), BYTES_AT)
        self._ascii = AsciiWords(self._tokenizer.of_word)
        self._width = self._vectors.shape[1]

    def identity(self) -> EncoderIdentity:
        width = self._width + len(STATISTICS)
        return EncoderIdentity(STATIC, width, normalised=True, weights=f"sha256:{STATIC_WEIGHTS}")

    def encode(self, texts: Sequence[str], watch: Watch | None = None) -> Embeddings:
        """Embeddings ``(n, d)`` float32; of a long text, its end."""
        embeddings = np.zeros((len(texts), self._width + len(STATISTICS)), np.float32)
        for row, (counts, tokens) in enumerate(self._read(texts)):
            words = self._words(tokens[-TOKENS:]) * WORDS_WEIGHT
            shape = standardized(statistics_of(counts), self._center, self._scale)
            whole = np.concatenate([words, shape * SHAPE_WEIGHT])
            np.divide(whole, np.sqrt(whole.dot(whole)), out=embeddings[row])
            if watch is not None and (row % 256 == 255 or row == len(texts) - 1):
                watch(row + 1, len(texts))
        return embeddings

    def _read(self, texts: Sequence[str]) -> Iterator[tuple[Counts, Integers]]:
        """What is counted in the end of each text, and its tokens; short texts in ASCII are read together."""
        together, lengths, size = list[str](), list[int](), 1
        for text in texts:
            end = text[-READ:]
            short = len(end) <= WINDOW and end.isascii()
            if together and (not short or size + len(end) >= TOGETHER):
                yield from self._ascii.read(together, lengths)
                together, lengths, size = [], [], 1
            if short:
                together.append(end)
                lengths.append(len(text))
                size += len(end) + 1
            else:
                end = end.encode(errors="replace").decode()  # a lone surrogate is no character
                tokens = self._tokenizer.tokens(last_paragraphs(end, WINDOW))
                yield Counts.of(end, len(text)), np.array(tokens, np.intp)
        if together:
            yield from self._ascii.read(together, lengths)

    def _words(self, tokens: Integers) -> Embeddings:
        """The mean of the vectors of tokens ``(t,)``, brought to length one; zeros if there are none."""
        if not len(tokens):
            return np.zeros(self._width, np.float32)
        total = self._scales.take(tokens) @ self._vectors.take(tokens, 0).astype(np.float32)
        return total / max(float(np.sqrt(total.dot(total))), 1e-9)


@lru_cache(1)
def static_encoder() -> StaticEncoder:
    """The encoder, loaded once in a process."""
    return StaticEncoder()


def last_paragraphs(text: str, most: int) -> str:
    """The end of a text, at most ``most`` characters: whole paragraphs where they fit, because the question is there.

    >>> last_paragraphs("You are a helpful assistant.\\n\\nWhat is 2 + 2?", 20)
    'What is 2 + 2?'
    """
    if len(text) <= most:
        return text
    end = text[-most:]
    _, found, rest = end.partition("\n\n")
    return rest if found and rest.strip() else end
