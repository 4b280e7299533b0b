"""What every simulator of simulators.py trains: the same rows, network and settings. It imports nothing of the project,
because the others run it in environments of their own.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

CLIENTS, ROWS, WIDTH, MODELS = 100, 250, 768, 12
HIDDEN = (512, 512)
PARTICIPATION, BATCH, EPOCHS = 0.6, 128, 1
DROPOUT, LEARNING_RATE, WEIGHT_DECAY, CLIP_NORM = 0.1, 1e-3, 3e-4, 1.0
ACTIVE = round(PARTICIPATION * CLIENTS)


@cache
def rows_of(client: int) -> tuple[Any, Any, Any]:
    """Embeddings ``(n, d)`` of length one, the model ``(n,)`` of each row, and its accuracy and cost ``(n, 2)``."""
    draw = np.random.default_rng(client)
    points = draw.standard_normal((ROWS, WIDTH), np.float32)
    points /= np.linalg.norm(points, axis=1, keepdims=True)
    model = draw.integers(0, MODELS, ROWS)
    targets = np.stack([draw.random(ROWS) < 0.5, draw.random(ROWS)], axis=1).astype(np.float32)
    return points, model, targets


def network() -> Any:
    """The paper's network: two hidden layers with LayerNorm, GELU and dropout, and two heads of a number per model."""
    import torch

    class Network(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            layers: list[torch.nn.Module] = []
            width = WIDTH
            for size in HIDDEN:
                layers += [torch.nn.Linear(width, size), torch.nn.LayerNorm(size), torch.nn.GELU()]
                layers += [torch.nn.Dropout(DROPOUT)]
                width = size
            self.trunk = torch.nn.Sequential(*layers)
            self.accuracy, self.cost = torch.nn.Linear(width, MODELS), torch.nn.Linear(width, MODELS)

        def loss(self, points: Any, model: Any, targets: Any, **_: Any) -> Any:
            """Squared error of accuracy plus squared error of cost, each of the one model that was asked."""
            hidden = self.trunk(points)
            found = torch.stack([self.accuracy(hidden).sigmoid(), self.cost(hidden)], dim=1)
            own = found.gather(2, model[:, None, None].expand(-1, 2, 1))[:, :, 0]
            return ((own - targets) ** 2).sum(dim=1).mean()

        def metrics(self, points: Any, model: Any, targets: Any, **_: Any) -> dict[str, Any]:
            return {}

    torch.manual_seed(0)
    return Network()


@cache
def kept_network() -> Any:
    """One network a process, into which weights are loaded; here, where a process of Ray finds it."""
    import torch

    torch.set_num_threads(1)
    return network()


def optimizer(parameters: Any, lr: float = LEARNING_RATE) -> Any:
    import torch

    return torch.optim.AdamW(parameters, lr=lr, weight_decay=WEIGHT_DECAY)


def train(model: Any, client: int) -> None:
    """One epoch over a client's rows in a random order."""
    import torch

    points, asked, targets = (torch.from_numpy(part) for part in rows_of(client))
    steps = optimizer(model.parameters())
    model.train()
    for _ in range(EPOCHS):
        for batch in torch.split(torch.randperm(ROWS), BATCH):
            steps.zero_grad()
            model.loss(points[batch], asked[batch], targets[batch]).backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP_NORM)
            steps.step()
