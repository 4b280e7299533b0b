"""The networks of many clients as slices of one array."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from fedrouter.engines.batched.layout import Layout

if TYPE_CHECKING:
    import torch


@dataclass
class Networks:
    """Weights, gradients and AdamW's moments of all clients ``(clients, numbers)``, and the row that they begin from.

    With a ``kind`` of half precision, matrix products are in it: ``half`` is a copy of the weights, and ``begin_half``
    of their beginning. Gradients are of that kind, too; with fused kernels there are none.
    """

    layout: Layout
    kind: torch.dtype
    fused: bool
    parameters: torch.Tensor
    gradients: torch.Tensor
    first: torch.Tensor
    second: torch.Tensor
    half: torch.Tensor | None
    begin: torch.Tensor
    begin_half: torch.Tensor
    _weights: dict[tuple[int, bool], Mapping[str, torch.Tensor]] = field(default_factory=dict)
    _gradients: dict[tuple[int, str], torch.Tensor] = field(default_factory=dict)

    @classmethod
    def of(cls, layout: Layout, clients: int, device: str, kind: torch.dtype, fused: bool | None = None) -> Networks:
        """For so many clients, not filled; ``fused`` on a GPU, except for float64."""
        import torch

        fused = device != "cpu" and kind.itemsize <= 4 if fused is None else fused
        wide = torch.float32 if kind.itemsize == 2 else kind

        def zeros(rows: int, dtype: torch.dtype) -> torch.Tensor:
            return torch.zeros(rows, layout.numbers, dtype=dtype, device=device)

        parameters, first, second = (zeros(clients, wide) for _ in range(3))
        gradients = zeros(0 if fused else clients, kind)
        half = None if wide == kind else zeros(clients, kind)
        return cls(layout, kind, fused, parameters, gradients, first, second, half, zeros(1, wide), zeros(1, kind))

    def fit(self, layout: Layout, clients: int, device: str, kind: torch.dtype) -> bool:
        """Whether these arrays will do where :meth:`of` is asked for others; graphs have some clients to spare."""
        mine = self.parameters.device.type, self.kind, self.layout
        spare = len(self.parameters) - clients
        return mine == (device, kind, layout) and 0 <= spare <= (clients // 4 if self.fused else 0)

    def start(self, row: npt.NDArray[np.float32], heads_only: bool = False) -> None:
        """Begin from these weights ``(numbers,)``, all clients the same.

        Fused kernels read them from that row in the initial step, and write everything that is trained.
        """
        import torch

        self.begin.copy_(torch.from_numpy(row))
        self.begin_half.copy_(self.begin)
        if self.fused and not heads_only:
            return
        self.parameters.copy_(self.begin)
        if self.half is not None:
            self.half.copy_(self.parameters)
        self.first.zero_()
        self.second.zero_()

    def weights(self, clients: int, initial: bool) -> Mapping[str, torch.Tensor]:
        """Weights of the first ``clients`` for a step by name, those of matrix products in their precision."""
        if (clients, initial) not in self._weights:
            wide, narrow = self.parameters[:clients], (self.parameters if self.half is None else self.half)[:clients]
            if initial:
                wide, narrow = (each.expand(clients, -1) for each in (self.begin, self.begin_half))
            # Torch's products want a bias of their own kind; fused kernels add it in float32.
            vectors = ("norm",) if not self.fused else ("norm", "layer", "heads")
            self._weights[clients, initial] = {
                name: self.layout.view(wide if name.startswith(vectors) and len(shape) == 1 else narrow, name)
                for name, (_, shape) in self.layout.blocks.items()
            }
        return self._weights[clients, initial]

    def gradient(self, clients: int, name: str) -> torch.Tensor:
        """Where the gradient of one weight of the first ``clients`` is written."""
        if (clients, name) not in self._gradients:
            self._gradients[clients, name] = self.layout.view(self.gradients[:clients], name)
        return self._gradients[clients, name]
