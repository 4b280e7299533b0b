"""The benchmark of real processes starts every client that it counts on, also ten, and says so where one does not."""

import runpy
from pathlib import Path

import pyarrow
import pytest
from pyarrow import parquet

pytest.importorskip("flwr")

from fedrouter.deployment.coordinator.enrollment import control_of
from fedrouter.deployment.state.directories import open_coordinator

pytestmark = pytest.mark.slow
BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "federation.py"


@pytest.fixture(scope="module")
def table(world, tmp_path_factory):
    """The simulated world in RouterBench's layout."""
    everything = world.evaluations
    grid, path = everything.grid(), tmp_path_factory.mktemp("data") / "world.parquet"
    columns = {
        "prompt": list(everything.text),
        "eval_name": list(everything.task),
        "static_embedding": everything.embeddings.tolist(),
    }
    for index, name in enumerate(everything.pool.names):
        columns |= {name: grid.accuracy[:, index], f"{name}|total_cost": grid.cost[:, index]}
    parquet.write_table(pyarrow.table(columns), path)
    return path


def test_all_of_ten_client_processes_connect(table, tmp_path):
    deployment = runpy.run_path(str(BENCHMARK))["Deployment"](tmp_path, table, 10, 0.0)
    try:
        nodes = control_of(open_coordinator(tmp_path / "coordinator")).nodes()
        assert [node.online for node in nodes] == [True] * 10
    finally:
        deployment.stop()
    assert all(process.returncode == 0 for process in deployment.processes)


def test_a_process_that_does_not_start_ends_the_benchmark_with_its_reason(tmp_path):
    kind = runpy.run_path(str(BENCHMARK))["Deployment"]
    deployment = kind.__new__(kind)
    deployment.processes = []
    with pytest.raises(RuntimeError, match="not a state directory"):
        deployment._start("federation", "client", str(tmp_path / "nobody"), "--json")
