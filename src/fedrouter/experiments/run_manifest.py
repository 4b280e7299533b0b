"""The manifest of a results folder: data, settings and versions, so that results of different runs are never mixed."""

from __future__ import annotations

import json
import platform
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Self

from fedrouter.errors import BadInput
from fedrouter.experiments.experiment import World
from fedrouter.experiments.provenance import digest

NAME = "run.json"
PACKAGES = ("fedrouter", "numpy", "scikit-learn", "scipy", "torch")


@dataclass(frozen=True)
class RunManifest:
    """The contents of ``run.json``. Two runs may share a folder if ``same`` is equal; the rest is information."""

    same: Mapping[str, Any]
    settings: Mapping[str, Any]
    rows_per_cell: Mapping[str, float]
    device: str
    versions: Mapping[str, str]

    @classmethod
    def of(cls, world: World, device: str = "cpu") -> Self:
        families = {name: chosen.to_json() for name, chosen in world.settings().items()}
        settings = {"families": families, "changes": {name: dict(each) for name, each in world.changes.items()}}
        same = {
            "data": world.dataset.name,
            "data_digest": world.dataset.digest,
            "encoder": world.dataset.encoder.name,
            "rounds": world.rounds,
            "encode": world.encode,
            "protocol": world.protocol.to_json(),
            "settings_digest": digest(settings),
        }
        return cls(same, settings, rows_per_cell(world), device, versions())

    def to_json(self) -> dict[str, Any]:
        return {
            **self.same,
            "settings": self.settings,
            "rows_per_cell": self.rows_per_cell,
            "device": self.device,
            "versions": self.versions,
        }

    def open_folder(self, out: Path) -> None:
        """Create the results folder, or check that the results in it come from the same data and settings."""
        path = out / NAME
        if not path.exists():
            if out.exists() and any(out.iterdir() if out.is_dir() else [out]):
                raise BadInput(f"{out}: not empty and not a folder of `fedrouter reproduce`; choose another --out")
            out.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(self.to_json(), indent=2) + "\n")
            return
        try:
            there = json.loads(path.read_text())
            different = list(self._different(there))
        except (ValueError, AttributeError, KeyError):
            raise BadInput(f"{path}: not readable as JSON; choose another --out") from None
        if different:
            raise BadInput(
                f"{out}: holds results of another run, which differs in {'; '.join(different)}. Choose another --out"
            )

    def _different(self, there: Mapping[str, Any]) -> Iterator[str]:
        """What differs from the manifest of another run, in words; of settings those that differ, not their digest."""
        for name, value in self.same.items():
            if there.get(name) == value:
                continue
            if name == "settings_digest":
                now = json.loads(json.dumps(self.settings))  # as it was written: with lists for tuples
                yield from _differences("settings", there["settings"], now)
            else:
                yield from _differences(name, there.get(name), value)


def _differences(name: str, there: Any, now: Any) -> Iterator[str]:
    """Where two JSON values differ, entry by entry."""
    if isinstance(there, Mapping) and isinstance(now, Mapping):
        for key in dict.fromkeys([*there, *now]):
            inner = f"{name}.{key}"
            if key not in now or key not in there:
                yield f"{inner} (only {'there' if key in there else 'now'})"
            else:
                yield from _differences(inner, there[key], now[key])
    elif there != now:
        yield f"{name} ({there!r} there, {now!r} now)"


def rows_per_cell(world: World) -> dict[str, float]:
    """For families with clusters, training rows of all clients over (cluster, model) cells; the same for every seed."""
    rows = sum(len(client.train) for client in world.clients())
    models = len(world.dataset.evaluations.pool)
    clusters = {name: getattr(chosen, "k_global", None) for name, chosen in world.settings().items()}
    return {name: rows / (count * models) for name, count in clusters.items() if count}


def versions() -> dict[str, str]:
    """Versions of Python and of the packages that compute, in this process."""
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found
