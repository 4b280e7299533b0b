"""A family in a package of its own, `examples/own_family.py`, works everywhere without a change in fedrouter."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import fedrouter
from conftest import PROJECT
from fedrouter.bundle import load
from fedrouter.data.split import write_table
from fedrouter.errors import BadBundle

FEW = ("--clients", 3, "--privacy", "open", "--json")  # the table is small

CONTRACT = """
from fedrouter.federation.families.registry import FAMILIES
from fedrouter.testing.families import check_family

check_family(FAMILIES["random_regions"])
"""


@pytest.fixture(scope="module")
def environment(tmp_path_factory) -> dict[str, str]:
    """An environment in which the package is installed, as pip leaves it, and only here."""
    site = tmp_path_factory.mktemp("site")
    shutil.copy(PROJECT / "examples" / "own_family.py", site)
    metadata = site / "own_family-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: own_family\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("[fedrouter.families]\nrandom_regions = own_family:FAMILY\n")
    paths = [str(site), str(Path(fedrouter.__file__).parents[1])]
    return os.environ | {"PYTHONPATH": os.pathsep.join(paths)}


def command(environment, *arguments):
    program = [sys.executable, "-c", "from fedrouter.cli.main import main; main()", *map(str, arguments)]
    done = subprocess.run(program, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_it_keeps_the_contract_of_families(environment):
    subprocess.run([sys.executable, "-c", CONTRACT], env=environment, check=True)


def test_every_command_knows_it_and_its_bundle(environment, world, tmp_path):
    data = tmp_path / "table.parquet"
    write_table(data, world.evaluations.of_queries(np.arange(0, world.evaluations.queries, 10)), world.encoder)
    assert "random_regions" in command(environment | {"COLUMNS": "400"}, "simulate", "--help")
    simulated = json.loads(
        command(environment, "simulate", "--data", data, "--router", "random_regions", *FEW, "--out", tmp_path / "out")
    )
    assert 0 < simulated["results"]["federated"]["random_regions"]["global"]["auc"] < 1
    routed = json.loads(command(environment, "route", simulated["bundle"], "Count orders.", "--tradeoff", 9, "--json"))
    assert routed["family"] == "random_regions"
    with pytest.raises(BadBundle, match=r"'random_regions': expected one of bayes, kmeans.*package is not installed"):
        load(simulated["bundle"])  # without the package
