"""Runs measurements in parallel worker processes, one document at a time, so that an interrupted run can be resumed.

The unit of work is one measurement of one family with one seed. Its document is written atomically with a digest of
what made it; a document that exists with the same digest is never measured again.
"""

from __future__ import annotations

import json
import math
import multiprocessing
import os
import signal
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from multiprocessing.queues import SimpleQueue
from pathlib import Path
from typing import Any

from fedrouter.data.read import Dataset, read
from fedrouter.encoders.encoder import Watch as EncodingWatch
from fedrouter.errors import BadInput, FedrouterError
from fedrouter.experiments.choice import Changes, refuse_unused
from fedrouter.experiments.experiment import PAPER_FAMILIES, Document, Experiment, Runs, World, settings_of
from fedrouter.experiments.figures.new_models import withheld
from fedrouter.experiments.paper_protocols import ROUTERBENCH, Protocol
from fedrouter.experiments.provenance import code_digest, digest
from fedrouter.experiments.registry import MEASUREMENTS, chosen
from fedrouter.experiments.run_manifest import RunManifest, versions
from fedrouter.federation.device import use_device
from fedrouter.federation.families.registry import family
from fedrouter.files import PUBLIC, replace_file

Watch = Callable[[float, int, str], None]
"""Called with the number of finished units, fractions included, their total, and the unit that just ended or ""."""
ROUNDING = 1e-9
TICK = 0.25
"""Seconds between two updates of the progress."""
ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")


SEEDS, NETWORK_SEEDS = 20, 10
"""Numbers of seeds, fixed beforehand: of families that only count and solve, and of families that train a network."""


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
        made_by["device"] = self.device if measurement.uses_device and _trained(unit.family) else "any"
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


@dataclass(frozen=True)
class Outcome:
    """What a run did: units measured now, units found in ``out``, errors by unit, and how many units are missing."""

    manifest: RunManifest
    measured: Sequence[Unit]
    found: Sequence[Unit]
    failed: Mapping[Unit, str]
    missing: int
    settings: RunSettings


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
    so_far: bool = False,
) -> Outcome:
    """Measure what these experiments need, except what is in ``out`` already.

    Parameters
    ----------
    seeds : the number of seeds, from 0; a larger number later adds to the run. None for :data:`SEEDS`, or
        :data:`NETWORK_SEEDS` for a family that trains a network
    jobs : the number of worker processes, each with one thread
    encode : whether embeddings that the file lacks may be computed from its text, to compare encoders
    encoding : called with the progress of encoding, if the file has text but no embeddings
    families, changes : the families to compare, and settings of theirs that differ from the paper's or the defaults
    device : where networks are trained
    so_far : measure nothing, and only say what was found
    """
    experiments = chosen(names)
    for name, value in (("seeds", seeds), ("rounds", rounds), ("jobs", jobs)):
        if value is not None and value < 1:
            raise BadInput(f"--{name}: expected at least 1, got {value}")
    for name in families:
        family(name)  # an unknown name is refused before anything is read
    units = units_of(experiments, seeds, families)
    if not units:
        raise BadInput("; ".join(left_out(experiments, families)))
    if not so_far:
        device = use_device(device)
    dataset = read(path, encoder=encoder, watch=encoding)
    world = World(dataset, 0, rounds, str(path), encode, tuple(families), protocol, changes or {})
    refuse_unused(world.changes, world.settings())
    if "new-models" in {experiment.measurement.name for experiment in experiments}:
        withheld(dataset.evaluations, protocol.withheld, 0)  # too small a pool is refused before anything is measured
    manifest = RunManifest.of(world, device)
    manifest.open_folder(out)
    settings = RunSettings(
        str(path),
        dataset.encoder.name,
        rounds,
        encode,
        tuple(families),
        protocol,
        world.changes,
        device,
        out,
        manifest.same,
    )
    found = [unit for unit in units if settings.document(unit) is not None]
    missing = [] if so_far else [unit for unit in units if unit not in found]
    failed = _measure(settings, missing, len(found), min(jobs, len(missing)), watch) if missing else {}
    measured = [unit for unit in missing if unit not in failed]
    return Outcome(manifest, measured, found, failed, len(units) - len(found) - len(measured), settings)


def units_of(experiments: Iterable[Experiment], seeds: int | None, families: Sequence[str]) -> list[Unit]:
    """Everything to measure: families that train no network first, then the longest first.

    A long unit that starts last would leave the other cores idle.
    """
    measurements = {experiment.measurement.name: experiment.measurement for experiment in experiments}
    units = [
        Unit(name, each, seed)
        for name, measurement in measurements.items()
        for each in measurement.measured(families)
        for seed in range(seeds or seeds_of(each))
    ]
    return sorted(units, key=lambda unit: (_trained(unit.family), -measurements[unit.measurement].effort, unit))


def left_out(experiments: Iterable[Experiment], families: Sequence[str]) -> list[str]:
    """For each experiment that measures none of these families, what it is about."""
    return [
        f"{each.name}: is about {' and '.join(each.measurement.families or ())}, "
        f"but --router chose {', '.join(families)}"
        for each in experiments
        if not each.measurement.measured(families)
    ]


def seeds_of(name: str) -> int:
    """The number of seeds of a family, unless a command says otherwise."""
    return NETWORK_SEEDS if _trained(name) else SEEDS


def _trained(name: str) -> bool:
    return bool(name) and family(name).extra is not None


def complete(
    experiments: Iterable[Experiment], seeds: int | None, settings: RunSettings, so_far: bool = False
) -> dict[str, Runs]:
    """The documents of the experiments whose measurements are complete, by experiment, in the order of seeds.

    With ``so_far``, also of the others: each family's seeds from the first to the one before the first that is missing.
    """
    runs: dict[str, Runs] = {}
    for experiment in experiments:
        measured: dict[int, list[Document]] = {}
        cut: set[str] = set()
        for unit in sorted(units_of([experiment], seeds, settings.families)):
            document = None if unit.family in cut else settings.document(unit)
            if document is None:
                cut.add(unit.family)
            else:
                measured.setdefault(unit.seed, []).append(document)
        if measured and (so_far or not cut):
            runs[experiment.name] = [joined(measured[seed]) for seed in sorted(measured)]
    return runs


def joined(documents: Sequence[Any]) -> Any:
    """The documents of several families as one: lists are put together without repetition, objects merged.

    Documents may come from different machines, so numbers that differ only by rounding are equal.
    """
    first, *others = documents
    for other in others:
        if equal(first, other):
            continue
        if isinstance(first, dict) and isinstance(other, dict):
            shared = {key: joined([first[key], other[key]]) for key in first if key in other}
            first = {**first, **other, **shared}
        elif isinstance(first, list) and isinstance(other, list):
            first = first + [entry for entry in other if not any(equal(entry, known) for known in first)]
        else:
            raise ValueError("documents of one seed that contradict each other")
    return first


def equal(one: Any, other: Any) -> bool:
    """Whether two JSON values are the same, numbers up to rounding."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(equal(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(equal, one, other))
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=ROUNDING, abs_tol=ROUNDING**2)
    return bool(one == other)


def _measure(settings: RunSettings, units: Sequence[Unit], before: int, jobs: int, watch: Watch) -> dict[Unit, str]:
    """Measure these units in worker processes; returns errors by unit."""
    spawn = multiprocessing.get_context("spawn")
    progress: SimpleQueue[tuple[Unit, float]] = spawn.SimpleQueue()
    total, shares, failed = before + len(units), dict.fromkeys(units, 0.0), dict[Unit, str]()
    others = set(multiprocessing.active_children())
    with _one_thread():
        pool = ProcessPoolExecutor(jobs, spawn, _start_worker, (progress,))
        try:
            futures = {pool.submit(run_unit, settings, unit): unit for unit in units}
            pending: set[Future[str]] = set(futures)
            watch(before, total, "")
            while pending:
                done, pending = wait(pending, TICK, FIRST_COMPLETED)
                while not progress.empty():
                    unit, share = progress.get()
                    shares[unit] = share
                watch(before + sum(shares.values()), total, "")
                for future in done:
                    unit = futures[future]
                    shares[unit] = 1.0
                    try:
                        problem = future.result()
                    except BrokenProcessPool:
                        problem = "its process was killed, perhaps for lack of memory; start again with fewer --jobs"
                    if problem:
                        failed[unit] = problem
                    watch(before + sum(shares.values()), total, str(unit) if not problem else "")
        except BaseException:
            # Documents are written atomically, so the workers can be stopped at any time.
            pool.shutdown(wait=False, cancel_futures=True)
            for child in set(multiprocessing.active_children()) - others:
                child.terminate()
            raise
        pool.shutdown()
    return failed


@contextmanager
def _one_thread() -> Iterator[None]:
    """Processes started in this block use one thread each: the matrices are small, and the cores are shared."""
    before = {name: os.environ.get(name) for name in ONE_THREAD}
    os.environ |= dict.fromkeys(ONE_THREAD, "1")
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


_progress: SimpleQueue[tuple[Unit, float]] | None = None


def _start_worker(progress: SimpleQueue[tuple[Unit, float]]) -> None:
    """Initialize a worker: the parent handles Ctrl-C, and the worker exits when the parent does."""
    global _progress
    _progress = progress
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_exit_with_parent, daemon=True).start()


def _exit_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def run_unit(settings: RunSettings, unit: Unit) -> str:
    """Measure one unit and write its document; returns the error, or an empty string.

    Of an unexpected error only its type and location are returned: its text may quote the data.
    """
    last = 0.0

    def watch(share: float) -> None:
        nonlocal last
        if share - last >= 0.01 and _progress is not None:
            last = share
            _progress.put((unit, share))

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
