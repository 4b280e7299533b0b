"""Measures what experiments need, in parallel and one document at a time, so that a stopped run goes on where it was.

The unit of work is one measurement of one seed. Its document is written whole or not at all, and what is written is
never measured again.
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
from fedrouter.experiments.experiment import Experiment, Runs, World
from fedrouter.experiments.record import Record
from fedrouter.experiments.registry import MEASUREMENTS, chosen
from fedrouter.files import PUBLIC, replace_file

Watch = Callable[[float, int, str], None]
"""Told how many units of how many are done, fractions included, and what has just ended ("" most of the time)."""
TICK = 0.25
"""Seconds between two looks at how the workers get on."""
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
class Job:
    """What is the same for every unit of a run."""

    path: str
    encoder: str
    rounds: int
    encode: bool
    out: Path


@dataclass(frozen=True)
class Outcome:
    """What a run did: units measured, units found done, and by unit what went wrong. The documents lie in ``out``."""

    record: Record
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
) -> Outcome:
    """Measure what these experiments need, except what lies in ``out`` already.

    Parameters
    ----------
    seeds : how many; they are counted from 0, so a larger number later adds to the run
    jobs : how many processes work at a time, each on one thread
    encode : whether embeddings that the file lacks may be made from its text, to compare encoders
    encoding : told the progress of encoding, where the file has text but no embeddings
    """
    experiments = chosen(names)
    for name, value in (("seeds", seeds), ("rounds", rounds), ("jobs", jobs)):
        if value < 1:
            raise BadInput(f"--{name}: expected at least 1, got {value}")
    dataset = read(path, encoder=encoder, watch=encoding)
    record = Record.of(World(dataset, 0, rounds, str(path), encode))
    record.claim(out)
    job = Job(str(path), dataset.encoder.name, rounds, encode, out)
    units = units_of(experiments, seeds)
    found = [unit for unit in units if unit.document(out).exists()]
    missing = [unit for unit in units if unit not in found]
    failed = _measure(job, missing, len(found), min(jobs, len(missing)), watch) if missing else {}
    return Outcome(record, [unit for unit in missing if unit not in failed], found, failed)


def units_of(experiments: Iterable[Experiment], seeds: int) -> list[Unit]:
    """Everything to measure, what takes longest first: a long unit that starts last leaves the other cores idle."""
    measurements = {experiment.measurement.name: experiment.measurement for experiment in experiments}
    units = [
        Unit(name, seed)
        for name, measurement in measurements.items()
        for seed in range(1 if measurement.first_seed_only else seeds)
    ]
    return sorted(units, key=lambda unit: (-measurements[unit.measurement].effort, unit))


def complete(experiments: Iterable[Experiment], seeds: int, out: Path) -> dict[str, Runs]:
    """The documents of the experiments that miss none, by experiment, in the order of seeds."""
    runs: dict[str, Runs] = {}
    for experiment in experiments:
        paths = [unit.document(out) for unit in sorted(units_of([experiment], seeds))]
        if all(path.exists() for path in paths):
            runs[experiment.name] = [json.loads(path.read_text())["document"] for path in paths]
    return runs


def _measure(job: Job, units: Sequence[Unit], before: int, jobs: int, watch: Watch) -> dict[Unit, str]:
    """Measure these units in worker processes; what went wrong, by unit."""
    spawn = multiprocessing.get_context("spawn")
    told: SimpleQueue[tuple[Unit, float]] = spawn.SimpleQueue()
    total, shares, failed = before + len(units), dict.fromkeys(units, 0.0), dict[Unit, str]()
    others = set(multiprocessing.active_children())
    with _one_thread():
        pool = ProcessPoolExecutor(jobs, spawn, _enter, (told,))
        try:
            futures = {pool.submit(_work, job, unit): unit for unit in units}
            pending: set[Future[str]] = set(futures)
            watch(before, total, "")
            while pending:
                done, pending = wait(pending, TICK, FIRST_COMPLETED)
                while not told.empty():
                    unit, share = told.get()
                    shares[unit] = share
                watch(before + sum(shares.values()), total, "")
                for future in done:
                    unit = futures[future]
                    shares[unit] = 1.0
                    try:
                        problem = future.result()
                    except BrokenProcessPool:
                        problem = "its process was killed, perhaps for want of memory; start again with fewer --jobs"
                    if problem:
                        failed[unit] = problem
                    watch(before + sum(shares.values()), total, str(unit) if not problem else "")
        except BaseException:
            # Documents are whole or absent, so the workers may be stopped wherever they are.
            pool.shutdown(wait=False, cancel_futures=True)
            for child in set(multiprocessing.active_children()) - others:
                child.terminate()
            raise
        pool.shutdown()
    return failed


@contextmanager
def _one_thread() -> Iterator[None]:
    """Processes started in here compute on one thread each: these matrices are small, and the cores are shared."""
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


_told: SimpleQueue[tuple[Unit, float]] | None = None


def _enter(told: SimpleQueue[tuple[Unit, float]]) -> None:
    """What a worker does first: leave Ctrl-C to the parent, and never outlive it."""
    global _told
    _told = told
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_leave_with_parent, daemon=True).start()


def _leave_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _work(job: Job, unit: Unit) -> str:
    """Measure one unit and write its document; what went wrong, or nothing.

    An unexpected error is told by its kind and place alone: its text may quote the data.
    """
    last = 0.0

    def watch(share: float) -> None:
        nonlocal last
        if share - last >= 0.01 and _told is not None:
            last = share
            _told.put((unit, share))

    start = time.perf_counter()
    try:
        world = World(_dataset(job.path, job.encoder), unit.seed, job.rounds, job.path, job.encode)
        document = MEASUREMENTS[unit.measurement].run(world, watch)
        seconds = round(time.perf_counter() - start, 2)
        write_whole(unit.document(job.out), {"seconds": seconds, "document": document})
    except FedrouterError as error:
        return str(error)
    except Exception as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        return f"{type(error).__name__} at {Path(place.filename).name}, line {place.lineno}"
    return ""


@lru_cache(maxsize=1)
def _dataset(path: str, encoder: str) -> Dataset:
    """The data, read once in a process."""
    return read(path, encoder=encoder)


def write_whole(path: Path, document: Any) -> None:
    """Write a JSON document atomically: a reader never finds half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, json.dumps(document, allow_nan=False).encode(), PUBLIC)
