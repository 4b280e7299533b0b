"""Runs measurements in parallel worker processes, one document at a time, so that an interrupted run can be resumed.

The unit of work is one measurement of one seed. Its document is written atomically, and a document that exists is never
measured again.
"""

from __future__ import annotations

import json
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
from fedrouter.encoders.sentence import Watch as EncodingWatch
from fedrouter.errors import BadInput, FedrouterError
from fedrouter.experiments.experiment import PAPER_FAMILIES, Experiment, Runs, World
from fedrouter.experiments.registry import MEASUREMENTS, chosen
from fedrouter.experiments.run_manifest import RunManifest
from fedrouter.federation.families.registry import family
from fedrouter.files import PUBLIC, replace_file

Watch = Callable[[float, int, str], None]
"""Called with the number of finished units, fractions included, their total, and the unit that just ended or ""."""
TICK = 0.25
"""Seconds between two updates of the progress."""
ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")


@dataclass(frozen=True, order=True)
class Unit:
    """One measurement of one seed."""

    measurement: str
    seed: int

    def __str__(self) -> str:
        return f"{self.measurement}, seed {self.seed}"

    def document(self, out: Path) -> Path:
        return out / "measured" / f"seed-{self.seed}" / f"{self.measurement}.json"


@dataclass(frozen=True)
class RunSettings:
    """What all units of a run have in common."""

    path: str
    encoder: str
    rounds: int
    encode: bool
    families: tuple[str, ...]
    out: Path


@dataclass(frozen=True)
class Outcome:
    """What a run did: units measured now, units found in ``out``, and errors by unit. The documents are in ``out``."""

    manifest: RunManifest
    measured: Sequence[Unit]
    found: Sequence[Unit]
    failed: Mapping[Unit, str]


def reproduce(
    names: Iterable[str],
    path: str | Path,
    encoder: str | None,
    seeds: int,
    rounds: int,
    out: Path,
    jobs: int,
    watch: Watch = lambda done, total, ended: None,
    encode: bool = False,
    encoding: EncodingWatch | None = None,
    families: Sequence[str] = PAPER_FAMILIES,
) -> Outcome:
    """Measure what these experiments need, except what is in ``out`` already.

    Parameters
    ----------
    seeds : the number of seeds, from 0; a larger number later adds to the run
    jobs : the number of worker processes, each with one thread
    encode : whether embeddings that the file lacks may be computed from its text, to compare encoders
    encoding : called with the progress of encoding, if the file has text but no embeddings
    families : the families to compare
    """
    experiments = chosen(names)
    for name, value in (("seeds", seeds), ("rounds", rounds), ("jobs", jobs)):
        if value < 1:
            raise BadInput(f"--{name}: expected at least 1, got {value}")
    for name in families:
        family(name)  # an unknown name is refused before anything is read
    dataset = read(path, encoder=encoder, watch=encoding)
    manifest = RunManifest.of(World(dataset, 0, rounds, str(path), encode, tuple(families)))
    manifest.open_folder(out)
    settings = RunSettings(str(path), dataset.encoder.name, rounds, encode, tuple(families), out)
    units = units_of(experiments, seeds)
    found = [unit for unit in units if unit.document(out).exists()]
    missing = [unit for unit in units if unit not in found]
    failed = _measure(settings, missing, len(found), min(jobs, len(missing)), watch) if missing else {}
    return Outcome(manifest, [unit for unit in missing if unit not in failed], found, failed)


def units_of(experiments: Iterable[Experiment], seeds: int) -> list[Unit]:
    """Everything to measure, longest first: a long unit that starts last would leave the other cores idle."""
    measurements = {experiment.measurement.name: experiment.measurement for experiment in experiments}
    units = [
        Unit(name, seed)
        for name, measurement in measurements.items()
        for seed in range(1 if measurement.first_seed_only else seeds)
    ]
    return sorted(units, key=lambda unit: (-measurements[unit.measurement].effort, unit))


def complete(experiments: Iterable[Experiment], seeds: int, out: Path) -> dict[str, Runs]:
    """The documents of the experiments whose measurements are complete, by experiment, in the order of seeds."""
    runs: dict[str, Runs] = {}
    for experiment in experiments:
        paths = [unit.document(out) for unit in sorted(units_of([experiment], seeds))]
        if all(path.exists() for path in paths):
            runs[experiment.name] = [json.loads(path.read_text())["document"] for path in paths]
    return runs


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
        dataset = _dataset(settings.path, settings.encoder)
        world = World(dataset, unit.seed, settings.rounds, settings.path, settings.encode, settings.families)
        document = MEASUREMENTS[unit.measurement].run(world, watch)
        seconds = round(time.perf_counter() - start, 2)
        write_whole(unit.document(settings.out), {"seconds": seconds, "document": document})
    except FedrouterError as error:
        return str(error)
    except Exception as error:
        frame = traceback.extract_tb(error.__traceback__)[-1]
        return f"{type(error).__name__} at {Path(frame.filename).name}, line {frame.lineno}"
    return ""


@lru_cache(maxsize=1)
def _dataset(path: str, encoder: str) -> Dataset:
    """The data, read once in a process."""
    return read(path, encoder=encoder)


def write_whole(path: Path, document: Any) -> None:
    """Write a JSON document atomically: a reader never finds half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, json.dumps(document, allow_nan=False).encode(), PUBLIC)
