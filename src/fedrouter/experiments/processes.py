"""Units in worker processes of this machine, with one thread each; the parent sees how far each unit is."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing.queues import SimpleQueue

from fedrouter.experiments.units import RunSettings, Unit, Watch, run_unit

TICK = 0.25
"""Seconds between two updates of the progress."""
ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")


def measure_in_processes(
    settings: RunSettings, units: Sequence[Unit], before: int, jobs: int, watch: Watch
) -> dict[Unit, str]:
    """Measure these units in worker processes; returns errors by unit."""
    spawn = multiprocessing.get_context("spawn")
    progress: SimpleQueue[tuple[Unit, float]] = spawn.SimpleQueue()
    total, shares, failed = before + len(units), dict.fromkeys(units, 0.0), dict[Unit, str]()
    others = set(multiprocessing.active_children())
    with one_thread():
        pool = ProcessPoolExecutor(jobs, spawn, _start_worker, (progress,))
        try:
            futures = {pool.submit(_run, settings, unit): unit for unit in units}
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
def one_thread() -> Iterator[None]:
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


def _run(settings: RunSettings, unit: Unit) -> str:
    """Measure a unit and tell the parent how far it is."""
    assert _progress is not None
    queue = _progress
    return run_unit(settings, unit, lambda share: queue.put((unit, share)))


def _exit_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)
