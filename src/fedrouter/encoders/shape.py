"""Statistics of a text's shape: how long it is, what it is made of, and which form of question it takes.

They say what averaged word vectors cannot: a proof, a program, a multiple choice and a chat differ more in their signs
and lengths than in their words. Every statistic is a bounded function of counts, so no text is far from all others.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from fedrouter.evaluations import Embeddings, Floats

READ: Final = 16_384
"""The number of characters, from the end, that are read; the length is that of the whole text."""
BOUND: Final = 3.0
"""A standardized statistic approaches ± this value and never exceeds it."""

UPPER, LOWER, DIGIT, SPACE, LINE, PUNCTUATION, CODE, MATH, ACCENTED, ALPHABET, WIDE, SYMBOL = range(12)
"""Classes of characters: what a character counts as."""
_ASCII: Final = {
    DIGIT: "0123456789",
    SPACE: " \t\r\x0b\x0c",
    LINE: "\n",
    PUNCTUATION: ".,:;!?'\"()-",
    CODE: "{}[]<>#|&_`~@;",
    MATH: "+*/=^$\\%",
}
_BEYOND: Final = (
    *((0x80, SYMBOL), (0xC0, ACCENTED), (0x250, ALPHABET), (0x2000, MATH), (0x2E80, WIDE), (0xA4D0, ALPHABET)),
    *((0xAC00, WIDE), (0xD7B0, SYMBOL), (0xF900, WIDE), (0xFB00, ALPHABET), (0xFE00, SYMBOL), (0x20000, WIDE)),
)
"""The classes beyond ASCII, each from its first code point."""
_STARTS: Final = np.array([start for start, _ in _BEYOND], np.uint32)
_CLASSES: Final = np.array([SYMBOL, *(kind for _, kind in _BEYOND)], np.uint8)

_OPTION = re.compile(r"^[ \t]{0,8}\(?[A-Ja-j1-9][).:][ \t]", re.MULTILINE)
_INDENT: Final = ("    ", "\t", "```")
PROGRAM: Final = frozenset(
    {"def", "return", "import", "class", "function", "var", "const", "let", "int", "void", "public", "print", "elif"}
    | {"SELECT", "FROM", "WHERE", "#include", "self", "null", "None", "True", "False", "=>", "else", "else:", "{", "}"}
)
ENGLISH: Final = frozenset(
    {"the", "of", "and", "is", "to", "a", "in", "that", "what", "which", "for", "with", "are", "it", "as", "be", "on"}
    | {"this", "by", "how", "an", "or"}
)


def ascii_classes() -> npt.NDArray[np.uint8]:
    """The class of each ASCII character, ``(128,)``."""
    classes = np.full(128, SYMBOL, np.uint8)
    classes[ord("A") : ord("Z") + 1] = UPPER
    classes[ord("a") : ord("z") + 1] = LOWER
    for kind, characters in _ASCII.items():
        classes[[ord(character) for character in characters]] = kind
    return classes


_ASCII_CLASSES: Final = ascii_classes()


@dataclass(frozen=True)
class Counts:
    """What is counted in the end of a text; ``length`` is that of the whole text."""

    text: str
    length: int
    count: int
    """Number of words."""
    distinct: int
    """Number of different words."""
    longest: int
    """Characters of the longest word."""
    numbers: int
    """Number of words that begin with a digit."""
    program: int
    """Number of words that are among `PROGRAM`."""
    english: int
    """Number of words that are among `ENGLISH`."""
    classes: Sequence[int]
    """Characters of each of the 12 classes."""

    @classmethod
    def of(cls, text: str, length: int) -> Counts:
        """The counts of any text; :mod:`fedrouter.encoders.static` has a faster way for most."""
        if text.isascii():
            kinds = _ASCII_CLASSES[np.frombuffer(text.encode(), np.uint8)]
        else:
            codes = np.frombuffer(text.encode("utf-32-le"), np.uint32)
            kinds = np.where(
                codes < 128, _ASCII_CLASSES[codes & 127], _CLASSES[np.searchsorted(_STARTS, codes, side="right")]
            )
        words = text.split()
        times = Counter(words)
        return cls(
            text=text,
            length=length,
            count=len(words),
            distinct=len(times),
            longest=max(map(len, times), default=0),
            numbers=sum(each for word, each in times.items() if word[0].isdigit()),
            program=sum(times[word] for word in PROGRAM & times.keys()),
            english=sum(times[word] for word in ENGLISH & times.keys()),
            classes=np.bincount(kinds, minlength=12).tolist(),
        )

    def share(self, kind: int) -> float:
        """The square root of the share of characters of a class; the root tells none from a few."""
        return math.sqrt(self.classes[kind] / max(len(self.text), 1))

    def per_word(self, number: int) -> float:
        return number / max(self.count, 1)

    def options(self) -> int:
        """Number of lines that begin as an option of a multiple choice does."""
        if "\n" not in self.text:
            return int(_OPTION.match(self.text) is not None)
        return sum(1 for _ in _OPTION.finditer(self.text))

    def indented(self) -> int:
        """Number of lines that begin as those of a program do."""
        lines = sum(self.text.count(f"\n{start}") for start in _INDENT) if "\n" in self.text else 0
        return lines + self.text.startswith(_INDENT)


def _uppercase(counts: Counts) -> float:
    upper, lower = counts.classes[UPPER], counts.classes[LOWER]
    return math.sqrt(upper / max(upper + lower, 1))


class Statistic(NamedTuple):
    """One statistic; ``least`` is the smallest value that its spread may have where reference texts hardly vary.

    Most count something that a text may lack: they are zero then, and stay zero. The others are ``centered``.
    """

    name: str
    value: Callable[[Counts], float]
    least: float
    centered: bool = False


STATISTICS: Final[tuple[Statistic, ...]] = (
    Statistic("length", lambda c: math.log1p(c.length), 0.5, centered=True),
    Statistic("word length", lambda c: math.log1p(c.per_word(len(c.text))), 0.1, centered=True),
    Statistic("longest word", lambda c: math.log1p(c.longest), 0.2, centered=True),
    Statistic("lines", lambda c: math.log1p(c.classes[LINE]), 0.5),
    Statistic("repeated words", lambda c: c.per_word(c.count - c.distinct), 0.1),
    Statistic("uppercase", _uppercase, 0.1),
    Statistic("digits", lambda c: c.share(DIGIT), 0.1),
    Statistic("numbers", lambda c: math.sqrt(c.per_word(c.numbers)), 0.1),
    Statistic("punctuation", lambda c: c.share(PUNCTUATION), 0.05),
    Statistic("question marks", lambda c: math.log1p(c.text.count("?")), 0.3),
    Statistic("code signs", lambda c: c.share(CODE), 0.1),
    Statistic("code words", lambda c: math.sqrt(c.per_word(c.program)), 0.1),
    Statistic("indented lines", lambda c: math.log1p(c.indented()), 0.5),
    Statistic("mathematics", lambda c: c.share(MATH), 0.1),
    Statistic("options", lambda c: math.log1p(c.options()), 0.5),
    Statistic("English words", lambda c: c.per_word(c.english), 0.1),
    Statistic("accented letters", lambda c: c.share(ACCENTED), 0.1),
    Statistic("other alphabets", lambda c: c.share(ALPHABET), 0.2),
    Statistic("Chinese, Japanese, Korean", lambda c: c.share(WIDE), 0.2),
)
"""All statistics, in the order of the encoder's last dimensions; a change makes another encoder."""


def statistics_of(counts: Counts) -> Floats:
    """The statistics of a text, ``(len(STATISTICS),)``, from what is counted in its end."""
    return np.array([statistic.value(counts) for statistic in STATISTICS])


def standardized(statistics: Floats, center: Embeddings, scale: Embeddings) -> Embeddings:
    """Statistics brought to a comparable size, float32, each within ± `BOUND`."""
    return (BOUND * np.tanh((statistics - center) / scale / BOUND)).astype(np.float32)
