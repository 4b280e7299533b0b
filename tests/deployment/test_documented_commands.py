"""The commands of README.md ("Across machines") and docs/federation.md run as they are printed."""

import csv
import os
import re
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("flwr")

from fedrouter.bundle import load
from fedrouter.data.split import write_table

pytestmark = pytest.mark.slow
PROJECT = Path(__file__).parents[2]
MARK = "<!-- tested by: tests/deployment/test_documented_commands.py -->"


@pytest.fixture(autouse=True)
def port_is_free():
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", 9092))
        except OSError:
            pytest.skip("port 9092, which the documentation uses, is taken")


def commands(page):
    """The marked blocks of a page, in order."""
    blocks = re.findall(rf"{re.escape(MARK)}\n```sh\n(.*?)```", (PROJECT / page).read_text(), re.DOTALL)
    assert blocks
    return "".join(blocks)


def paste(text, folder):
    """Run commands in one shell, as someone does who pastes them; what they print."""
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    # To a file: processes in the background would keep a pipe open.
    with (folder / "output").open("w+") as output:
        shell = subprocess.Popen(
            ["bash", "-euo", "pipefail", "-c", text],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            status = shell.wait(1200)
        finally:
            # What commands that failed have left running; Flower's processes end with them.
            with suppress(ProcessLookupError):
                os.killpg(shell.pid, signal.SIGTERM)
        output.seek(0)
        printed = output.read()
    assert status == 0, printed
    return printed


def test_the_readme_runs_as_printed(world, tmp_path):
    evaluations = world.evaluations
    grid, draw = evaluations.grid(), np.random.default_rng(0)
    for at, name in enumerate(("bank", "clinic", "school")):
        with (tmp_path / f"{name}.csv").open("w", newline="") as file:
            lines = csv.writer(file)
            lines.writerow(["prompt", "model", "accuracy", "cost"])
            for query in range(at, 300, 3):
                for model in draw.permutation(4)[:2]:
                    row = (query, model)
                    lines.writerow(
                        [evaluations.text[query], evaluations.pool.names[model], grid.accuracy[row], grid.cost[row]]
                    )
    printed = paste(commands("README.md"), tmp_path)
    assert list(load(tmp_path / "federated").clients) == ["bank", "clinic", "school"]
    for words in ("bank, clinic, school answered", "statistics", "coordinator: stopped"):
        assert words in printed


def test_the_page_on_federations_runs_as_printed(world, tmp_path):
    some = np.sort(np.random.default_rng(0).permutation(world.evaluations.queries)[:600])
    write_table(tmp_path / "routerbench.parquet", world.evaluations.of_queries(some), world.encoder)
    printed = paste(commands("docs/federation.md"), tmp_path)
    assert list(load(tmp_path / "router").clients) == ["client-1", "client-2", "client-3"]
    assert list(load(tmp_path / "joined").clients) == ["client-1", "client-2", "client-3", "client-4"]
    assert "coordinator: stopped" in printed
