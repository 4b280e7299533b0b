"""Federated averaging as the convergence theorem has it, and the gradient norm that the theorem bounds.

Plain SGD with a fixed step of Θ(√(N/(τT))), every client active, clients of equal size. Each client takes τ steps on
mini-batches, then all weights are averaged (Algorithm 1). The clients' networks are computed together, as one batch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from fedrouter.evaluations import Embeddings, Evaluations, Floats, Integers
from fedrouter.federation.families.mlp import seeded_torch
from fedrouter.federation.seeds import derive

HIDDEN = 32
"""Width of the network's one layer: small, because the theorem's regime needs thousands of rounds."""
COMPONENTS = 32
"""Principal components of the embeddings that the network sees."""
BATCH = 16
STEP = 8.0
"""The constant in the theorem's step size: the shortest run of the plan has a step of 0.25."""
CHECKED = 64
"""Number of evenly spaced rounds after which the gradient is computed."""
MIXED = 0.75
"""Share of a client's rows that are of its own type; there are two types, and as many clients of each."""


@dataclass(frozen=True)
class Problem:
    """Rows of all clients: inputs ``(n, d)``, the model asked ``(n,)``, accuracy and normalized cost ``(n, 2)``."""

    inputs: npt.NDArray[np.float32]
    model: Integers
    targets: npt.NDArray[np.float32]
    models: int
    order: Integers
    """Rows of the first type, then rows of the second; each type is half of the rows, in random order."""

    @classmethod
    def of(cls, rows: Evaluations, most: int, seed: int) -> Problem:
        """At most this many rows; the two types are the two halves along the first principal component."""
        draw = np.random.default_rng(derive(seed, "rows"))
        kept = draw.permutation(len(rows))[: 2 * (min(most, len(rows)) // 2)]
        inputs = _components(rows.embeddings)[rows.query[kept]]
        model = rows.model[kept]
        cost = np.log(np.maximum(rows.cost[kept], 1e-9))
        mean = np.array(
            [cost[model == each].mean() if (model == each).any() else 0.0 for each in range(len(rows.pool))]
        )
        scaled = (cost - mean[model]) / max(float((cost - mean[model]).std()), 1e-6)
        targets = np.stack([rows.accuracy[kept], scaled], axis=1).astype(np.float32)
        by_type = np.argsort(inputs[:, 0], kind="stable")
        half = len(kept) // 2
        order = np.concatenate([draw.permutation(by_type[:half]), draw.permutation(by_type[half:])])
        return cls(inputs, model, targets, len(rows.pool), order)

    def clients(self, count: int) -> Integers:
        """Row numbers ``(count, rows of a client)``: equal clients whose types differ as much for every even count."""
        half = len(self.order) // 2
        own = round(MIXED * half)
        first, second = self.order[:half], self.order[half:]
        groups = (np.concatenate([first[:own], second[own:]]), np.concatenate([second[:own], first[own:]]))
        each = count // 2
        size = half // each
        # Dealt like cards, so that every client of a type has the same share of the other type.
        return np.stack([group[start::each][:size] for group in groups for start in range(each)])


def _components(embeddings: Embeddings) -> npt.NDArray[np.float32]:
    centered = embeddings.astype(np.float64) - embeddings.mean(axis=0, dtype=np.float64)
    _, vectors = np.linalg.eigh(centered.T @ centered)
    found = centered @ vectors[:, ::-1][:, :COMPONENTS]
    return np.asarray(found / np.sqrt((found**2).sum(axis=1).mean()), np.float32)


def gradient_norms(
    problem: Problem, clients: int, steps: int, rounds: int, seed: int, watch: Callable[[], None] = lambda: None
) -> Floats:
    """Squared norm of the gradient of the loss over all rows, after :data:`CHECKED` rounds of ``rounds``."""
    owned = problem.clients(clients)
    rate = STEP * np.sqrt(clients / (steps * rounds))
    checked = set(np.linspace(rounds, 0, CHECKED, endpoint=False).round().astype(int).tolist())
    found = []
    with seeded_torch(derive(seed, "sgd", clients, steps, rounds)) as torch:
        inputs, targets = torch.from_numpy(problem.inputs), torch.from_numpy(problem.targets)
        asked, rows = torch.from_numpy(problem.model), torch.from_numpy(owned)
        torch_seed = torch.Generator().manual_seed(derive(seed, "start") % 2**31)
        shapes = ((inputs.shape[1], HIDDEN), (HIDDEN,), (HIDDEN, 2 * problem.models), (2 * problem.models,))
        start = [(torch.rand(shape, generator=torch_seed) * 2 - 1) / shape[0] ** 0.5 for shape in shapes]

        def loss_of(weights: list[Any], x: Any, model: Any, wanted: Any) -> Any:
            """Equation "fed_objective" by client, ``(clients,)``: squared errors of accuracy and of normalized cost."""
            hidden = torch.nn.functional.gelu(torch.baddbmm(weights[1][:, None], x, weights[0]))
            outputs = torch.baddbmm(weights[3][:, None], hidden, weights[2]).unflatten(2, (2, problem.models))
            own = outputs.gather(3, model[:, :, None, None].expand(-1, -1, 2, 1))[..., 0]
            predicted = torch.stack([own[..., 0].sigmoid(), own[..., 1]], dim=2)
            return ((predicted - wanted) ** 2).sum(dim=2).mean(dim=1)

        def gradient(weights: list[Any], *batch: Any) -> list[Any]:
            moving = [weight.requires_grad_() for weight in weights]
            return list(torch.autograd.grad(loss_of(moving, *batch).sum(), moving))

        everything = (inputs[None], asked[None], targets[None])
        shared = start
        for number in range(1, rounds + 1):
            local = [weight.expand(clients, *weight.shape).clone() for weight in shared]
            for _ in range(steps):
                batch = rows.gather(1, torch.randint(rows.shape[1], (clients, BATCH)))
                slopes = gradient(local, inputs[batch], asked[batch], targets[batch])
                local = [(weight - rate * slope).detach() for weight, slope in zip(local, slopes, strict=True)]
            shared = [weight.mean(dim=0) for weight in local]
            if number in checked:
                slopes = gradient([weight[None].clone() for weight in shared], *everything)
                found.append(float(sum((slope.double() ** 2).sum() for slope in slopes)))
                shared = [weight.detach() for weight in shared]
            watch()
    return np.array(found)
