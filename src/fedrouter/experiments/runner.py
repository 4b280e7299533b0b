"""Runs measurements in worker processes, one document at a time, so that an interrupted run can be resumed.

The unit of work is one measurement of one family with one seed. Its document is written atomically with a digest of
what made it: the data, the protocol, the settings, and the code that learns and measures. A document with the same
digest is never measured again, and results of different runs are never mixed.
"""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
import platform
import signal
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import fedrouter
from fedrouter.data.read import Dataset, read
from fedrouter.encoders.device import use_device
from fedrouter.encoders.encoder import Watch as EncodingWatch
from fedrouter.errors import BadInput, FedrouterError
from fedrouter.experiments.experiment import PAPER_FAMILIES, Document, Experiment, Runs, World, settings_of
from fedrouter.experiments.figures.new_models import withheld
from fedrouter.experiments.paper_protocols import ROUTERBENCH, Protocol
from fedrouter.experiments.registry import MEASUREMENTS, chosen
from fedrouter.federation.families.choice import Changes, refuse_unused
from fedrouter.federation.families.registry import family
from fedrouter.files import PUBLIC, replace_file

SEEDS, NETWORK_SEEDS = 20, 10
"""Numbers of seeds, fixed beforehand: of families that only count and solve, and of families that train a network."""
MANIFEST = "run.json"
PACKAGES = ("fedrouter", "numpy", "scikit-learn", "scipy", "torch")
ROOMS = (
    "*.py",
    "data/partition.py",
    "data/read.py",
    "data/routerbench.py",
    "data/simulator.py",
    "data/sprout.py",
    "engines/*.py",
    "experiments/protocol.py",
    "federation/*.py",
    "federation/families/*.py",
    "federation/verbs/*.py",
    "frontier/*.py",
    "routers/*.py",
)
"""The code that results depend on. An experiment's own file has the version of its measurement instead."""
Watch = Callable[[int, int, str], None]
"""Called with the number of finished units, their total, and the unit that just ended or ""."""


@dataclass(frozen=True, order=True)
class Unit:
    """One measurement of one family with one seed; without a family if it is about none."""

    measurement: str
    family: str
    seed: int

    def __str__(self) -> str:
        return f"{' '.join(filter(None, (self.measurement, self.family)))}, seed {self.seed}"

    def path(self, out: Path) -> Path:
        name = "-".join(filter(None, (self.measurement, self.family)))
        return out / "measured" / f"seed-{self.seed}" / f"{name}.json"


@dataclass(frozen=True)
class Plan:
    """What all units of a run have in common; small, because every unit takes it to its worker."""

    path: str
    encoder: str
    data_digest: str
    rounds: int
    encode: bool
    protocol: Protocol
    changes: Changes
    device: str
    out: Path

    def world(self, seed: int, families: tuple[str, ...]) -> World:
        """The input of a measurement; the data is read once in a process."""
        dataset = _dataset(self.path, self.encoder)
        return World(dataset, seed, self.rounds, self.path, self.encode, families, self.protocol, self.changes)

    def digest_of(self, unit: Unit) -> str:
        """The digest of everything that makes this unit's document."""
        measurement = MEASUREMENTS[unit.measurement]
        made: dict[str, Any] = {"measurement": measurement.name, "version": measurement.version, "code": code_digest()}
        made |= {"family": unit.family, "seed": unit.seed, "device": self.device if unit.family else "cpu"}
        if unit.family:
            made["settings"] = settings_of(unit.family, self.rounds, self.changes).to_json()
        if measurement.uses_data:
            made |= {"data": self.data_digest, "encoder": self.encoder, "encode": self.encode}
            made["protocol"] = self.protocol.to_json()
        return hashlib.sha256(json.dumps(made, sort_keys=True).encode()).hexdigest()

    def document(self, unit: Unit) -> Document | None:
        """The unit's document, unless it is missing or something else made it."""
        try:
            found: Mapping[str, Any] = json.loads(unit.path(self.out).read_text())
        except (OSError, ValueError):
            return None
        return found["document"] if found.get("digest") == self.digest_of(unit) else None


@dataclass(frozen=True)
class Outcome:
    """What a run did: units measured now, units found in ``out``, errors by unit, and how many units are missing."""

    plan: Plan
    manifest: Mapping[str, Any]
    measured: Sequence[Unit]
    found: Sequence[Unit]
    failed: Mapping[Unit, str]
    missing: int


def reproduce(
    names: Iterable[str],
    path: str | Path,
    encoder: str | None,
    seeds: int | None,
    rounds: int,
    out: Path,
    jobs: int,
    watch: Watch = lambda done, total, ended: None,
    encode: bool = False,
    encoding: EncodingWatch | None = None,
    families: Sequence[str] = PAPER_FAMILIES,
    protocol: Protocol = ROUTERBENCH,
    changes: Changes | None = None,
    device: str = "cpu",
) -> Outcome:
    """Measure what these experiments need, except what is in ``out`` already.

    Parameters
    ----------
    seeds : the number of seeds, from 0; a larger number later adds to the run. None for :data:`SEEDS`, or
        :data:`NETWORK_SEEDS` for a family that trains a network
    jobs : the number of worker processes, each with one thread
    encode : whether embeddings that the file lacks may be computed from its text, to compare encoders
    encoding : called with the progress of encoding, if the file has text but no embeddings
    families, changes : the families to compare, and settings of theirs that differ from the defaults
    device : where networks are trained
    """
    experiments = chosen(names)
    for name, value in (("seeds", seeds), ("rounds", rounds), ("jobs", jobs)):
        if value is not None and value < 1:
            raise BadInput(f"--{name}: expected at least 1, got {value}")
    for name in families:
        family(name)  # an unknown name is refused before anything is read
    device = use_device(device)
    dataset = read(path, encoder=encoder, watch=encoding)
    world = World(dataset, 0, rounds, str(path), encode, tuple(families), protocol, changes or {})
    refuse_unused(world.changes, world.settings())
    if "new-models" in {experiment.measurement.name for experiment in experiments}:
        withheld(dataset.evaluations, protocol.withheld, 0)  # too small a pool is refused before anything is measured
    plan = Plan(str(path), dataset.encoder.name, dataset.digest, rounds, encode, protocol, world.changes, device, out)
    manifest = open_folder(out, world, device)
    units = units_of(experiments, seeds, families)
    found = [unit for unit in units if plan.document(unit) is not None]
    missing = [unit for unit in units if unit not in found]
    failed: dict[Unit, str] = {}
    if missing:
        watch(len(found), len(units), "")
        for unit, problem in measure(plan, missing, min(jobs, len(missing))):
            if problem:
                failed[unit] = problem
            done = sum(each.path(out).exists() for each in units)
            watch(done, len(units), str(unit) if not problem else "")
    measured = [unit for unit in missing if unit not in failed]
    left = len(units) - len(found) - len(measured)
    return Outcome(plan, manifest, measured, found, failed, left)


def measure(plan: Plan, units: Sequence[Unit], jobs: int) -> Iterator[tuple[Unit, str]]:
    """Measure units in worker processes, and give each with its error, or an empty string, as it ends."""
    pool = ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn"), _start_worker)
    try:
        futures = {pool.submit(run_unit, plan, unit): unit for unit in units}
        for future in as_completed(futures):
            try:
                problem = future.result()
            except BrokenProcessPool:
                problem = "its process was killed, perhaps for lack of memory; start again with fewer --jobs"
            yield futures[future], problem
    except BaseException:
        # Documents are written atomically, so the workers can be stopped at any time.
        workers = list((pool._processes or {}).values())
        pool.shutdown(wait=False, cancel_futures=True)
        for worker in workers:
            worker.terminate()
        raise
    pool.shutdown()


def run_unit(plan: Plan, unit: Unit) -> str:
    """Measure one unit and write its document; returns the error, or an empty string.

    Of an unexpected error only its type and location are returned: its text may quote the data.
    """
    start = time.perf_counter()
    try:
        use_device(plan.device)
        world = plan.world(unit.seed, (unit.family,) if unit.family else ())
        document = MEASUREMENTS[unit.measurement].run(world)
        seconds = round(time.perf_counter() - start, 2)
        made = {"digest": plan.digest_of(unit), "seconds": seconds, "versions": versions(), "document": document}
        unit.path(plan.out).parent.mkdir(parents=True, exist_ok=True)
        replace_file(unit.path(plan.out), json.dumps(made, allow_nan=False).encode(), PUBLIC)
    except FedrouterError as error:
        return str(error)
    except Exception as error:
        frame = traceback.extract_tb(error.__traceback__)[-1]
        return f"{type(error).__name__} at {Path(frame.filename).name}, line {frame.lineno}"
    return ""


@lru_cache(maxsize=1)
def _dataset(path: str, encoder: str) -> Dataset:
    return read(path, encoder=encoder)


def _start_worker() -> None:
    """Initialize a worker: one thread, for the matrices are small and the cores shared; it exits with its parent."""
    from threadpoolctl import threadpool_limits

    threadpool_limits(1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_exit_with_parent, daemon=True).start()


def _exit_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


# --- What a folder holds --------------------------------------------------------------------------------------------


def open_folder(out: Path, world: World, device: str) -> dict[str, Any]:
    """The manifest of a results folder, written if the folder is new; refused if it is of another run."""
    same = {
        "data": world.dataset.name,
        "data_digest": world.dataset.digest,
        "encoder": world.dataset.encoder.name,
        "rounds": world.rounds,
        "encode": world.encode,
        "protocol": world.protocol.to_json(),
        "settings": {name: each.to_json() for name, each in world.settings().items()},
        "changes": {name: dict(each) for name, each in world.changes.items()},
    }
    same = json.loads(json.dumps(same))  # as it is read back: with lists for tuples
    path = out / MANIFEST
    if not path.exists():
        if out.exists() and any(out.iterdir() if out.is_dir() else [out]):
            raise BadInput(f"{out}: not empty and not a folder of `fedrouter reproduce`; choose another --out")
        out.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({**same, "device": device, "versions": versions()}, indent=2) + "\n")
    try:
        there = json.loads(path.read_text())
        different = list(_differences(same, {name: there.get(name) for name in same}))
    except (ValueError, AttributeError):
        raise BadInput(f"{path}: not readable as JSON; choose another --out") from None
    if different:
        raise BadInput(f"{out}: holds results of another run, which differs in {'; '.join(different)}")
    return {**same, "device": device, "versions": versions()}


def _differences(now: Any, there: Any, name: str = "") -> Iterator[str]:
    """Where two JSON values differ, entry by entry."""
    if isinstance(there, Mapping) and isinstance(now, Mapping):
        for key in dict.fromkeys([*there, *now]):
            yield from _differences(now.get(key), there.get(key), f"{name}.{key}".lstrip("."))
    elif there != now:
        yield f"{name} ({there!r} there, {now!r} now)"


def versions() -> dict[str, str]:
    """Versions of Python and of the packages that compute, in this process."""
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


@cache
def code_digest() -> str:
    """SHA-256 of the code of :data:`ROOMS`."""
    root = Path(fedrouter.__file__).parent
    found = hashlib.sha256()
    for path in sorted({path for room in ROOMS for path in root.glob(room)}):
        found.update(str(path.relative_to(root)).encode() + b"\0" + path.read_bytes())
    return found.hexdigest()


# --- Units and their documents --------------------------------------------------------------------------------------


def trained(name: str) -> bool:
    """Whether a family trains a network."""
    return bool(name) and family(name).extra is not None


def seeds_of(name: str) -> int:
    """The number of seeds of a family, unless a command says otherwise."""
    return NETWORK_SEEDS if trained(name) else SEEDS


def units_of(experiments: Iterable[Experiment], seeds: int | None, families: Sequence[str]) -> list[Unit]:
    """Everything to measure: families that train no network first, then the longest first.

    A long unit that starts last would leave the other cores idle.
    """
    measurements = {experiment.measurement.name: experiment.measurement for experiment in experiments}
    units = [
        Unit(name, each, seed)
        for name, measurement in measurements.items()
        for each in (families if measurement.by_family else ("",))
        for seed in range(seeds or seeds_of(each))
    ]
    return sorted(units, key=lambda unit: (trained(unit.family), -measurements[unit.measurement].effort, unit))


def complete(
    experiments: Iterable[Experiment], seeds: int | None, plan: Plan, families: Sequence[str], so_far: bool = False
) -> dict[str, Runs]:
    """The documents of the experiments whose measurements are complete, by experiment, in the order of seeds.

    With ``so_far``, also of the others: each family's seeds from the first to the one before the first that is missing.
    """
    runs: dict[str, Runs] = {}
    for experiment in experiments:
        measured: dict[int, list[Document]] = {}
        cut: set[str] = set()
        for unit in sorted(units_of([experiment], seeds, families)):
            document = None if unit.family in cut else plan.document(unit)
            if document is None:
                cut.add(unit.family)
            else:
                measured.setdefault(unit.seed, []).append(document)
        if measured and (so_far or not cut):
            runs[experiment.name] = [joined(measured[seed]) for seed in sorted(measured)]
    return runs


def joined(documents: Sequence[Any]) -> Any:
    """The documents of several families as one: lists are put together without repetition, objects merged."""
    first, *others = documents
    for other in others:
        if isinstance(first, dict) and isinstance(other, dict):
            shared = {key: joined([first[key], other[key]]) for key in first if key in other}
            first = {**first, **other, **shared}
        elif isinstance(first, list) and isinstance(other, list):
            first = first if first == other else first + [entry for entry in other if entry not in first]
        elif first != other:
            raise ValueError("documents of one seed that contradict each other")
    return first
