"""Every command that takes --device says the same line where there is no GPU."""

import pytest

from cli.command import run
from fedrouter.encoders import device

torch = pytest.importorskip("torch")

COMMANDS = {
    "simulate": ("simulate", "--data", "table.csv", "--out", "out"),
    "reproduce": ("reproduce", "global", "--data", "table.csv", "--out", "out"),
}


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_a_gpu_that_is_absent_is_one_line_before_anything_is_read_or_written(command, tmp_path, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    done = run(*command, "--device", "cuda", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr == "error --device cuda: torch finds no CUDA device here; use --device cpu\n"
    assert not list(tmp_path.iterdir())
    assert device.training_device() == "cpu"
