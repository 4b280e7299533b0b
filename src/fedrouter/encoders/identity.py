"""The identity of an encoder: a router understands the embeddings of one encoder and of no other."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedrouter.encoders.weights import WrongWeights
from fedrouter.errors import BadInput
from fedrouter.evaluations import Embeddings

OFFLINE = "all-MiniLM-L6-v2"
"""The sentence-transformers model whose weights come with the [encoder] extra."""
STATIC = "static"
"""The default encoder: no neural network, and its table comes with this package."""
KNOWN = ("all-mpnet-base-v2", OFFLINE, "paraphrase-albert-small-v2")
"""Encoders whose embedding columns are recognized without being named; the encoder of the paper is first."""


@dataclass(frozen=True)
class EncoderIdentity:
    """An encoder's name, the width of its embeddings, whether they have length one, and a digest of its weights.

    ``weights`` is ``sha256:…``, or None where the origin of embeddings is unknown: a column of a data file, or a bundle
    that was saved without a digest.
    """

    name: str
    dimension: int
    normalised: bool
    weights: str | None = None

    @classmethod
    def of(cls, name: str, embeddings: Embeddings) -> EncoderIdentity:
        """The identity of the encoder of this name that made these embeddings ``(n, d)``; its weights are unknown."""
        lengths = np.linalg.norm(embeddings.astype(np.float32), axis=1)
        # Embeddings are often stored in half precision, so length one is only roughly one.
        return cls(name, embeddings.shape[1], bool(len(lengths) and np.abs(lengths - 1).max() < 0.01))

    def matches(self, other: EncoderIdentity) -> bool:
        """Whether both can be the same encoder: equal name, width and normalization, and equal weights if both known.

        >>> known, unknown = EncoderIdentity("mini", 8, True, "sha256:ab"), EncoderIdentity("mini", 8, True)
        >>> known.matches(unknown), known.matches(EncoderIdentity("mini", 8, True, "sha256:cd"))
        (True, False)
        """
        same = (self.name, self.dimension, self.normalised) == (other.name, other.dimension, other.normalised)
        return same and (self.weights is None or other.weights is None or self.weights == other.weights)

    def require(self, found: EncoderIdentity, what: str) -> None:
        """Refuse another encoder than this one; ``what`` names the router that needs this one."""
        if not self.matches(found):
            raise WrongWeights(
                f"{what}: made for the encoder {self}, but the encoder here is {found}; encode the text with "
                f"{self.name}, or learn the router again with {found.name}"
            )

    def __str__(self) -> str:
        kind = "length one" if self.normalised else "any length"
        return f"{self.name} (width {self.dimension}, {kind}, weights {self.weights or 'unknown'})"

    def to_json(self) -> dict[str, Any]:
        known = {} if self.weights is None else {"weights": self.weights}
        return {"name": self.name, "dimension": self.dimension, "normalised": self.normalised, **known}

    @classmethod
    def from_json(cls, entry: Any) -> EncoderIdentity:
        try:
            weights = entry.get("weights")
            if weights is not None and not re.fullmatch("sha256:[0-9a-f]{64}", weights):
                raise ValueError
            return cls(str(entry["name"]), int(entry["dimension"]), bool(entry["normalised"]), weights)
        except (AttributeError, KeyError, TypeError, ValueError):
            raise BadInput("encoder: expected name, dimension, normalised, and weights as sha256:HEX if any") from None


def column_stem(name: str) -> str:
    """The encoder's part of its embedding column: every character that is no letter or digit becomes ``_``.

    >>> column_stem("sentence-transformers/all-MiniLM-L6-v2")
    'sentence_transformers_all_minilm_l6_v2'
    """
    return re.sub(r"[^0-9A-Za-z]", "_", name).lower()
