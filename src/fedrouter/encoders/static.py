"""The encoder ``static``: averaged token vectors and statistics of the text's shape; numpy only, no neural network.

The table of token vectors is that of WordLlama (MIT), trained so that the mean over a text's tokens compares well with
the mean of another; it comes inside a package whose code is never run. The statistics (:mod:`fedrouter.encoders.shape`)
are added as further dimensions with constants that belong to the encoder, so an embedding depends on its text alone.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from fedrouter.encoders.identity import STATIC, EncoderIdentity
from fedrouter.encoders.shape import STATISTICS, shape_of
from fedrouter.encoders.weights import STATIC_FILES, STATIC_PACKAGE, STATIC_WEIGHTS, verify_files
from fedrouter.errors import MissingExtra
from fedrouter.evaluations import Embeddings

if TYPE_CHECKING:
    from tokenizers import Tokenizer

MODULE: Final = "wordllama"
TABLE, TOKENIZER = STATIC_FILES
WIDTH: Final = 256
SHAPE_SHARE: Final = 0.3
"""The share of an embedding's squared length that the statistics have where all of them are of ordinary size."""
WINDOW: Final = 4_096
"""The number of characters, from the end, whose tokens are averaged."""
PIECE: Final = 512
"""The tokenizer reads this many characters at a time: its time grows faster than the length of what it reads."""


class StaticEncoder:
    """A loaded encoder; its embeddings have length one."""

    name = STATIC

    def __init__(self) -> None:
        try:
            from safetensors.numpy import load_file
            from tokenizers import Tokenizer
        except ImportError:
            raise MissingExtra("Encoding text", "serve") from None
        folder = static_folder()
        if folder is None:
            raise MissingExtra("Encoding text", "serve")
        verify_files(folder, STATIC_FILES, STATIC_PACKAGE)
        self._table: Embeddings = load_file(folder / TABLE)["embedding.weight"]  # (tokens, WIDTH) float16
        self._tokenizer: Tokenizer = Tokenizer.from_file(str(folder / TOKENIZER))
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()

    def identity(self) -> EncoderIdentity:
        return EncoderIdentity(STATIC, WIDTH + len(STATISTICS), normalised=True, weights=f"sha256:{STATIC_WEIGHTS}")

    def encode(self, texts: Sequence[str], watch: Callable[[int, int], None] | None = None) -> Embeddings:
        """Embeddings ``(n, d)`` float32; of a long text, the words of its end and the shape of all of it."""
        embeddings = np.zeros((len(texts), WIDTH + len(STATISTICS)), np.float32)
        for row, text in enumerate(texts):
            embeddings[row] = self._one(text)
            if watch is not None and (row % 256 == 255 or row == len(texts) - 1):
                watch(row + 1, len(texts))
        return embeddings

    def _one(self, text: str) -> Embeddings:
        text = text.encode(errors="replace").decode()  # a lone surrogate is no character
        words = self._words(last_paragraphs(text, WINDOW))
        shape = shape_of(text) * np.float32(np.sqrt(SHAPE_SHARE / len(STATISTICS)))
        whole = np.concatenate([words * np.float32(np.sqrt(1 - SHAPE_SHARE)), shape])
        length = np.linalg.norm(whole)
        return whole / length if length else whole  # type: ignore[no-any-return]

    def _words(self, text: str) -> Embeddings:
        """The mean of the token vectors ``(WIDTH,)``, brought to length one; zeros for a text without tokens."""
        ids: list[int] = []
        for start in range(0, len(text), PIECE):
            ids += self._tokenizer.encode(text[start : start + PIECE], add_special_tokens=False).ids
        if not ids:
            return np.zeros(WIDTH, np.float32)
        mean = self._table[ids].astype(np.float32).mean(axis=0)
        return mean / max(float(np.linalg.norm(mean)), 1e-9)  # type: ignore[no-any-return]


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


def static_folder() -> Path | None:
    """The folder of the package that holds the table and the tokenizer; its code is found, never run."""
    found = importlib.util.find_spec(MODULE)
    return None if found is None or found.origin is None else Path(found.origin).parent
