"""A bundle: a saved router as a write-once directory, loaded without executing anything.

``router.safetensors`` holds the arrays; ``bundle.json`` says what they are and where they come from, with a digest of
the arrays and one of itself, so that a bundle that was cut short, edited or put together from two is refused.
"""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from fedrouter.encoders import EncoderIdentity
from fedrouter.errors import BadBundle, BadInput
from fedrouter.files import new_folder
from fedrouter.pool import ModelPool
from fedrouter.routers.base import Router
from fedrouter.routers.known import ROUTERS

FORMAT = 1
ARRAYS, MANIFEST = "router.safetensors", "bundle.json"


@dataclass(frozen=True)
class Provenance:
    """Where a router comes from. No time and no place: the same run makes the same bytes.

    A router that grew names its ``parent`` by that bundle's digest, and the ``change`` that was made to it.
    """

    data: str
    data_digest: str
    seed: int
    rounds: int
    clients: Sequence[Mapping[str, Any]]
    hyperparameters: Mapping[str, Any]
    simulated: bool = False
    versions: Mapping[str, str] = field(default_factory=lambda: _versions())
    version: int = 1
    parent: str | None = None
    change: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Bundle:
    """A router, the encoder whose embeddings it understands, and the manifest it was saved with."""

    path: Path
    router: Router
    encoder: EncoderIdentity
    manifest: Mapping[str, Any]

    @property
    def version(self) -> int:
        return int(self.manifest.get("version", 1))

    @property
    def clients(self) -> dict[str, Mapping[str, Any]]:
        """Who has contributed, by name."""
        return {entry["name"]: entry for entry in self.manifest["clients"]}

    def child(self, clients: Sequence[Mapping[str, Any]], change: Mapping[str, Any], **other: Any) -> Provenance:
        """The provenance of a router made from this one; what is not named stays."""
        kept = {name: self.manifest[name] for name in ("data", "data_digest", "seed", "rounds", "simulated")}
        kept["hyperparameters"] = self.manifest["hyperparameters"]
        return Provenance(
            **(kept | other),
            clients=clients,
            version=self.version + 1,
            parent=self.manifest["digest"],
            change=change,
        )


def save(path: str | Path, router: Router, encoder: EncoderIdentity, provenance: Provenance) -> Path:
    """Write a bundle; it appears complete or not at all, and never over something that is there."""
    from safetensors.numpy import save as pack

    path = Path(path)
    refuse_existing(path)
    if encoder.dimension != router.dimension:
        raise BadInput(
            f"the router understands embeddings of width {router.dimension}, the encoder makes {encoder.dimension}"
        )
    # Little-endian and contiguous, because that is what the format stores.
    arrays = {name: np.ascontiguousarray(array) for name, array in sorted(router.arrays().items())}
    packed = pack(arrays)
    manifest = {
        "format": FORMAT,
        "family": router.family,
        "pool": router.pool.to_json(),
        "encoder": encoder.to_json(),
        "data": provenance.data,
        "data_digest": provenance.data_digest,
        "simulated": provenance.simulated,
        "seed": provenance.seed,
        "rounds": provenance.rounds,
        "clients": list(provenance.clients),
        "hyperparameters": dict(provenance.hyperparameters),
        "versions": dict(provenance.versions),
        "version": provenance.version,
        "parent": provenance.parent,
        "change": dict(provenance.change),
        "arrays": f"sha256:{hashlib.sha256(packed).hexdigest()}",
    }
    manifest["digest"] = _digest(manifest)
    with new_folder(path) as folder:
        (folder / ARRAYS).write_bytes(packed)
        (folder / MANIFEST).write_text(json.dumps(manifest, indent=2) + "\n")
    return path


def refuse_existing(path: Path) -> None:
    """Where a bundle is to be, nothing may be; asked before the work as well as after it."""
    if path.exists():
        raise BadInput(f"{path}: already exists, and a bundle is never overwritten; choose another place")


def load(path: str | Path) -> Bundle:
    """Read a bundle back, or say why it is refused."""
    from safetensors import SafetensorError
    from safetensors.numpy import load as unpack

    path = Path(path)
    manifest = _manifest(path)
    try:
        packed = (path / ARRAYS).read_bytes()
    except OSError:
        raise BadBundle(f"{path}: no readable {ARRAYS}") from None
    if manifest.get("arrays") != f"sha256:{hashlib.sha256(packed).hexdigest()}":
        raise BadBundle(f"{path}: {ARRAYS} is not the file this bundle was saved with (truncated or replaced)")
    try:
        pool = ModelPool.from_json(manifest["pool"])
        encoder = EncoderIdentity.from_json(manifest["encoder"])
        router = ROUTERS[manifest["family"]].from_arrays(pool, unpack(packed))
    except (BadInput, KeyError, SafetensorError) as error:
        raise BadBundle(f"{path}: its parts do not fit together ({error})") from None
    if router.dimension != encoder.dimension:
        raise BadBundle(
            f"{path}: the router understands width {router.dimension}, its encoder makes {encoder.dimension}"
        )
    return Bundle(path, router, encoder, manifest)


def _manifest(path: Path) -> dict[str, Any]:
    try:
        text = (path / MANIFEST).read_text()
    except (OSError, UnicodeDecodeError):
        raise BadBundle(f"{path}: not a bundle (no readable {MANIFEST})") from None
    try:
        manifest = json.loads(text)
    except ValueError:
        raise BadBundle(f"{path}: {MANIFEST} is not complete JSON (truncated or edited)") from None
    if not isinstance(manifest, dict) or "digest" not in manifest:
        raise BadBundle(f"{path}: {MANIFEST} is not a bundle's")
    if manifest.get("format") != FORMAT:
        raise BadBundle(f"{path}: format {manifest.get('format')!r}, this version reads {FORMAT}; upgrade fedrouter")
    if manifest["digest"] != _digest(manifest):
        raise BadBundle(f"{path}: {MANIFEST} was edited after it was saved (its digest does not match)")
    return manifest


def _digest(manifest: Mapping[str, Any]) -> str:
    content = {name: value for name, value in manifest.items() if name != "digest"}
    return f"sha256:{hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()}"


def _versions() -> dict[str, str]:
    return {"fedrouter": version("fedrouter"), "python": platform.python_version(), "numpy": np.__version__}
