"""Bundles: saves a router as a write-once directory, and loads it without executing anything from it.

``router.safetensors`` holds the arrays. ``bundle.json``, the manifest, says what they are and where they come from,
with a digest of the arrays and one of itself, so that a truncated, edited or mixed bundle is refused.

A router of sums is saved as these sums: its weights are computed when it is loaded, and what identifies it are digests
of integers, because linear algebra differs in the last bit between machines.
"""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from fedrouter.encoders import EncoderIdentity
from fedrouter.errors import BadBundle, BadInput
from fedrouter.files import new_folder
from fedrouter.pool import ModelPool
from fedrouter.routers.base import Router
from fedrouter.routers.registry import router_class

FORMAT = 2
REPLACED: Final = ("auto", "bayes", "kernel", "linear", "mf", "query_blind")
"""Families whose bundles of format 1 are not read."""
LEARN: Final = "fedrouter learn LOG --out DIR"
ARRAYS, MANIFEST = "router.safetensors", "bundle.json"


@dataclass(frozen=True)
class Provenance:
    """Where a router comes from. It contains no time and no path, so that the same run writes the same bytes.

    A router made from another one names its ``parent`` by that bundle's digest, and the ``change`` that was made.
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

    @classmethod
    def of_run(
        cls, data: str, data_digest: str, seed: int, clients: Mapping[str, int], settings: Any, simulated: bool = False
    ) -> Provenance:
        """The provenance of a router that was learned from scratch.

        Parameters
        ----------
        data, data_digest : name and digest of the data; an empty digest if the data never left the clients
        clients : how many evaluations each client contributed
        settings : the family's settings, or their JSON form
        """
        hyperparameters = dict(settings) if isinstance(settings, Mapping) else settings.to_json()
        return cls(
            data=data,
            data_digest=data_digest,
            seed=seed,
            rounds=int(hyperparameters.get("rounds", 1)),
            clients=[{"name": name, "rows": rows} for name, rows in clients.items()],
            hyperparameters=hyperparameters,
            simulated=simulated,
        )


@dataclass(frozen=True)
class Bundle:
    """A saved router, the encoder whose embeddings it expects, and the manifest it was saved with."""

    path: Path
    router: Router
    encoder: EncoderIdentity
    manifest: Mapping[str, Any]

    @property
    def version(self) -> int:
        return int(self.manifest["version"])

    @property
    def clients(self) -> dict[str, Mapping[str, Any]]:
        """The manifest's entries of the clients that contributed, by name."""
        return {entry["name"]: entry for entry in self.manifest["clients"]}

    def settings_for(self, family: str) -> Mapping[str, Any]:
        """The settings in the manifest if they are this family's, as JSON; otherwise none."""
        return self.manifest["hyperparameters"] if family == self.router.federated_router().family else {}

    def child(self, clients: Sequence[Mapping[str, Any]], change: Mapping[str, Any]) -> Provenance:
        """The provenance of a router made from this one by a change; data, seed and settings stay."""
        kept = {name: self.manifest[name] for name in ("data", "data_digest", "seed", "rounds", "simulated")}
        return Provenance(
            **kept,
            hyperparameters=self.manifest["hyperparameters"],
            clients=clients,
            version=self.version + 1,
            parent=self.manifest["digest"],
            change=change,
        )


def save(path: str | Path, router: Router, encoder: EncoderIdentity, provenance: Provenance) -> Path:
    """Write a bundle; it appears complete or not at all, and never replaces something.

    Refused if :func:`load` could not read it back: a router of an unknown family, or one whose arrays are not its
    whole state.
    """
    from safetensors.numpy import save as pack

    path = Path(path)
    refuse_existing(path)
    if encoder.dimension != router.dimension:
        raise BadInput(
            f"the router expects embeddings of width {router.dimension}, the encoder makes {encoder.dimension}"
        )
    # Contiguous, because that is what the format stores.
    arrays = {name: np.ascontiguousarray(array) for name, array in sorted(router.arrays().items())}
    _require_readable(router, arrays)
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
        "sums": dict(router.digests()),
        "arrays": f"sha256:{hashlib.sha256(packed).hexdigest()}",
    }
    manifest["digest"] = _digest(manifest)
    with new_folder(path) as folder:
        (folder / ARRAYS).write_bytes(packed)
        (folder / MANIFEST).write_text(json.dumps(manifest, indent=2) + "\n")
    return path


def _require_readable(router: Router, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
    """Refuse a router that :func:`load` could not read back from these arrays."""
    if router_class(router.family) is not type(router):
        raise BadInput(
            f"{type(router).__name__}: not saved, because {router.family!r} is the family of "
            f"{router_class(router.family).__name__}, and that is what would be loaded"
        )
    try:
        again = type(router).from_arrays(router.pool, arrays).arrays()
    except BadInput as error:
        raise BadInput(
            f"{router.family} router: cannot be saved, because its arrays cannot be read back ({error})"
        ) from None
    lost = [name for name, array in arrays.items() if name not in again or not _same(array, again[name])]
    if lost or len(again) != len(arrays):
        names = ", ".join(sorted({*lost, *(set(again) - set(arrays))}))
        raise BadInput(
            f"{router.family} router: cannot be saved, because arrays change when they are read back: {names}"
        )


def _same(one: npt.NDArray[Any], other: npt.NDArray[Any]) -> bool:
    return one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes()


def refuse_existing(path: Path) -> None:
    """Refuse a path at which something exists already; checked before long work as well as when saving."""
    if path.exists() or path.is_symlink():
        raise BadInput(f"{path}: already exists, and a bundle is never overwritten; choose another path")


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
        int(manifest["version"])
        pool = ModelPool.from_json(manifest["pool"])
        encoder = EncoderIdentity.from_json(manifest["encoder"])
        router = router_class(manifest["family"]).from_arrays(pool, unpack(packed))
        sums = dict(manifest.get("sums", {}))
    except (BadInput, KeyError, OverflowError, SafetensorError, TypeError, ValueError) as error:
        raise BadBundle(f"{path}: its parts do not fit together ({error})") from None
    for name, digest in router.digests().items():
        if sums.get(name) != digest:
            raise BadBundle(f"{path}: its {name} are not those that it was saved with; learn anew: {LEARN}")
    if router.dimension != encoder.dimension:
        raise BadBundle(f"{path}: the router expects width {router.dimension}, its encoder makes {encoder.dimension}")
    return Bundle(path, router, encoder, manifest)


def _manifest(path: Path) -> dict[str, Any]:
    try:
        text = (path / MANIFEST).read_text()
    except (OSError, UnicodeDecodeError):
        why = f"no readable {MANIFEST}" if path.is_dir() else "no such folder"
        raise BadBundle(f"{path}: not a bundle ({why})") from None
    try:
        manifest = json.loads(text)
    except ValueError:
        raise BadBundle(f"{path}: {MANIFEST} is not complete JSON (truncated or edited)") from None
    if not isinstance(manifest, dict) or "digest" not in manifest:
        raise BadBundle(f"{path}: {MANIFEST} is not a bundle's")
    form, family = manifest.get("format"), manifest.get("family")
    if form not in (1, FORMAT):
        raise BadBundle(f"{path}: format {form!r}, this version reads 1 and {FORMAT}; learn anew: {LEARN}")
    if form == 1 and family in REPLACED:
        raise BadBundle(f"{path}: a router of the family {family!r} in format 1 is not read; learn anew: {LEARN}")
    if manifest["digest"] != _digest(manifest):
        raise BadBundle(f"{path}: {MANIFEST} was edited after it was saved (its digest does not match)")
    return manifest


def _digest(manifest: Mapping[str, Any]) -> str:
    content = {name: value for name, value in manifest.items() if name != "digest"}
    return f"sha256:{hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()}"


def _versions() -> dict[str, str]:
    return {"fedrouter": version("fedrouter"), "python": platform.python_version(), "numpy": np.__version__}
