"""What a client checks before it trains a network that it was sent.

The weights that come back can hold whatever the weights sent were made to show: a network in which one query alone has
a gradient returns that query's embedding. So a client accepts only what training needs: settings within its bounds,
first weights that follow from a seed, later ones that so many rounds of such steps can reach, and, before it takes a
step, gradients that enough of its queries carry (:class:`fedrouter.federation.privacy.carriers.Carriers`).

Training that continues a saved router has no seed to follow from; there only the size of the weights is bounded. And
the reach of some rounds of AdamW is about as large as the weights themselves: it keeps extreme weights out, not every
crafted network. What remains possible is in docs/security.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fedrouter.errors import Refused
from fedrouter.federation.plausibility import SLACK
from fedrouter.federation.privacy.policy import TrainingBounds
from fedrouter.routers.mlp import Weights, first_layer, hidden_sizes, initial_weights, weight_shapes

if TYPE_CHECKING:
    from fedrouter.federation.verbs.train import TrainRequest

MOST_STEP = 10.0
"""Learning rates that a weight may move in one step of AdamW; with its usual constants it stays below 7."""


def check_training(client: str, request: TrainRequest, bounds: TrainingBounds) -> None:
    """Raise Refused if the settings or the weights of a training are not what this client accepts."""
    for name, low, high in (
        ("epochs", 1, bounds.epochs),
        ("batch_size", bounds.least_batch, bounds.batch_size),
        ("learning_rate", 0, bounds.learning_rate),
        ("weight_decay", 0, bounds.weight_decay),
        ("clip_norm", bounds.least_clip_norm, bounds.clip_norm),
        ("dropout", 0, 0.9),
        ("distillation", 0, bounds.distillation),
        ("round", 0, bounds.rounds),
    ):
        value = getattr(request, name)
        if not low <= value <= high:  # also catches NaN
            raise _refused(client, f"{name}: expected a number from {low:g} to {high:g}, got {value:g}")
    for weights in filter(None, (request.weights, request.base)):
        sizes = hidden_sizes(weights)
        if not sizes or set(weights) != set(weight_shapes(1, sizes, 1)):
            raise _refused(client, "expected the weights of a network of layers, norms and two heads")
    if sum(hidden_sizes(request.weights)) > bounds.hidden:
        raise _refused(client, f"expected a network of at most {bounds.hidden:,} hidden units")
    for weights in (request.weights, request.base):
        if any(np.abs(array).max(initial=0.0) > bounds.largest_weight for array in weights.values()):
            raise _refused(client, f"expected weights of at most {bounds.largest_weight:g}")
    if request.origin >= 0 and not _reachable(request, bounds):
        raise _refused(client, f"the weights of round {request.round} do not follow from seed {request.origin}")


def _refused(client: str, text: str) -> Refused:
    return Refused(f"train: client {client}: {text}", "training")


def _reachable(request: TrainRequest, bounds: TrainingBounds) -> bool:
    """Whether the rounds so far can have moved the first weights of this seed to those in the request."""
    steps = request.round * request.epochs * -(-bounds.rows // request.batch_size)
    first = first_weights(request.weights, request.origin)
    for name, array in request.weights.items():
        size = float(np.abs(array).max(initial=0.0))
        reach = steps * request.learning_rate * (MOST_STEP + request.weight_decay * size) + SLACK * size
        if not (np.abs(array.astype(np.float64) - first[name]) <= reach).all():
            return False
    return True


def first_weights(like: Weights, seed: int) -> Weights:
    """The weights with which the training of a network of these shapes starts, from the seed of its weights."""
    return initial_weights(first_layer(like).shape[1], hidden_sizes(like), len(like["accuracy.bias"]), seed)
