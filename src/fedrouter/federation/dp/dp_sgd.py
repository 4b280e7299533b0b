"""Local steps of training under differential privacy: DP-SGD.

Every step samples each row with the same probability (Poisson), clips each row's gradient, adds Gaussian noise to the
sum and divides it by a number that does not depend on the rows. Probability and number of steps follow from the request
and from the number of rows that the client *declares*, so neither reveals the true number. The loss is not sent. There
is no dropout, whatever the request says.

The sum consists of integers (:mod:`fedrouter.federation.dp.gradients`), and so does the noise, so no rounding of their
sum depends on the rows. What is released is rounded once more to a grid of about 2^-10 standard deviations, the same
for every log: on that grid, noise has the probabilities of a Gaussian up to a factor of about 1 ± 2^-36, which is less
than 0.001 of ε for ten million numbers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fedrouter.errors import BadMessage
from fedrouter.evaluations import Floats, Integers
from fedrouter.federation.dp.gradients import SHARED, SUM_BITS, Rows, clipped_sums, with_shared
from fedrouter.federation.dp.secure_random import gaussian, sampled
from fedrouter.federation.privacy.policy import DifferentialPrivacy
from fedrouter.routers.mlp import HEADS, Weights

if TYPE_CHECKING:
    from fedrouter.federation.verbs.train import TrainRequest

MOST_STEPS = 100_000
GRID_BITS = 10


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


def train(request: TrainRequest, rows: Rows, private: PrivateSteps) -> Weights:
    """Weights after these steps over the rows, with the loss of local_training.train."""
    weights = {name: array.astype(np.float64) for name, array in request.weights.items()}
    if request.shared_step:
        weights = with_shared(weights)
    optimizer = AdamW(request.learning_rate, request.weight_decay)
    for _ in range(private.steps):
        chosen = rows.take(np.flatnonzero(sampled(len(rows.model), private.rate)))
        gradients = {
            name: noisy(total, private.multiplier) * (request.clip_norm / private.batch)
            for name, total in clipped_sums(weights, chosen, request.clip_norm, request.heads_only).items()
        }
        optimizer.step(weights, gradients)
    if request.shared_step:  # a head's weights are its own plus the shared ones
        for index, head in enumerate(HEADS):
            for kind in ("weight", "bias"):
                weights[f"{head}.{kind}"] = weights[f"{head}.{kind}"] + weights[f"{SHARED}.{kind}"][index]
    return {name: weights[name].astype(np.float32) for name in request.returned_weights()}


def noisy(total: Integers, multiplier: float) -> Floats:
    """A sum in units of 2^-40 of its sensitivity, with Gaussian noise, in units of the sensitivity."""
    deviation = np.ldexp(multiplier, SUM_BITS)
    noise = np.rint(deviation * gaussian(total.size)).astype(np.int64)
    grid = max(0, int(np.floor(np.log2(deviation))) - GRID_BITS)
    released = ((total + noise.reshape(total.shape)) >> grid) << grid
    return np.asarray(np.ldexp(released.astype(np.float64), -SUM_BITS))


class AdamW:
    """The optimizer of local training (Loshchilov and Hutter, 2019) with torch's defaults; one for each answer."""

    def __init__(self, learning_rate: float, weight_decay: float) -> None:
        self._rate, self._decay = learning_rate, weight_decay
        self._steps = 0
        self._means: dict[str, Floats] = {}
        self._squares: dict[str, Floats] = {}

    def step(self, weights: dict[str, Floats], gradients: dict[str, Floats]) -> None:
        """Move the weights that have a gradient, in place of the old ones."""
        self._steps += 1
        for name, gradient in gradients.items():
            mean = self._means[name] = 0.9 * self._means.get(name, 0.0) + 0.1 * gradient
            squares = self._squares[name] = 0.999 * self._squares.get(name, 0.0) + 0.001 * gradient**2
            direction = mean / (1 - 0.9**self._steps)
            direction = direction / (np.sqrt(squares / (1 - 0.999**self._steps)) + 1e-8)
            weights[name] = weights[name] * (1 - self._rate * self._decay) - self._rate * direction
