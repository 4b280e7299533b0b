"""The device on which this process trains networks: the CPU, or a GPU."""

from __future__ import annotations

from fedrouter.errors import BadInput, MissingExtra

DEVICES = ("cpu", "cuda")
_device = "cpu"


def use_device(name: str) -> None:
    """Train networks in this process on this device from now on."""
    global _device
    if name not in DEVICES:
        raise BadInput(f"--device: expected {' or '.join(DEVICES)}, got {name!r}")
    if name == "cuda":
        try:
            import torch
        except ImportError:
            raise MissingExtra("Training on a GPU", "train") from None
        if not torch.cuda.is_available():
            raise BadInput("--device cuda: torch finds no CUDA device here; use --device cpu")
    _device = name


def training_device() -> str:
    """The device in use."""
    return _device
