"""The verb ``train``: local steps of training on a client's rows. Algorithm 1, lines 3-9."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

import numpy as np

from fedrouter.errors import BadInput
from fedrouter.evaluations import Evaluations
from fedrouter.federation.client_view import ClientView
from fedrouter.federation.message import Message, Request
from fedrouter.federation.plausibility import MOST_ROWS, SHAPE, SLACK, TOO_MANY, whole_number
from fedrouter.federation.privacy.carriers import Carriers, Rows
from fedrouter.federation.privacy.disclosure import DisclosureControl
from fedrouter.federation.privacy.training import MOST_STEP
from fedrouter.federation.secagg.encoding import Vector, flatten, unflatten
from fedrouter.federation.seeds import derive
from fedrouter.federation.verbs.verb import (
    HidesEmbeddings,
    MinimumSizes,
    SecureSum,
    Verb,
    Withheld,
)
from fedrouter.routers.mlp import HEADS, CostScale, Weights, outputs

MORE_THAN_ONE = 1.5
"""A unit whose gradient is carried by fewer queries is mostly moved by one: it has more than two thirds. In honest
training with fifty rows and more there are hardly any: of hundreds of units the least has between 1.5 and 8."""
WEIGHT_BITS = 32
"""For secure sums, rows times weight is rounded to a multiple of 2^-32. A mean weight is then off by at most 2^-33 over
a client's mean number of rows, where float32 itself keeps a weight of 0.01 only to 2^-31."""


@dataclass(frozen=True, eq=False)
class TrainRequest(Request["Update"]):
    """Line 3: the global weights, the scale of cost, and how to take local steps."""

    models: Annotated[tuple[str, ...], "names of the M models, in order"]
    weights: Annotated[Weights, "float32 arrays by name: the global weights"]
    scale: Annotated[CostScale, "(M,) arrays: each model's scale of log cost"]
    epochs: Annotated[int, "number of passes over the rows"]
    batch_size: Annotated[int, "rows per step"]
    learning_rate: Annotated[float, "of AdamW"]
    weight_decay: Annotated[float, "of AdamW"]
    clip_norm: Annotated[float, "maximum norm of a gradient"]
    dropout: Annotated[float, "share of hidden units dropped"]
    seed: Annotated[int, "random seed"]
    heads_only: Annotated[bool, "keep the trunk fixed, and send back only the heads"] = False
    base: Annotated[Weights, "float32 arrays by name: a frozen network to stay close to, if any"] = field(
        default_factory=dict
    )
    anchored: Annotated[tuple[str, ...], "names of the models on which to stay close to it"] = ()
    distillation: Annotated[float, "weight of staying close to it in the loss"] = 0.0
    round: Annotated[int, "index of the round"] = 0
    origin: Annotated[int, "seed of the first round's weights; -1 if training continues a saved router"] = -1

    def check(self) -> None:
        self.require_weights(self.weights)
        self.require(self.epochs > 0 and self.batch_size > 0, "epochs and batch_size must be above 0")
        self.require(0 <= self.distillation < np.inf, "distillation must be at least 0")
        self.require(bool(self.base) == (self.distillation > 0), "distillation goes with a base")
        if self.base:
            self.require_weights(self.base)
            self.require(set(self.anchored) <= set(self.models), "anchored models must be among the models")

    def returned_weights(self) -> Weights:
        """The weights that the reply will hold, as they were sent."""
        return {name: array for name, array in self.weights.items() if not self.heads_only or name.startswith(HEADS)}


@dataclass(frozen=True, eq=False)
class Update(Message):
    """Line 9: the weights after local steps, and ``|D_i|`` to weight them by."""

    weights: Annotated[Weights, "float32 arrays by name: the weights after local steps (heads only, if so asked)"]
    rows: Annotated[int, "number of rows that were trained on"]
    loss: Annotated[float, "mean loss of the last epoch"]

    def check(self) -> None:
        self.require_weights(self.weights)
        self.require(self.rows >= 0, "rows must be at least 0")
        self.require(np.isfinite(self.loss), "loss must be finite")


def answer(client: ClientView, request: TrainRequest) -> Update:
    """Lines 5-9."""
    rows = client.rows.with_cost_scale(request.models, request.scale)
    control = client.rows.control
    if control:
        rows = _carried(request, rows, control)
    if not len(rows):
        return nothing(request)
    from fedrouter.federation.local_training import train  # torch

    weights, loss = train(
        request,
        rows.embeddings[rows.query],
        rows.model,
        rows.accuracy,
        request.scale.normalised(rows.cost, rows.model),
        derive(request.seed, client.name),
    )
    return Update(weights, len(rows), loss)


def _rows(request: TrainRequest, rows: Evaluations) -> Rows:
    """The rows as training sees them."""
    anchored = np.array([request.models.index(name) for name in request.anchored], np.int64)
    frozen = outputs(request.base, rows.embeddings)[rows.query][:, :, anchored] if request.base else None
    return Rows(
        rows.embeddings[rows.query],
        rows.model,
        rows.accuracy,
        request.scale.normalised(rows.cost, rows.model),
        anchored,
        frozen,
        request.distillation,
    )


def _carried(request: TrainRequest, rows: Evaluations, control: DisclosureControl) -> Evaluations:
    """The rows to train on: none if there are too few queries, or too few of them carry the first step.

    Weights can be made for which one query alone has a gradient. Rows of a model whose head one query moves are left
    out.
    """
    control.applied.add("step")
    none = rows.take(np.zeros(0, np.int64))
    if not control.enough(rows):
        return none

    def carriers(some: Evaluations) -> Carriers:
        return Carriers.of(request.weights, _rows(request, some), some.query, request.heads_only)

    found = carriers(rows)
    if (found.heads < MORE_THAN_ONE).any():
        rows = rows.take(np.flatnonzero(found.heads[rows.model] >= MORE_THAN_ONE))
        if not len(rows) or not control.enough(rows):
            return none
        found = carriers(rows)
    moved = (found.units >= MORE_THAN_ONE).all() and (found.heads >= MORE_THAN_ONE).all()
    if moved and found.whole >= control.sizes.step:
        return rows
    control.emptied_by = "step"
    return none


def numbers(request: TrainRequest) -> int:
    return 2 + sum(array.size for array in request.returned_weights().values())


def to_vector(request: TrainRequest, reply: Update, clients: int) -> Vector:
    """Weights and loss, each times the rows behind it, in fixed point."""
    values = [reply.weights[name].astype(np.float64).ravel() for name in request.returned_weights()]
    weighted = reply.rows * np.concatenate([*values, np.array([reply.loss])])
    if not np.abs(weighted).max() < 2.0 ** (63 - WEIGHT_BITS) / clients:  # also catches NaN
        raise BadInput("weights times rows too large to be added in fixed point: has the training diverged?")
    return flatten(reply.rows, np.rint(np.ldexp(weighted, WEIGHT_BITS)))


def from_vector(request: TrainRequest, vector: Vector, clients: int) -> Update:
    """The mean over all rows, which is the average of the clients' weights."""
    like = request.returned_weights()
    rows, *sums, loss = unflatten(vector, (1,), *(array.shape for array in like.values()), (1,))
    total = int(rows[0])
    if not total:
        return Update(like, 0, 0.0)
    means = [np.ldexp(part.astype(np.float64), -WEIGHT_BITS) / total for part in (*sums, loss)]
    weights = {name: mean.astype(np.float32) for name, mean in zip(like, means[:-1], strict=True)}
    return Update(weights, total, float(means[-1][0]))


def nothing(request: TrainRequest) -> Update:
    return Update(request.returned_weights(), 0, 0.0)


def faults(request: TrainRequest, reply: Update) -> str | None:
    """AdamW divides a gradient by its size, so the number of steps bounds how far any weight can move."""
    sent = request.returned_weights()
    if {name: array.shape for name, array in reply.weights.items()} != {n: a.shape for n, a in sent.items()}:
        return SHAPE
    if not whole_number(reply.rows, 0, MOST_ROWS):
        return TOO_MANY
    if not isinstance(reply.loss, int | float) or reply.loss < 0:
        return "a loss below zero"
    steps = request.epochs * -(-reply.rows // request.batch_size)
    for name, array in reply.weights.items():
        size = np.abs(sent[name]).max(initial=0.0)
        furthest = steps * request.learning_rate * (MOST_STEP + request.weight_decay * size)
        if (np.abs(array - sent[name].astype(np.float64)) > furthest + SLACK * size).any():
            return "weights moved further than its steps could"
    return None


def most_bytes(request: TrainRequest) -> int:
    """The bytes of the weights that were sent (of the heads, if only they are asked for)."""
    return sum(array.nbytes for array in request.returned_weights().values())


VERB = Verb(
    name="train",
    request=TrainRequest,
    reply=Update,
    purpose="Improve the network's weights by some steps on the client's rows, for federated averaging.",
    leaves="The network's weights after local steps, the number of rows, and the mean loss.",
    answer=answer,
    disclosure=MinimumSizes(
        ("cell", "step"),
        "enough different queries of each model and in total, and of those that carry the gradient; no more than that, "
        "because weights can memorize single rows (secure sums protect against this)",
    ),
    secure_sum=SecureSum(numbers, to_vector, from_vector, exact=False),
    withheld=Withheld(lambda reply: not reply.rows, nothing),
    faults=faults,
    most_bytes=most_bytes,
    embeddings=HidesEmbeddings("the first layer's shape is the request's"),
)
