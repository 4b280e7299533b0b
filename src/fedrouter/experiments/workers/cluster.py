"""Units on a joblib backend: loky's processes, or the workers of a Dask or Ray cluster on many machines.

Workers read the data file and write documents into the run's folder, so every machine must have both at the same path.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from fedrouter.errors import BadInput
from fedrouter.experiments.units import RunSettings, Unit, Watch, run_unit

BACKENDS = ("loky", "dask", "ray")


def measure_on(
    backend: str, settings: RunSettings, units: Sequence[Unit], before: int, jobs: int, watch: Watch
) -> dict[Unit, str]:
    """Measure these units on a backend; returns errors by unit."""
    from joblib import Parallel, delayed

    settings = replace(settings, path=str(Path(settings.path).resolve()), out=settings.out.resolve())
    total, left, failed = before + len(units), set(units), dict[Unit, str]()
    watch(before, total, "")
    with _entered(backend, jobs):
        try:
            at_once = backend == "ray"  # whose backend cannot hand over results one by one
            for unit, problem in Parallel(return_as="list" if at_once else "generator_unordered", batch_size=1)(
                delayed(_labeled)(settings, unit) for unit in units
            ):
                left.remove(unit)
                if problem:
                    failed[unit] = problem
                watch(total - len(left), total, str(unit) if not problem else "")
        except Exception as error:  # a worker was lost, or the cluster; its documents are whole or absent
            failed |= dict.fromkeys(left, f"{backend} ended with {type(error).__name__}")
    return failed


def _labeled(settings: RunSettings, unit: Unit) -> tuple[Unit, str]:
    return unit, run_unit(settings, unit)


@contextmanager
def _entered(backend: str, jobs: int) -> Iterator[None]:
    """A block in which joblib uses the backend.

    Dask connects to the scheduler that its configuration names (DASK_SCHEDULER_ADDRESS), Ray to RAY_ADDRESS; without
    one they start ``jobs`` workers on this machine.
    """
    from joblib import parallel_config

    with ExitStack() as stack:
        try:
            if backend == "dask":
                import dask
                import distributed

                connect: Any = distributed.Client
                known = dask.config.get("scheduler-address", None) is not None
                stack.enter_context(connect() if known else connect(n_workers=jobs, threads_per_worker=1))
                stack.enter_context(parallel_config("dask", wait_for_workers_timeout=60))
            elif backend == "ray":
                import ray
                from ray.util.joblib import register_ray

                ray.init(**({} if os.environ.get("RAY_ADDRESS") else {"num_cpus": jobs}))
                stack.callback(ray.shutdown)
                register_ray()
                stack.enter_context(parallel_config("ray", n_jobs=-1))
            else:
                stack.enter_context(parallel_config(backend, n_jobs=jobs, inner_max_num_threads=1))
        except ImportError as error:
            raise BadInput(f"--backend {backend}: needs the package {error.name} (pip install {error.name})") from None
        yield
