"""Statistics of a text's shape: how long it is, what it is made of, and which form of question it takes.

They say what averaged word vectors cannot: a proof, a program, a multiple choice and a chat differ more in their signs
and lengths than in their words. Every statistic is a bounded function of counts, so no text is an outlier.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import numpy as np

from fedrouter.evaluations import Embeddings

READ: Final = 16_384
"""The number of characters, from the end, whose signs are counted; the length counts all of them."""
BOUND: Final = 3.0
"""Standardized statistics are clipped to ± this value."""

_WORD = re.compile(r"\S+")
_NUMBER = re.compile(r"\d+(?:[.,]\d+)*")
_OPTION = re.compile(r"(?:^|\n)[ \t]*\(?[A-Ja-j1-9][).:][ \t]")
_CODE = re.compile(r"[{};<>=\[\]#|&]|\b(?:def|return|import|class|function|var|const|SELECT|FROM|void|int)\b")
_MATH = re.compile(r"[\\^$=+*/√∑∫≤≥±×÷]|\b(?:frac|sqrt|log|sin|cos|mod)\b")
_FENCE = re.compile(r"```|~~~|\n {4}\S|\n\t\S")
_LATIN = re.compile(r"[A-Za-z]")
_UPPER = re.compile(r"[A-Z]")
_DIGIT = re.compile(r"\d")
_PUNCTUATION = re.compile(r"[.,:;!?'\"()\-]")
_SPACE = re.compile(r"\s")
_WIDE = re.compile(r"[\u1100-\u11ff\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff]")
_OTHER = re.compile(r"[\u0370-\u10ff\u1200-\u2dff]")


class Counts(NamedTuple):
    """What is counted in the part of a text that is read."""

    text: str
    length: int
    """Characters of the whole text."""
    words: Sequence[str]

    @classmethod
    def of(cls, text: str) -> Counts:
        read = text[-READ:]
        return cls(read, len(text), _WORD.findall(read))

    def share(self, pattern: re.Pattern[str]) -> float:
        """Matches per character that is read."""
        return self.number(pattern) / max(len(self.text), 1)

    def number(self, pattern: re.Pattern[str]) -> int:
        return sum(1 for _ in pattern.finditer(self.text))


class Statistic(NamedTuple):
    """One statistic, with the constants that bring it to mean zero and spread one over ordinary prompts."""

    name: str
    value: Callable[[Counts], float]
    center: float
    scale: float


def _per_word(counts: Counts, number: float) -> float:
    return number / max(len(counts.words), 1)


STATISTICS: Final[tuple[Statistic, ...]] = (
    Statistic("length", lambda c: math.log1p(c.length), 6.0, 1.2),
    Statistic("lines", lambda c: math.log1p(c.text.count("\n")), 2.0, 1.3),
    Statistic("word length", lambda c: math.log1p(_per_word(c, len(c.text))), 1.9, 0.2),
    Statistic("longest word", lambda c: math.log1p(max(map(len, c.words), default=0)), 2.6, 0.4),
    Statistic("distinct words", lambda c: _per_word(c, len(set(c.words))), 0.7, 0.2),
    Statistic("uppercase", lambda c: c.share(_UPPER) / max(c.share(_LATIN), 0.01), 0.06, 0.06),
    Statistic("digits", lambda c: math.sqrt(c.share(_DIGIT)), 0.1, 0.15),
    Statistic("numbers", lambda c: math.sqrt(_per_word(c, c.number(_NUMBER))), 0.15, 0.23),
    Statistic("punctuation", lambda c: math.sqrt(c.share(_PUNCTUATION)), 0.2, 0.08),
    Statistic("spaces", lambda c: c.share(_SPACE), 0.18, 0.04),
    Statistic("code", lambda c: math.sqrt(c.share(_CODE)), 0.04, 0.07),
    Statistic("indented", lambda c: math.log1p(c.number(_FENCE)), 0.1, 0.5),
    Statistic("mathematics", lambda c: math.sqrt(c.share(_MATH)), 0.05, 0.09),
    Statistic("options", lambda c: math.log1p(c.number(_OPTION)), 1.5, 1.2),
    Statistic("question marks", lambda c: math.log1p(c.text.count("?")), 0.5, 0.55),
    Statistic("other alphabets", lambda c: c.share(_OTHER), 0.0, 0.2),
    Statistic("Chinese, Japanese, Korean", lambda c: c.share(_WIDE), 0.0, 0.2),
)
"""All statistics; their order and constants are part of the encoder and change only with its version."""


def shape_of(text: str) -> Embeddings:
    """The standardized statistics of a text, ``(len(STATISTICS),)`` float32, each within ± `BOUND`."""
    counts = Counts.of(text)
    values = [(statistic.value(counts) - statistic.center) / statistic.scale for statistic in STATISTICS]
    return np.clip(np.array(values, np.float32), -BOUND, BOUND)
