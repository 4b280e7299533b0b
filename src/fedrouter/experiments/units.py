"""The unit of work of a run, what all units have in common, and how one is measured and its document written."""

from __future__ import annotations

import json
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from fedrouter.data.read import Dataset, read
from fedrouter.encoders.device import use_device
from fedrouter.errors import FedrouterError
from fedrouter.experiments.choice import Changes
from fedrouter.experiments.experiment import Document, World, settings_of
from fedrouter.experiments.paper_protocols import Protocol
from fedrouter.experiments.provenance import code_digest, digest
from fedrouter.experiments.registry import MEASUREMENTS
from fedrouter.experiments.run_manifest import versions
from fedrouter.federation.families.registry import family
from fedrouter.files import PUBLIC, replace_file

Watch = Callable[[float, int, str], None]
"""Called with the number of finished units, fractions included, their total, and the unit that just ended or ""."""


@dataclass(frozen=True, order=True)
class Unit:
    """One measurement of one family with one seed; without a family if it is about none."""

    measurement: str
    family: str
    seed: int

    def __str__(self) -> str:
        return f"{' '.join(filter(None, (self.measurement, self.family)))}, seed {self.seed}"

    def path(self, out: Path) -> Path:
        return (
            out / "measured" / f"seed-{self.seed}" / f"{'-'.join(filter(None, (self.measurement, self.family)))}.json"
        )


@dataclass(frozen=True)
class RunSettings:
    """What all units of a run have in common; small, because every unit takes it to its worker.

    ``same`` is what their documents must agree in.
    """

    path: str
    encoder: str
    rounds: int
    encode: bool
    families: tuple[str, ...]
    protocol: Protocol
    changes: Changes
    device: str
    out: Path
    same: Mapping[str, Any]

    def world(self, seed: int, families: tuple[str, ...]) -> World:
        """The input of a measurement; the data is read once in a process."""
        dataset = _dataset(self.path, self.encoder)
        return World(dataset, seed, self.rounds, self.path, self.encode, families, self.protocol, self.changes)

    def digest_of(self, unit: Unit) -> str:
        """The digest of everything that makes this unit's document."""
        measurement = MEASUREMENTS[unit.measurement]
        own = settings_of(unit.family, self.rounds, self.changes).to_json() if unit.family else {}
        shared = {name: value for name, value in self.same.items() if name != "settings_digest"}
        if not measurement.uses_data:
            shared = {}
        made_by = {"measurement": measurement.name, "version": measurement.version, "code": code_digest()}
        # Networks are trained and texts encoded there; what needs neither is measured again, which costs little.
        made_by["device"] = self.device if measurement.uses_device and unit.family else "cpu"
        return digest({**shared, **made_by, "family": unit.family, "settings": own, "seed": unit.seed})

    def document(self, unit: Unit) -> Document | None:
        """The unit's document, unless it is missing or something else made it."""
        found = self.written(unit)
        document: Document | None = found["document"] if found else None
        return document

    def written(self, unit: Unit) -> Mapping[str, Any] | None:
        """The unit's document with its seconds and the versions that made it, unless something else made it."""
        try:
            found: Mapping[str, Any] = json.loads(unit.path(self.out).read_text())
        except (OSError, ValueError):
            return None
        return found if found.get("digest") == self.digest_of(unit) else None


def trained(name: str) -> bool:
    """Whether a family trains a network."""
    return bool(name) and family(name).extra is not None


def run_unit(settings: RunSettings, unit: Unit, progress: Callable[[float], None] = lambda share: None) -> str:
    """Measure one unit and write its document; returns the error, or an empty string.

    Of an unexpected error only its type and location are returned: its text may quote the data.
    """
    last = 0.0

    def watch(share: float) -> None:
        nonlocal last
        if share - last >= 0.01:
            last = share
            progress(share)

    start = time.perf_counter()
    try:
        use_device(settings.device)
        world = settings.world(unit.seed, (unit.family,) if unit.family else ())
        document = MEASUREMENTS[unit.measurement].run(world, watch)
        seconds = round(time.perf_counter() - start, 2)
        made = {
            "digest": settings.digest_of(unit),
            "seconds": seconds,
            "versions": versions(),
            "document": document,
        }
        write_whole(unit.path(settings.out), made)
    except FedrouterError as error:
        return str(error)
    except Exception as error:
        frame = traceback.extract_tb(error.__traceback__)[-1]
        return f"{type(error).__name__} at {Path(frame.filename).name}, line {frame.lineno}"
    return ""


@lru_cache(maxsize=1)
def _dataset(path: str, encoder: str) -> Dataset:
    return read(path, encoder=encoder)


def write_whole(path: Path, document: Any) -> None:
    """Write a JSON document atomically: a reader never finds half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, json.dumps(document, allow_nan=False).encode(), PUBLIC)
