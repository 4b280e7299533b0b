"""The commands of README.md ("We want to learn together") and docs/federation.md run as they are printed."""

import os
import re
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

pytest.importorskip("flwr")

from deployment.real_federation import write_logs
from fedrouter.bundle import load

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


def test_the_readme_runs_as_printed(tmp_path):
    write_logs(tmp_path)
    stop = "for each in bank clinic school coordinator; do fedrouter federation stop $each; done"
    printed = paste(commands("README.md") + stop, tmp_path)
    for words in ("3 of 3", "a total of 3 members", "What left bank", "coordinator: stopped"):
        assert words in printed


def test_the_page_on_federations_runs_as_printed_in_at_most_eight_commands_to_a_router(tmp_path):
    write_logs(tmp_path)
    blocks = commands("docs/federation.md")
    printed = paste(blocks, tmp_path)
    assert load(tmp_path / "bank" / "bundle").router.family == "bayes"
    for words in ("3 of 3", "Being a member is worth", "What left bank", "to the bit", "coordinator: stopped"):
        assert words in printed
    for name in ("bank", "clinic", "school"):  # on one terminal with the others
        assert f"{name}: masked: answered" in printed
    first = blocks.split("fedrouter federation run")[0]
    assert len(re.findall(r"^fedrouter ", first, re.MULTILINE)) + 1 <= 8
    assert len((PROJECT / "docs/federation.md").read_text().splitlines()) < 200
