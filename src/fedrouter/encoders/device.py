"""The device on which this process trains networks and encodes texts: the CPU, or a GPU."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from fedrouter.errors import BadInput, MissingExtra

DEVICES = ("cpu", "cuda", "auto")
_device = "cpu"


def use_device(name: str) -> str:
    """Train networks and encode texts in this process on this device from now on; ``auto`` is a GPU if there is one.

    Gives its name.
    """
    global _device
    if name not in DEVICES:
        raise BadInput(f"--device: expected {', '.join(DEVICES[:-1])} or {DEVICES[-1]}, got {name!r}")
    if name == "auto":
        name = "cuda" if _finds_gpu() else "cpu"
    if name == "cuda":
        try:
            import torch
        except ImportError:
            raise MissingExtra("--device cuda", "train") from None
        if not torch.cuda.is_available():
            raise BadInput("--device cuda: torch finds no CUDA device here; use --device cpu")
    _device = name
    return name


def _finds_gpu() -> bool:
    try:
        import torch
    except ImportError:
        return False
    return bool(torch.cuda.is_available())


def training_device() -> str:
    """The device in use."""
    return _device


@contextmanager
def seeded_torch(seed: int) -> Iterator[Any]:
    """Torch, seeded and on one thread, with its global state restored afterwards.

    One thread, because these networks are small: with more, synchronization takes longer than the work.
    """
    try:
        import torch
    except ImportError:
        raise MissingExtra("Training the MLP router", "train") from None
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            yield torch
    finally:
        torch.set_num_threads(threads)
