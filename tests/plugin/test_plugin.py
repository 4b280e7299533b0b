"""A family and a verb in a package of their own work everywhere, without a change in fedrouter."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

import fedrouter
from fedrouter.bundle import load
from fedrouter.errors import BadBundle

HERE = Path(__file__).parent
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def environment(tmp_path_factory) -> dict[str, str]:
    """An environment in which the package is installed, and only here."""
    folder = tmp_path_factory.mktemp("environment")
    source = shutil.copytree(HERE / "fedrouter_median", folder / "source")
    site = folder / "site"
    install = ["install", "--quiet", "--no-index", "--no-deps", "--no-build-isolation", "--target", site, source]
    subprocess.run([sys.executable, "-m", "pip", "--disable-pip-version-check", *map(str, install)], check=True)
    paths = [str(site), str(Path(fedrouter.__file__).parents[1])]
    return os.environ | {"PYTHONPATH": os.pathsep.join(paths)}


@pytest.fixture(scope="module")
def table(tmp_path_factory, world) -> Path:
    """A part of the simulated world in RouterBench's layout."""
    some = world.evaluations.of_queries(np.arange(0, world.evaluations.queries, 20))
    grid = some.grid()
    columns = {"prompt": list(some.text), "eval_name": list(some.task)}
    for index, name in enumerate(grid.pool.names):
        columns |= {name: grid.accuracy[:, index], f"{name}|total_cost": grid.cost[:, index]}
    columns["static_embedding"] = [vector.tolist() for vector in some.embeddings]
    path = tmp_path_factory.mktemp("data") / "table.parquet"
    pyarrow.parquet.write_table(pa.table(columns), path)
    return path


@pytest.fixture(scope="module")
def journey(environment, table, tmp_path_factory) -> dict:
    out = tmp_path_factory.mktemp("journey")
    program = [sys.executable, str(HERE / "journey.py"), str(table), str(out)]
    done = subprocess.run(program, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout.splitlines()[-1])


def test_the_registries_and_the_help_list_them(journey):
    assert "median" in journey["families"]
    assert "cost_histogram" in journey["verbs"]
    assert "median" in journey["help"]


def test_simulate_and_reproduce_measure_the_family(journey):
    assert 0 < journey["simulated"]["median"]["global"]["auc"] < 1
    assert {"federated median", "local median", "oracle"} <= set(journey["reproduced"])
    assert "global-median" in journey["claims"]


def test_its_bundle_is_loaded_routed_and_served(journey):
    assert journey["family"] == "median"
    assert journey["known_models"] == 12
    assert journey["routed"]["family"] == "median"
    assert journey["routed"]["model"] == journey["routed"]["ranking"][0]["model"]
    assert journey["served"]["choices"] == 1
    assert journey["served"]["reason"] == "best"


def test_the_family_and_the_verb_keep_their_contracts(journey):
    assert journey["contract"] == {}


def test_without_the_package_its_bundle_is_refused_with_the_reason(journey):
    with pytest.raises(BadBundle, match=r"'median': expected one of bayes, kmeans.*package is not installed"):
        load(journey["bundle"])
