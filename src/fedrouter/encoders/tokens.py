"""Words to tokens by byte-pair encoding, in pure Python: a word is divided once, then remembered.

A text's words repeat, so a dictionary look-up per word replaces most of the work. The pieces of the vocabulary are in
order of their frequency: the first that two neighbors form together is merged first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain, pairwise
from typing import Final

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
    """Tokens of a vocabulary; a character that is not in it becomes its bytes."""

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
