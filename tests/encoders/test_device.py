"""Where networks are trained: what is asked for is used, or refused in one line."""

import pytest

from fedrouter.encoders import device
from fedrouter.errors import BadInput

torch = pytest.importorskip("torch")


@pytest.fixture(autouse=True)
def unchanged(monkeypatch):
    monkeypatch.setattr(device, "_device", "cpu")


def test_auto_takes_a_gpu_if_there_is_one(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    device.use_device("auto")
    assert device.training_device() == "cpu"
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    device.use_device("auto")
    assert device.training_device() == "cuda"


def test_a_gpu_that_is_absent_is_refused_and_nothing_changes(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(BadInput, match="torch finds no CUDA device here; use --device cpu"):
        device.use_device("cuda")
    assert device.training_device() == "cpu"


def test_another_word_is_refused():
    with pytest.raises(BadInput, match="expected cpu, cuda or auto, got 'tpu'"):
        device.use_device("tpu")
