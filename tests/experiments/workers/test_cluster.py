"""Documents measured on joblib backends are those of this machine's processes, and a run goes on on another one."""

import builtins
import json

import pytest

from experiments.tables import write_table
from fedrouter.errors import BadInput
from fedrouter.experiments.runner import reproduce

NAMES = ["global", "heterogeneity"]


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    return write_table(tmp_path_factory.mktemp("data") / "table.parquet")


def measured(table, out, backend, seeds=2):
    outcome = reproduce(NAMES, table, None, seeds, 2, out, 2, families=("kmeans",), backend=backend)
    assert not outcome.failed
    found = {path.relative_to(out): json.loads(path.read_text()) for path in out.glob("measured/*/*.json")}
    return outcome, {str(path): (each["digest"], each["document"]) for path, each in found.items()}


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["loky", "dask"])
def test_documents_are_those_of_this_machines_processes(table, tmp_path, backend):
    if backend == "dask":
        pytest.importorskip("distributed")
    _, here = measured(table, tmp_path / "here", None)
    _, there = measured(table, tmp_path / "there", backend)
    assert there == here


@pytest.mark.slow
def test_a_run_is_continued_on_a_real_cluster_of_two_workers(table, tmp_path, monkeypatch):
    distributed = pytest.importorskip("distributed")
    first, _ = measured(table, tmp_path, None, seeds=1)
    with distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster:
        import dask

        monkeypatch.chdir(tmp_path)
        with dask.config.set({"scheduler-address": cluster.scheduler_address}):
            second, _ = measured(table, tmp_path, "dask", seeds=3)
    assert sorted(second.found) == sorted(first.measured)
    assert {unit.seed for unit in second.measured} == {1, 2}


def test_an_unknown_backend_and_one_that_is_not_installed_are_said(table, tmp_path, monkeypatch):
    with pytest.raises(BadInput, match="--backend: expected loky, dask, ray, got 'slurm'"):
        measured(table, tmp_path, "slurm")
    plain = builtins.__import__

    def missing(name, *args, **more):
        if name == "ray":
            raise ModuleNotFoundError("No module named 'ray'", name="ray")
        return plain(name, *args, **more)

    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(BadInput, match="--backend ray: needs the package ray"):
        measured(table, tmp_path, "ray")
