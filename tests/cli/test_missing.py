"""A command whose extra is missing says in one line what to install, and a failed start does not block the next."""

import socket
import subprocess
import sys

import pytest

from cli.command import run

WITHOUT = "import sys; sys.modules[sys.argv.pop(1)] = None; from fedrouter.cli.main import main; main()"


@pytest.mark.parametrize(
    ("module", "extra", "command"),
    [
        ("matplotlib", "plots", ("demo",)),
        ("granian", "serve", ("demo",)),
        ("matplotlib", "plots", ("evaluate", "bundle", "log.csv", "--out", "out.png")),
        ("sqlalchemy", "serve", ("usage",)),
        ("sqlalchemy", "serve", ("key", "list")),
        ("sqlalchemy", "serve", ("bundle", "rollback")),
    ],
)
def test_a_missing_extra_is_one_line(module, extra, command, tmp_path):
    line = [sys.executable, "-c", WITHOUT, module, *command]
    done = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2, done.stderr
    assert done.stderr.count("\n") == 1
    assert f"pip install 'fedrouter[{extra}]'" in done.stderr
    assert not list(tmp_path.iterdir())


def test_a_coordinator_without_flower_says_what_to_install(tmp_path):
    home = tmp_path / "coordinator"
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    assert run("federation", "init", home, "--host", "localhost", "--port", port).returncode == 0
    line = [sys.executable, "-c", WITHOUT, "flwr", "federation", "coordinator", str(home)]
    done = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert "pip install 'fedrouter[flower]'" in done.stderr


def test_a_wrong_file_name_does_not_block_the_folder_for_the_next_try(tmp_path):
    for name in ("wrong.parquet", "wrong-again.parquet"):
        done = run("simulate", "--data", tmp_path / name, "--out", tmp_path / "out")
        assert f"{name}: no such file" in done.stderr
