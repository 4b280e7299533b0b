"""Local steps of training under differential privacy: DP-SGD, through opacus.

Every step samples each row with the same probability (Poisson), clips each row's gradient, adds Gaussian noise to the
sum and divides it by a number that does not depend on the rows. Probability and number of steps follow from the request
and from the number of rows that the client *declares*, so neither reveals the true number. The loss is not sent.

The noise and the sampling come from torch's Mersenne Twister, seeded afresh for each answer with 63 bits of the
operating system's: not a cryptographic generator (opacus's needs torchcsprng, which no longer installs). Opacus's
``secure_mode`` adds up four draws for each number, so that the bits of a float do not reveal the sum.
"""

from __future__ import annotations

import secrets
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from fedrouter.errors import BadMessage, MissingExtra
from fedrouter.evaluations import Embeddings, Integers
from fedrouter.federation.local_training import frozen_outputs, seeded_torch, to_train, weights_of
from fedrouter.federation.privacy.policy import DifferentialPrivacy
from fedrouter.routers.mlp import HEADS, Weights

if TYPE_CHECKING:
    import torch

    from fedrouter.federation.verbs.train import TrainRequest

AT_ONCE = 64
"""Number of rows whose gradients are in memory at the same time: each is as large as the network."""
MOST_STEPS = 100_000


@dataclass(frozen=True)
class PrivateSteps:
    """Number of steps, sampling rate, expected batch size, and noise multiplier."""

    steps: int
    rate: float
    batch: float
    multiplier: float

    @classmethod
    def of(cls, request: TrainRequest, noise: DifferentialPrivacy) -> PrivateSteps:
        rate = min(1.0, request.batch_size / noise.rows)
        steps = request.epochs * int(np.ceil(noise.rows / request.batch_size))
        if not 0 < request.clip_norm < np.inf or steps > MOST_STEPS:
            raise BadMessage(f"train: expected a clip_norm above 0 and at most {MOST_STEPS} steps")
        return cls(steps, rate, rate * noise.rows, noise.multiplier)


def train(
    request: TrainRequest,
    embeddings: Embeddings,
    model: Integers,
    accuracy: npt.NDArray[np.float64],
    cost: npt.NDArray[np.float64],
    private: PrivateSteps,
) -> Weights:
    """Weights after these steps over the rows ``(n, …)``, with the loss of local_training.train."""
    with seeded_torch(request.seed) as torch, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # opacus's hooks warn that inputs need no gradient, which is intended
        try:
            from opacus.grad_sample import GradSampleModule  # type: ignore[import-untyped]
            from opacus.optimizers import DPOptimizer  # type: ignore[import-untyped]
        except ImportError:
            raise MissingExtra("Differential privacy", "privacy") from None
        generator = torch.Generator().manual_seed(secrets.randbits(63))
        parts = to_train(request)
        network = GradSampleModule(_whole(parts), loss_reduction="sum")
        moving = [parameter for parameter in network.parameters() if parameter.requires_grad]
        optimizer = DPOptimizer(
            torch.optim.AdamW(moving, lr=request.learning_rate, weight_decay=request.weight_decay),
            noise_multiplier=private.multiplier,
            max_grad_norm=request.clip_norm,
            expected_batch_size=private.batch,
            generator=generator,
            secure_mode=True,
        )
        inputs, asked = torch.from_numpy(embeddings.copy()), torch.from_numpy(model.copy())[:, None]
        targets = torch.from_numpy(np.stack([accuracy, cost], axis=1).astype(np.float32))
        anchored = torch.tensor([request.models.index(name) for name in request.anchored], dtype=torch.int64)
        frozen = frozen_outputs(request.base, embeddings)[:, :, anchored] if request.base else None

        def losses(batch: Any) -> Any:
            """The loss of each row."""
            predicted = network(inputs[batch])
            own = predicted.gather(2, asked[batch][:, :, None].expand(-1, 2, 1))[:, :, 0]
            found = ((own - targets[batch]) ** 2).sum(dim=1)
            if frozen is not None:
                moved = (predicted[:, :, anchored] - frozen[batch]) ** 2
                found = found + request.distillation * moved.sum(dim=1).mean(dim=1)
            return found

        network.train()
        for _ in range(private.steps):
            sampled = torch.rand(len(inputs), generator=generator) < private.rate
            pieces = sampled.nonzero()[:, 0].split(AT_ONCE)
            for index, piece in enumerate(pieces):
                optimizer.zero_grad()
                losses(piece).sum().backward()
                for parameter in moving:  # whatever weights were sent, NaN gradients count as zero
                    parameter.grad_sample = torch.nan_to_num(parameter.grad_sample, 0.0, 0.0, 0.0)
                optimizer.signal_skip_step(do_skip=index < len(pieces) - 1)
                optimizer.step()
            optimizer.zero_grad()
        return weights_of(parts, request)


def _whole(parts: Any) -> Any:
    """The parts of a network as one module, from queries to accuracy and cost ``(n, 2, M)``."""
    import torch

    class Whole(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.parts = parts

        def forward(self, queries: torch.Tensor) -> torch.Tensor:
            hidden = self.parts["trunk"](queries)
            outputs = torch.stack([self.parts[head](hidden) for head in HEADS], dim=1)
            if "shared" in self.parts:
                outputs = outputs + self.parts["shared"](hidden)[:, :, None]
            return torch.stack([outputs[:, 0].sigmoid(), outputs[:, 1]], dim=1)

    return Whole()
