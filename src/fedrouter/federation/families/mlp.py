"""Algorithm 1 of the paper, "Federated MLP-Router training": federated averaging of a shared trunk and heads.

Four things are added to it, each a setting that can be turned off; :meth:`MLPSettings.paper` turns off all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import add
from typing import Any, Self

import numpy as np

from fedrouter.errors import BadInput
from fedrouter.federation.federation import Callback, Federation, NothingToLearn, Progress, ignore
from fedrouter.federation.seeds import derive
from fedrouter.federation.verbs.messages import (
    CostScaleRequest,
    CostTotals,
    CostTotalsRequest,
    HeldOutErrors,
    LogCostSums,
    TrainRequest,
    Update,
    ValidateRequest,
    sent_back,
)
from fedrouter.pool import ModelPool
from fedrouter.routers.mlp import HEADS, CostScale, MLPRouter, Weights, initial_weights

LEAST_DEVIATION = 0.01
"""Of log dollars: keeps the scale of a model with constant cost away from zero."""


@dataclass(frozen=True)
class MLPSettings:
    """The paper's, section "Optimization and FL hyperparameters", and four additions that can be turned off.

    Parameters
    ----------
    zero_init_heads : every head starts at zero, not at random: a model with few rows keeps little noise of its start
    shared_step : a client moves all heads together, too, so that it also teaches those of models it never asks
    ema_decay : the router is the running mean of the rounds' weights, each round keeping so much of the one before
    validation_fraction : share of its queries on which each client judges the rounds; the best round's weights are kept
    head_epochs : local epochs a round when heads of new models are trained, on few rows and with the trunk frozen
    distillation : when new clients join, how much staying near the router they join counts beside their own rows
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
    zero_init_heads: bool = True
    shared_step: bool = True
    ema_decay: float = 0.7
    validation_fraction: float = 0.1
    head_epochs: int = 10
    distillation: float = 1.0

    @classmethod
    def paper(cls, **changes: Any) -> MLPSettings:
        """Algorithm 1 as it is printed."""
        return cls(
            **{"zero_init_heads": False, "shared_step": False, "ema_decay": 0.0, "validation_fraction": 0.0} | changes
        )

    def __post_init__(self) -> None:
        for name in ("rounds", "local_epochs", "batch_size", "head_epochs"):
            if getattr(self, name) < 1:
                raise BadInput(f"{name}: expected at least 1, got {getattr(self, name)}")
        if not 0 < self.participation <= 1:
            raise BadInput(f"participation: expected a share in (0, 1], got {self.participation}")
        for name in ("ema_decay", "validation_fraction"):
            if not 0 <= getattr(self, name) < 1:
                raise BadInput(f"{name}: expected a share in [0, 1), got {getattr(self, name)}")
        if not 0 <= self.distillation < np.inf:
            raise BadInput(f"distillation: expected a number of at least 0, got {self.distillation}")

    def single_client(self) -> Self:
        """One owner of all the data trains without interruption, as many epochs as there would have been rounds.

        Of one round there is nothing to choose, so no row is held out.
        """
        epochs = self.rounds * self.local_epochs
        return replace(self, rounds=1, local_epochs=epochs, participation=1.0, validation_fraction=0.0)


def learn(
    federation: Federation,
    pool: ModelPool,
    settings: MLPSettings = MLPSettings(),
    seed: int = 0,
    callback: Callback = ignore,
) -> MLPRouter:
    """Learn a router from the clients of a federation."""
    scale, dimension = ask_cost_scale(federation, pool)
    weights: Weights = initial_weights(dimension, settings.hidden, len(pool), derive(seed, "weights"))
    if settings.zero_init_heads:
        weights = {name: np.zeros_like(a) if name.startswith(HEADS) else a for name, a in weights.items()}
    best = average_rounds(federation, pool, weights, scale, settings, seed, callback)
    return MLPRouter(pool, best, ask_cost_correction(federation, pool, best, scale))


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
    """Rounds of federated averaging from given weights; line numbers are Algorithm 1's.

    ``growth`` goes into every :class:`TrainRequest`: what is to stay as it is while a router grows.
    """
    smooth = best = weights
    least = np.inf
    for turn in range(settings.rounds):  # line 2
        active = sample(federation.clients(), settings.participation, derive(seed, "active", turn))
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
            derive(seed, "train", turn),
            settings.shared_step,
            settings.validation_fraction,
            **growth,
        )
        replies = federation.ask("train", request, to=active)  # lines 3-10, at the clients
        updates = [reply for reply in replies.values() if reply.rows]
        if updates:  # a round in which nobody with data answered leaves the weights as they are
            weights = {**weights, **average(updates, sent_back(request))}  # line 11
        # Training goes on from the round's own weights; their mean is only what the router is made of.
        smooth = mix(smooth, weights, settings.ema_decay) if turn else weights
        loss = sum(update.rows * update.loss for update in updates) / max(1, sum(u.rows for u in updates))
        metrics = {"loss": loss}
        error = ask_error(federation, pool, smooth, scale, settings)
        if error is None:  # nobody holds out a row: the last round is the one to keep
            best = smooth
        else:
            metrics["held-out error"] = error
            best, least = (smooth, error) if error < least else (best, least)
        callback(Progress("train", turn + 1, settings.rounds, tuple(replies), metrics, MLPRouter(pool, best, scale)))
    return best


def sample(clients: Sequence[str], participation: float, seed: int) -> list[str]:
    """The active clients of a round, S^(t): a fixed share of them, at least one, drawn without replacement."""
    size = max(1, round(participation * len(clients)))
    chosen = np.random.default_rng(seed).choice(len(clients), size=size, replace=False)
    return sorted(clients[place] for place in chosen)


def average(updates: Sequence[Update], like: Weights) -> Weights:
    """Line 11: the mean of the clients' weights, each weighing as much as it has rows; all shaped ``like`` these."""
    rows = sum(update.rows for update in updates)
    shapes = {name: array.shape for name, array in like.items()}
    for update in updates:
        update.require({n: a.shape for n, a in update.weights.items()} == shapes, "weights of another network")
    return {
        name: sum(
            (update.weights[name].astype(np.float64) * (update.rows / rows) for update in updates),
            start=np.zeros((), np.float64),
        ).astype(np.float32)
        for name in like
    }


def mix(old: Weights, new: Weights, keep: float) -> Weights:
    """``keep`` of the old weights and the rest of the new."""
    if not keep:
        return new
    share = (np.float32(keep), np.float32(1 - keep))
    # What a round did not touch stays the same to the bit.
    return {
        name: array if array is old[name] else share[0] * old[name] + share[1] * array for name, array in new.items()
    }


def ask_error(
    federation: Federation, pool: ModelPool, weights: Weights, scale: CostScale, settings: MLPSettings
) -> float | None:
    """Mean squared error of accuracy over all clients' held-out rows; None if there are none.

    Of accuracy alone: its error rises again long before that of cost, which hardly moves a choice.
    """
    if not settings.validation_fraction:
        return None
    request = ValidateRequest(pool.names, weights, scale, settings.validation_fraction)
    errors: HeldOutErrors = reduce(add, federation.ask("validate", request).values())
    return float(errors.squares.totals()[0]) / errors.rows if errors.rows else None


def ask_cost_scale(federation: Federation, pool: ModelPool) -> tuple[CostScale, int]:
    """Before round one: each model's mean and deviation of log dollars, from the clients' sums alone."""
    replies = federation.ask("cost_scale", CostScaleRequest(pool.names))
    if not any(reply.count.any() for reply in replies.values()):
        raise NothingToLearn
    sums: LogCostSums = reduce(add, replies.values())
    count = np.maximum(sums.count, 1)
    mean = sums.total.totals() / count
    variance = np.maximum(sums.squares.totals() / count - mean**2, 0)
    deviation = np.maximum(np.sqrt(variance), LEAST_DEVIATION)
    return CostScale(sums.count, mean, deviation, np.ones(len(pool))), sums.dimension


def ask_cost_correction(federation: Federation, pool: ModelPool, weights: Weights, scale: CostScale) -> CostScale:
    """After the last round: factors that make each model's predicted dollars add up to the observed ones.

    The exponential of a mean logarithm is a geometric mean, below the arithmetic one; one more sum puts it right.
    """
    replies = federation.ask("cost_totals", CostTotalsRequest(pool.names, weights, scale))
    totals: CostTotals = reduce(add, replies.values())
    observed, predicted = totals.observed.totals(), totals.predicted.totals()
    return replace(scale, correction=np.where(predicted > 0, observed / np.where(predicted > 0, predicted, 1.0), 1.0))
