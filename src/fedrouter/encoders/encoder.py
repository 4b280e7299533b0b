"""What every encoder has: an identity, and embeddings for texts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from fedrouter.encoders.identity import EncoderIdentity
from fedrouter.evaluations import Embeddings

Watch = Callable[[int, int], None]
"""Progress callback: called with the number of texts encoded so far and the total."""


class Encoder(Protocol):
    """A loaded encoder; its embeddings have length one."""

    def identity(self) -> EncoderIdentity: ...

    def encode(self, texts: Sequence[str], watch: Watch | None = None) -> Embeddings:
        """Embeddings ``(n, d)`` float32."""
