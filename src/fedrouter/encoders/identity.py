"""Who made an embedding: a router understands one encoder's embeddings and no other's."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from fedrouter.errors import BadInput
from fedrouter.evaluations import Embeddings

OFFLINE = "all-MiniLM-L6-v2"
"""The encoder whose weights come with the [encoder] extra."""
KNOWN = ("all-mpnet-base-v2", OFFLINE, "paraphrase-albert-small-v2")
"""Encoders whose embedding columns are recognized without being named, the paper's own first."""


@dataclass(frozen=True)
class EncoderIdentity:
    """An encoder's name, the width of its embeddings, and whether they have length one."""

    name: str
    dimension: int
    normalised: bool

    @classmethod
    def of(cls, name: str, embeddings: Embeddings) -> EncoderIdentity:
        """The identity of the encoder of this name that made these embeddings."""
        lengths = np.linalg.norm(embeddings.astype(np.float32), axis=1)
        # Embeddings are often stored in half precision, so length one is only roughly one.
        return cls(name, embeddings.shape[1], bool(len(lengths) and np.abs(lengths - 1).max() < 0.01))

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, entry: Any) -> EncoderIdentity:
        try:
            return cls(str(entry["name"]), int(entry["dimension"]), bool(entry["normalised"]))
        except (KeyError, TypeError, ValueError):
            raise BadInput("encoder: expected name, dimension and normalised") from None


def column_stem(name: str) -> str:
    """The encoder's part of its embedding column: every character that is no letter or digit becomes ``_``.

    >>> column_stem("sentence-transformers/all-MiniLM-L6-v2")
    'sentence_transformers_all_minilm_l6_v2'
    """
    return re.sub(r"[^0-9A-Za-z]", "_", name).lower()
