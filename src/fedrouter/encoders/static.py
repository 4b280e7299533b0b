"""The encoder ``static``: averaged token vectors and statistics of the text's shape; numpy only, no neural network.

The vectors are WordLlama's (MIT; NOTICE beside the table), trained so that the mean over a text's tokens compares well
with that of another text. The statistics (:mod:`fedrouter.encoders.shape`) are further dimensions, with constants that
belong to the encoder: an embedding depends on its text alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Final

import numpy as np

from fedrouter.encoders.ascii_words import MOST, TOGETHER, AsciiWords
from fedrouter.encoders.encoder import Watch
from fedrouter.encoders.identity import STATIC, EncoderIdentity
from fedrouter.encoders.shape import READ, STATISTICS, Counts, standardized, statistics_of
from fedrouter.encoders.tokens import Tokenizer
from fedrouter.encoders.weights import STATIC_FILES, STATIC_WEIGHTS, verify_files
from fedrouter.evaluations import Embeddings, Integers

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
