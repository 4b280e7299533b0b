"""Algorithm 1 of the paper, "Federated MLP-Router training": federated averaging of a shared trunk and heads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import add
from typing import Any, Self

import numpy as np

from fedrouter.errors import BadInput
from fedrouter.federation.families.family import Settings
from fedrouter.federation.federation import Callback, Federation, NothingToLearn, Progress, ignore
from fedrouter.federation.middleware.sums import rows_of_each
from fedrouter.federation.seeds import derive
from fedrouter.federation.verbs.cost_scale import CostScaleRequest, LogCostSums
from fedrouter.federation.verbs.cost_totals import CostTotals, CostTotalsRequest
from fedrouter.federation.verbs.train import TrainRequest, Update
from fedrouter.pool import ModelPool
from fedrouter.routers.mlp import CostScale, MLPRouter, Weights, initial_weights

LEAST_ACTIVE = 3
"""Clients that train in a round, unless there are fewer: of two, secure sums would reveal each to the other."""
LEAST_DEVIATION = 0.01
"""Least standard deviation of log dollars, for a model whose cost is constant."""


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


def learn(
    federation: Federation,
    pool: ModelPool,
    settings: MLPSettings = MLPSettings(),
    seed: int = 0,
    callback: Callback = ignore,
) -> MLPRouter:
    """Learn a router from the clients of a federation."""
    scale, dimension = ask_cost_scale(federation, pool)
    origin = derive(seed, "weights")
    weights: Weights = initial_weights(dimension, settings.hidden, len(pool), origin)
    weights = average_rounds(federation, pool, weights, scale, settings, seed, callback, origin=origin)
    return MLPRouter(pool, weights, ask_cost_correction(federation, pool, weights, scale))


def average_rounds(
    federation: Federation,
    pool: ModelPool,
    weights: Weights,
    scale: CostScale,
    settings: MLPSettings,
    seed: int,
    callback: Callback,
    **rest: Any,
) -> Weights:
    """Rounds of federated averaging from given weights; line numbers are Algorithm 1's.

    ``rest`` goes into every :class:`TrainRequest`: the seed of first weights, or what must not change while a router
    grows.
    """
    for index in range(settings.rounds):  # line 2
        active = sample(federation.clients(), settings.participation, derive(seed, "active", index))
        request = TrainRequest(
            pool.names,
            weights,
            scale,
            settings.local_epochs,
            settings.batch_size,
            settings.learning_rate,
            settings.weight_decay,
            settings.clip_norm,
            settings.dropout,
            derive(seed, "train", index),
            round=index,
            **rest,
        )
        replies = federation.ask("train", request, to=active)  # lines 3-10, at the clients
        updates = [reply for reply in replies.values() if reply.rows]
        if updates:  # a round without an answer from a client with data leaves the weights unchanged
            weights = {**weights, **average(updates, request.returned_weights())}  # line 11
        loss = sum(update.rows * update.loss for update in updates) / max(1, sum(u.rows for u in updates))
        router = MLPRouter(pool, weights, scale)
        callback(Progress("train", index + 1, settings.rounds, tuple(replies), {"loss": loss}, router))
    return weights


def sample(clients: Sequence[str], participation: float, seed: int) -> list[str]:
    """The active clients of a round, S^(t): a fixed share of all, at least three or all, drawn without replacement."""
    size = min(len(clients), max(LEAST_ACTIVE, round(participation * len(clients))))
    chosen = np.random.default_rng(seed).choice(len(clients), size=size, replace=False)
    return sorted(clients[index] for index in chosen)


def average(updates: Sequence[Update], like: Weights) -> Weights:
    """Line 11: the mean of the clients' weights, weighted by their rows; shapes must equal those of ``like``."""
    rows = sum(update.rows for update in updates)
    shapes = {name: array.shape for name, array in like.items()}
    for update in updates:
        update.require({n: a.shape for n, a in update.weights.items()} == shapes, "weights of another network")
    found = {}
    for name, array in like.items():
        total, part = np.zeros(array.shape, np.float64), np.empty(array.shape, np.float64)
        for update in updates:
            total += np.multiply(update.weights[name], update.rows / rows, out=part, dtype=np.float64)
        found[name] = total.astype(np.float32)
    return found


def ask_cost_scale(federation: Federation, pool: ModelPool) -> tuple[CostScale, int]:
    """Before round one: the scale of costs, and the width of the clients' embeddings."""
    return cost_scale(federation.ask("cost_scale", CostScaleRequest(pool.names)), pool)


def cost_scale(replies: Mapping[str, LogCostSums], pool: ModelPool) -> tuple[CostScale, int]:
    """Each model's mean and deviation of log dollars, from the clients' sums alone; and the width of embeddings."""
    if not any(reply.count.any() for reply in replies.values()):
        raise NothingToLearn("sums of costs", rows_of_each(replies))
    sums: LogCostSums = reduce(add, replies.values())
    count = np.maximum(sums.count, 1)
    mean = sums.total.totals() / count
    variance = np.maximum(sums.squares.totals() / count - mean**2, 0)
    deviation = np.maximum(np.sqrt(variance), LEAST_DEVIATION)
    return CostScale(sums.count, mean, deviation, np.ones(len(pool))), sums.dimension


def ask_cost_correction(federation: Federation, pool: ModelPool, weights: Weights, scale: CostScale) -> CostScale:
    """After the last round: factors that make each model's predicted dollars add up to the observed ones.

    The exponential of a mean logarithm is a geometric mean, which is below the arithmetic one; one more pair of sums
    corrects it.
    """
    replies = federation.ask("cost_totals", CostTotalsRequest(pool.names, weights, scale))
    if not replies:
        raise NothingToLearn("sums of predicted costs", replies)
    totals: CostTotals = reduce(add, replies.values())
    observed, predicted = totals.observed.totals(), totals.predicted.totals()
    return replace(scale, correction=np.where(predicted > 0, observed / np.where(predicted > 0, predicted, 1.0), 1.0))
