"""Algorithm 1 of the paper, "Federated MLP-Router training", line by line: what clients and the server do.

A shared trunk and two linear heads for each model, learned by federated averaging. Local training is in torch, which
only a client that answers :func:`train` needs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from operator import add
from typing import TYPE_CHECKING, Annotated, Any, Self

import numpy as np

from fedrouter.encoders.device import seeded_torch, training_device
from fedrouter.errors import BadInput, BadMessage
from fedrouter.evaluations import Evaluations, Integers
from fedrouter.exact import ExactSums
from fedrouter.federation.families.family import TRAINED_WEIGHTS, Family, Settings, SingleOwner
from fedrouter.federation.federation import Callback, Federation, NothingToLearn, Progress, ignore
from fedrouter.federation.message import Request, Sums
from fedrouter.federation.plausibility import MOST_ROWS, SHAPE, TOO_MANY, dollar_fault, row_fault
from fedrouter.federation.seeds import derive
from fedrouter.federation.verb import Own, Verb
from fedrouter.pool import ModelPool
from fedrouter.routers.mlp import (
    HEADS,
    NORM_EPSILON,
    CostScale,
    MLPRouter,
    Weights,
    head_shapes,
    initial_weights,
    outputs,
)

if TYPE_CHECKING:
    import torch

LEAST_ACTIVE = 3
"""Clients that train in a round, unless there are fewer: of two, secure sums would reveal each to the other."""
UNIT = 2.0**32
"""Rows times weight travels as an integer in units of 2^-32: float32 itself keeps a weight of 0.01 only to 2^-31."""
MOST = 2.0**22
"""The largest magnitude of rows times weight, so that the integers of hundreds of clients can be added."""
MILLS = 1000.0
"""Squares of costs are summed in thousandths of a dollar: exact sums have no room for smaller ones."""
LEAST_SPREAD = 0.05
"""Least standard deviation of a model's cost, as a share of its mean."""
HELD_OUT = 0.2
"""Share of an owner's training queries on which the number of epochs is chosen: a tenth of a client's is too few."""


STEPS = ("local_epochs", "batch_size", "learning_rate", "weight_decay", "clip_norm", "dropout")
"""The settings that clients are sent."""


@dataclass(frozen=True)
class MLPSettings(Settings):
    """The defaults are the paper's, section "Optimization and FL hyperparameters".

    Parameters
    ----------
    participation : share of the clients that train in a round, at least three or all
    head_epochs : local epochs per round when heads of new models are trained, on few rows and with the trunk frozen
    distillation : weight of the distillation loss that keeps the router close to the old one when clients are added
    """

    rounds: int = 5
    participation: float = 0.6
    local_epochs: int = 1
    hidden: tuple[int, ...] = (512, 512)
    dropout: float = 0.1
    learning_rate: float = 1e-3
    weight_decay: float = 3e-4
    batch_size: int = 128
    clip_norm: float = 1.0
    head_epochs: int = 10
    distillation: float = 1.0

    def __post_init__(self) -> None:
        for name in ("rounds", "local_epochs", "batch_size", "head_epochs"):
            if getattr(self, name) < 1:
                raise BadInput(f"{name}: expected at least 1, got {getattr(self, name)}")
        if not 0 < self.participation <= 1:
            raise BadInput(f"participation: expected a share in (0, 1], got {self.participation}")
        if not 0 <= self.distillation < np.inf:
            raise BadInput(f"distillation: expected a number of at least 0, got {self.distillation}")

    def single_client(self) -> Self:
        """One round of as many epochs as a federation's rounds have together."""
        return replace(self, rounds=1, local_epochs=self.rounds * self.local_epochs, participation=1.0)


# --- What a client answers ------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class CostsRequest(Request["Costs"]):
    """Normalize each model's cost by its mean and deviation, before networks are trained."""

    models: Annotated[tuple[str, ...], "names of the M models, in order"]

    def shapes(self) -> dict[str, tuple[int, ...]]:
        size = (len(self.models),)
        return {"count": size, "cost": size, "squares": size, "width": (3,)}


@dataclass(frozen=True, eq=False)
class Costs(Sums):
    """By model: the number of evaluations, sums of their costs and of squared costs; and the width of embeddings."""

    count: Annotated[Integers, "(M,) int64: number of evaluations"]
    cost: Annotated[ExactSums, "(M,) sum of costs in dollars"]
    squares: Annotated[ExactSums, "(M,) sum of squared costs, in thousandths of a dollar and of a dollar at most"]
    width: Annotated[Integers, "(3,) int64: 1, width d and d²; their sums tell whether all have one width"]


def costs(own: Own, request: CostsRequest) -> Costs:
    rows, size = own.rows.over(ModelPool(request.models)), len(request.models)
    width = np.array([1, rows.dimension, rows.dimension**2], np.int64)
    squares = ExactSums.of((MILLS * np.minimum(rows.cost, 1.0)) ** 2, rows.model, size)
    return Costs(np.bincount(rows.model, minlength=size), ExactSums.of(rows.cost, rows.model, size), squares, width)


@dataclass(frozen=True, eq=False)
class TrainRequest(Request["Update"]):
    """Improve the network's weights by some steps on the client's rows, for federated averaging."""

    models: Annotated[tuple[str, ...], "names of the M models, in order"]
    weights: Annotated[Weights, "float32 arrays by name: the global weights"]
    scale: Annotated[CostScale, "(M,) arrays: each model's scale of cost"]
    seed: Annotated[int, "random seed"]
    local_epochs: Annotated[int, "number of passes over the rows"]
    batch_size: Annotated[int, "rows per step"]
    learning_rate: Annotated[float, "of AdamW"]
    weight_decay: Annotated[float, "of AdamW"]
    clip_norm: Annotated[float, "maximum norm of a gradient"]
    dropout: Annotated[float, "share of hidden units dropped"]
    heads_only: Annotated[bool, "keep the trunk fixed, and send back only the heads"] = False
    base: Annotated[Weights, "float32 arrays by name: a frozen network to stay close to, if any"] = field(
        default_factory=dict
    )
    distillation: Annotated[float, "weight of staying close to it in the loss"] = 0.0

    def check(self) -> None:
        self.require_weights(self.weights)
        self.require(self.local_epochs > 0 and self.batch_size > 0, "local_epochs and batch_size must be above 0")
        self.require(0 <= self.distillation < np.inf, "distillation must be at least 0")
        self.require(bool(self.base) == (self.distillation > 0), "distillation goes with a base")
        if self.base:
            self.require_weights(self.base)

    def trained(self) -> Weights:
        """The weights to train, as they were sent."""
        return {name: array for name, array in self.weights.items() if not self.heads_only or name.startswith(HEADS)}

    def shapes(self) -> dict[str, tuple[int, ...]]:
        return {"weights": (sum(array.size for array in self.trained().values()),), "rows": (1,), "loss": (1,)}


@dataclass(frozen=True, eq=False)
class Update(Sums):
    """The network's weights after local steps and their loss, each times the number of rows; and that number."""

    weights: Annotated[Integers, "(P,) int64: rows times weight in units of 2^-32, in the order of the request's"]
    rows: Annotated[Integers, "(1,) int64: number of rows that were trained on"]
    loss: Annotated[Integers, "(1,) int64: rows times mean loss of the last epoch in units of 2^-32"]

    def mean(self, request: TrainRequest) -> Weights:
        """Line 11: the mean of the clients' weights, weighted by their rows."""
        means, start, found = self.weights / UNIT / max(1, int(self.rows[0])), 0, {}
        for name, array in request.trained().items():
            found[name] = means[start : start + array.size].reshape(array.shape).astype(np.float32)
            start += array.size
        return found


def train(own: Own, request: TrainRequest) -> Update:
    """Lines 5-9: epochs of AdamW on the rows of models whose cost has a scale.

    The loss is the paper's: squared error of accuracy plus squared error of cost, each on the heads of the one model
    that was asked. With a ``base`` it also has the paper's regularizer, section "When New Clients Join the System": the
    mean over models of the squared distance of accuracy and cost from the outputs of the base.
    """
    rows = own.rows.over(ModelPool(request.models))
    rows = rows.take(np.flatnonzero(request.scale.count[rows.model] > 0))
    trained = request.trained()
    if not len(rows):
        return Update(*(np.zeros(shape, np.int64) for shape in request.shapes().values()))
    with seeded_torch(derive(request.seed, own.name)) as torch:
        device = training_device()
        weights = {name: torch.tensor(array, device=device) for name, array in request.weights.items()}
        moving = [weights[name].requires_grad_() for name in trained]
        optimizer = torch.optim.AdamW(moving, lr=request.learning_rate, weight_decay=request.weight_decay)
        embeddings = rows.embeddings[rows.query]
        targets = np.stack([rows.accuracy, request.scale.normalised(rows.cost, rows.model)], axis=1)
        inputs, wanted = torch.tensor(embeddings, device=device), torch.tensor(targets, device=device).float()
        asked = torch.tensor(rows.model, device=device)[:, None, None].expand(-1, 2, 1)
        if request.base:
            base = torch.tensor(outputs(request.base, embeddings), device=device).float()
        loss_sum = 0.0
        for _ in range(request.local_epochs):
            loss_sum = 0.0
            for batch in torch.randperm(len(inputs)).to(device).split(request.batch_size):
                predicted = network(weights, inputs[batch], request.dropout)
                error = predicted.gather(2, asked[batch])[:, :, 0] - wanted[batch]
                loss = (error**2).sum(dim=1).mean()
                if request.base:
                    loss = loss + request.distillation * ((predicted - base[batch]) ** 2).sum(dim=1).mean()
                optimizer.zero_grad()
                loss.backward()
                torch.nn.utils.clip_grad_norm_(moving, request.clip_norm)
                optimizer.step()
                loss_sum += loss.item() * len(batch)
        flat = np.concatenate([weights[name].detach().cpu().numpy().ravel() for name in trained]).astype(np.float64)
    weighted = len(rows) * flat
    if not max(np.abs(weighted).max(), loss_sum) < MOST:  # also catches NaN
        raise BadInput("weights times rows too large to be added in fixed point: has the training diverged?")
    total = np.array([len(rows)], np.int64)
    return Update(np.rint(weighted * UNIT).astype(np.int64), total, np.rint([loss_sum * UNIT]).astype(np.int64))


def network(weights: dict[str, torch.Tensor], inputs: torch.Tensor, dropout: float) -> torch.Tensor:
    """Accuracy and normalized cost ``(n, 2, M)``; :func:`fedrouter.routers.mlp.outputs` with dropout."""
    import torch
    from torch.nn import functional

    hidden = inputs
    for layer in range(1, sum(name.startswith("norm") for name in weights) // 2 + 1):
        hidden = functional.linear(hidden, weights[f"layer{layer}.weight"], weights[f"layer{layer}.bias"])
        norm = weights[f"norm{layer}.weight"], weights[f"norm{layer}.bias"]
        hidden = functional.layer_norm(hidden, hidden.shape[1:], *norm, NORM_EPSILON)
        hidden = functional.dropout(functional.gelu(hidden), dropout)
    accuracy, cost = (functional.linear(hidden, weights[f"{head}.weight"], weights[f"{head}.bias"]) for head in HEADS)
    return torch.stack([accuracy.sigmoid(), cost], dim=1)


# --- What the server does -------------------------------------------------------------------------------------------


def learn(
    federation: Federation,
    pool: ModelPool,
    settings: MLPSettings = MLPSettings(),
    seed: int = 0,
    callback: Callback = ignore,
) -> MLPRouter:
    """Learn a router from the clients of a federation."""
    scale, width = ask_costs(federation, pool)
    weights: Weights = initial_weights(width, settings.hidden, len(pool), derive(seed, "weights"))  # line 1
    return MLPRouter(pool, average_rounds(federation, pool, weights, scale, settings, seed, callback), scale)


def ask_costs(federation: Federation, pool: ModelPool, expected: int | None = None) -> tuple[CostScale, int]:
    """Before round one: the mean and deviation of each model's cost, and the width of the clients' embeddings."""
    replies = federation.ask("costs", CostsRequest(pool.names))
    total = reduce(add, replies.values()) if replies else None
    if total is None or not total.count.any():
        raise NothingToLearn("sums of costs", federation.clients())
    clients, widths, squares = map(int, total.width)
    if widths**2 != clients * squares:
        raise BadMessage("clients embed with different widths")
    if expected not in (None, widths // clients):
        raise BadInput(f"the clients' embeddings have width {widths // clients}, the router expects {expected}")
    count = np.maximum(total.count, 1)
    mean = total.cost.totals() / count
    variance = np.maximum(total.squares.totals() / MILLS**2 / count - mean**2, 0)
    return CostScale(total.count, mean, np.maximum(np.sqrt(variance), LEAST_SPREAD * mean)), widths // clients


def average_rounds(
    federation: Federation,
    pool: ModelPool,
    weights: Weights,
    scale: CostScale,
    settings: MLPSettings,
    seed: int,
    callback: Callback,
    **growth: Any,
) -> Weights:
    """Rounds of federated averaging from given weights; ``growth`` is what must not change while a router grows."""
    steps = {name: getattr(settings, name) for name in STEPS}
    for index in range(settings.rounds):  # line 2
        active = sample(federation.clients(), settings.participation, derive(seed, "active", index))
        request = TrainRequest(pool.names, weights, scale, derive(seed, "train", index), **steps, **growth)
        replies = federation.ask("train", request, to=active)  # lines 3-10
        loss = 0.0
        if replies and (total := reduce(add, replies.values())).rows[0]:  # a round without rows changes nothing
            weights = {**weights, **total.mean(request)}  # line 11
            loss = float(total.loss[0] / UNIT / total.rows[0])
        router = MLPRouter(pool, weights, scale)
        callback(Progress("train", index + 1, settings.rounds, tuple(replies), {"loss": loss}, router))
    return weights


def sample(clients: Sequence[str], participation: float, seed: int) -> list[str]:
    """The active clients of a round, S^(t): a fixed share of all, at least three or all, drawn without replacement."""
    size = min(len(clients), max(LEAST_ACTIVE, round(participation * len(clients))))
    chosen = np.random.default_rng(seed).choice(len(clients), size=size, replace=False)
    return sorted(clients[index] for index in chosen)


def choose_epochs(settings: MLPSettings, train: Evaluations, seed: int, owner: SingleOwner) -> MLPSettings:
    """How long one owner of all the data trains: the number of epochs with the least error on held-out queries.

    For as many epochs as a federation has rounds, a network on the data of one owner overfits, and a baseline that is
    weakened by that would flatter the federation. Never chosen on test data.
    """
    shuffled = np.random.default_rng(derive(seed, "held out")).permutation(train.queries)
    cut = max(1, round(HELD_OUT * train.queries))
    held, rest = train.of_queries(shuffled[:cut]), train.of_queries(shuffled[cut:])
    most = settings.rounds * settings.local_epochs
    errors: list[float] = []

    def measure(progress: Progress) -> None:
        assert progress.router is not None
        # Accuracy alone: it overfits long before cost does, whose error hardly changes a choice.
        found = progress.router.estimate(held.embeddings).accuracy[held.query, held.model] - held.accuracy
        errors.append(float(np.nansum(found**2)))  # NaN for models of which all rows are held out

    if most > 1 and len(rest) and len(held):
        trial = replace(settings, rounds=most, local_epochs=1, participation=1.0)
        learn(owner("held-out", rest), train.pool, trial, seed, measure)
    return replace(settings.single_client(), local_epochs=int(np.argmin(errors)) + 1 if any(errors) else most)


# --- Growth: sections "When New Models are Added to the Pool" and "When New Clients Join the System" ----------------


def add_models(
    router: MLPRouter,
    federation: Federation,
    models: ModelPool,
    settings: MLPSettings = MLPSettings(),
    seed: int = 0,
    callback: Callback = ignore,
) -> MLPRouter:
    """Add models: append a head for each and train only these; the trunk and the old heads keep every bit.

    Only the trunk and the new heads are sent. A new head starts at the mean of the old ones: a model about which
    nothing is known is most likely similar to the others.
    """
    scale, _ = ask_costs(federation, models, router.dimension)
    first, known = dict(router.weights), router.scale.count > 0
    for name in head_shapes(0, 0):
        first[name] = np.repeat(first[name][known].mean(axis=0, keepdims=True), len(models), axis=0)
    chosen = replace(settings, participation=1.0, local_epochs=settings.head_epochs)
    trained = average_rounds(federation, models, first, scale, chosen, seed, callback, heads_only=True)
    heads = {name: np.concatenate([router.weights[name], trained[name]]) for name in head_shapes(0, 0)}
    return MLPRouter(router.pool.with_models(models), {**router.weights, **heads}, router.scale.beside(scale))


def add_clients(
    router: MLPRouter,
    federation: Federation,
    settings: MLPSettings = MLPSettings(),
    seed: int = 0,
    callback: Callback = ignore,
) -> MLPRouter:
    """Add clients: training continues with them alone; ``settings.distillation`` keeps it close to the old router.

    The cost scale of a model stays; one that nobody had evaluated takes it from the new clients.
    """
    theirs, _ = ask_costs(federation, router.pool, router.dimension)
    old, seen = router.scale, router.scale.count > 0
    mean, deviation = (np.where(seen, getattr(old, name), getattr(theirs, name)) for name in ("mean", "deviation"))
    scale = CostScale(old.count + theirs.count, mean, deviation)
    close: dict[str, Any] = {"base": router.weights, "distillation": settings.distillation}
    growth = close if settings.distillation else {}
    return MLPRouter(
        router.pool,
        average_rounds(federation, router.pool, router.weights, scale, settings, seed, callback, **growth),
        scale,
    )


# --- Records --------------------------------------------------------------------------------------------------------


def cost_faults(request: CostsRequest, reply: Costs) -> str | None:
    if not reply.fits(request.shapes()):
        return SHAPE
    if (reply.count < 0).any() or (reply.cost.totals() < 0).any() or (reply.width < 1).any():
        return "counts or sums below 0"
    return row_fault(reply.count) or dollar_fault(reply.count, reply.cost.totals())


def update_faults(request: TrainRequest, reply: Update) -> str | None:
    if not reply.fits(request.shapes()):
        return SHAPE
    return None if 0 <= reply.rows[0] <= MOST_ROWS else TOO_MANY


COSTS = Verb("costs", CostsRequest, Costs, costs, masked=False, faults=cost_faults)
TRAIN = Verb("train", TrainRequest, Update, train, masked=False, faults=update_faults)
FAMILY = Family(
    name="mlp",
    title="MLP",
    description="a neural network with a head for each model, by federated averaging (Algorithm 1 of the paper)",
    router=MLPRouter,
    settings=MLPSettings,
    paper=MLPSettings(),
    learn=learn,
    add_models=add_models,
    add_clients=add_clients,
    remove_clients=TRAINED_WEIGHTS,
    pooled=choose_epochs,
    extra="train",
    random=True,
)
