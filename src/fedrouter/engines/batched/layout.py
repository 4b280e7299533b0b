"""Where each weight stands in a client's row of one array ``(clients, numbers)``, over which AdamW is one operation.

Heads and the step they share are rows of one matrix, the last block: ``accuracy`` (M), ``cost`` (M), ``shared`` (2).
Blocks begin at multiples of :data:`ALIGNED` numbers, as matrix products on a GPU need it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from fedrouter.routers.mlp import HEADS, PROJECTION, Weights, hidden_sizes

if TYPE_CHECKING:
    import torch

ALIGNED = 32
HEAD_WEIGHT, HEAD_BIAS = "heads.weight", "heads.bias"


@dataclass(frozen=True)
class Layout:
    """Offsets and shapes of the blocks by name; ``numbers`` in total, those from ``first_head`` on are heads."""

    blocks: Mapping[str, tuple[int, tuple[int, ...]]]
    numbers: int
    first_head: int
    models: int
    hidden: tuple[int, ...]
    projected: bool

    @classmethod
    def of(cls, weights: Weights) -> Layout:
        """The layout for a network with these weights."""
        models = len(weights[f"{HEADS[0]}.bias"])
        hidden = hidden_sizes(weights)
        trunk = {name: array.shape for name, array in weights.items() if not name.startswith(HEADS)}
        rows = _aligned(2 * models + 2, 8)
        blocks, at = {}, 0
        for name, shape in trunk.items():
            blocks[name] = at, shape
            at += _aligned(prod(shape))
        first_head = at
        for name, shape in ((HEAD_WEIGHT, (rows, hidden[-1])), (HEAD_BIAS, (rows,))):
            blocks[name] = at, shape
            at += _aligned(prod(shape))
        return cls(blocks, at, first_head, models, hidden, PROJECTION in weights)

    def group(self, matrix: str) -> tuple[str, ...]:
        """Names of a matrix and of the vectors that come with it: its bias, and weight and bias of its norm."""
        of, norm = matrix.rpartition(".")[0], matrix.replace("layer", "norm").rpartition(".")[0]
        names = dict.fromkeys(f"{each}.{part}" for each in (of, norm) for part in ("weight", "bias"))
        return tuple(name for name in names if name in self.blocks)

    def view(self, flat: torch.Tensor, name: str) -> torch.Tensor:
        """One weight of all clients, ``(clients, *shape)``, as a view of ``(clients, numbers)``."""
        start, shape = self.blocks[name]
        return flat[:, start : start + prod(shape)].view(len(flat), *shape)

    def pack(self, weights: Weights) -> npt.NDArray[np.float32]:
        """The weights as one row ``(numbers,)``; the shared step begins at zero."""
        row = np.zeros(self.numbers, np.float32)
        for name, array in weights.items():
            kind = name.rpartition(".")[2]
            start, offset = self.blocks[name][0] if name in self.blocks else self.blocks[f"heads.{kind}"][0], 0
            if name.startswith(HEADS):
                offset = HEADS.index(name.partition(".")[0]) * array.size
            row[start + offset : start + offset + array.size] = array.ravel()
        return row

    def unpack(self, row: npt.NDArray[Any], like: Weights) -> dict[str, npt.NDArray[Any]]:
        """The weights named in ``like`` from one row; a head's are its own plus the shared ones."""
        found = {}
        for name, array in like.items():
            head, _, kind = name.rpartition(".")
            if name in self.blocks:
                start = self.blocks[name][0]
                found[name] = row[start : start + array.size].reshape(array.shape)
                continue
            start, shape = self.blocks[f"heads.{kind}"]
            block = row[start : start + prod(shape)].reshape(shape)
            own, place = HEADS.index(head), self.models
            found[name] = block[own * place : (own + 1) * place] + block[2 * place + own]
        return found


def _aligned(size: int, to: int = ALIGNED) -> int:
    return -(-size // to) * to
