"""Text to embedding with sentence-transformers: the offline MiniLM, a folder, or any name that a hub knows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fedrouter.encoders.device import training_device
from fedrouter.encoders.encoder import Watch
from fedrouter.encoders.identity import OFFLINE, STATIC, EncoderIdentity
from fedrouter.encoders.location import hub_name, locate, locate_verified
from fedrouter.encoders.weights import weights_digest
from fedrouter.encoders.window import fit_window
from fedrouter.errors import FedrouterError, MissingExtra
from fedrouter.evaluations import Embeddings

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

BATCH, BATCH_ON_GPU = 32, 256


class SentenceEncoder:
    """A loaded encoder; its embeddings are normalized to length one."""

    def __init__(self, name: str = OFFLINE) -> None:
        self.name = name
        self.model = _load(name)
        folder = locate(name)
        self._weights = None if folder is None else weights_digest(folder)

    def identity(self) -> EncoderIdentity:
        width = self.model.get_embedding_dimension()
        assert width is not None
        return EncoderIdentity(self.name, width, normalised=True, weights=self._weights)

    def encode(self, texts: Sequence[str], watch: Watch | None = None) -> Embeddings:
        """Embeddings ``(n, d)`` float32; of a text longer than the encoder's window, the end is encoded."""
        tokenizer, window = self.model.tokenizer, int(self.model.max_seq_length or 512)
        fitted = [fit_window(text, tokenizer, window) for text in texts]
        # Texts of similar length share a batch, because padding costs time.
        order = sorted(range(len(fitted)), key=lambda index: len(fitted[index]))
        embeddings = np.zeros((len(fitted), self.identity().dimension), np.float32)
        batch = BATCH if self.model.device.type == "cpu" else BATCH_ON_GPU
        for start in range(0, len(order), batch):
            rows = order[start : start + batch]
            embeddings[rows] = self.model.encode(
                [fitted[row] for row in rows],
                batch_size=batch,
                normalize_embeddings=True,
                show_progress_bar=False,
                convert_to_numpy=True,
            )
            if watch is not None:
                watch(min(start + batch, len(order)), len(order))
        return embeddings


def _load(name: str) -> SentenceTransformer:
    try:
        from sentence_transformers import SentenceTransformer
    except ImportError:
        raise MissingExtra(f"The encoder {name}", "encoder") from None
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()  # type: ignore[no-untyped-call]  # for loading weights; our own bar shows the encoding
    folder = locate_verified(name)
    if folder is not None:
        try:
            return SentenceTransformer(str(folder), device=training_device(), local_files_only=True)
        except Exception as error:
            if folder == Path(name).expanduser():
                raise FedrouterError(
                    f"encoder {name!r}: the folder exists but does not load ({type(error).__name__}): expected what "
                    "SentenceTransformer.save writes (modules.json, config.json, a tokenizer and weights)"
                ) from None
            # The download was interrupted: ask the hub again, if it can be reached.
    try:
        from huggingface_hub import HfApi

        HfApi().model_info(hub_name(name), timeout=10)  # fails at once where loading would retry for a minute
        return SentenceTransformer(hub_name(name), device=training_device())
    except Exception as error:
        raise FedrouterError(
            f"encoder {name!r} could not be loaded ({type(error).__name__}): expected a folder, {STATIC!r}, the "
            f"offline {OFFLINE!r}, or a name that a reachable model hub knows; a router learned with --encoder "
            f"{STATIC} needs none of them"
        ) from None
