"""Clients that lie: each attack of the poisoning tests and of benchmarks/poison.py, as a client like any other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from fedrouter.engines.local import LocalFederation
from fedrouter.errors import BadMessage
from fedrouter.evaluations import Evaluations
from fedrouter.exact import ExactSums
from fedrouter.federation.client import Client
from fedrouter.federation.verbs.messages import VERBS

HUGE = 10_000
"""Times its real rows that a client with huge counts claims."""
BOOST = 100.0


def favored_model(train: Evaluations) -> int:
    """The model an attacker would sell: the least accurate of the dearer half."""
    count = np.maximum(np.bincount(train.model, minlength=len(train.pool)), 1)
    accuracy, cost = (np.bincount(train.model, v, len(train.pool)) / count for v in (train.accuracy, train.cost))
    return int(np.where(cost >= np.median(cost), accuracy, np.inf).argmin())


def inflated(rows: Evaluations, favored: int, price: float) -> Evaluations:
    """Every query answered perfectly by the favored model at its usual price, and wrongly by whoever was asked."""
    queries = np.unique(rows.query)
    kept = np.flatnonzero(rows.model != favored)
    size = len(queries)
    return replace(
        rows,
        query=np.r_[rows.query[kept], queries],
        model=np.r_[rows.model[kept], np.full(size, favored)],
        accuracy=np.r_[np.zeros(len(kept)), np.ones(size)],
        cost=np.r_[rows.cost[kept], np.full(size, price)],
    )


def free(rows: Evaluations) -> Evaluations:
    """Every answer for nothing."""
    return replace(rows, cost=np.zeros(len(rows)))


class Liar(Client):
    """A client whose replies are altered on their way out, without the checks an honest one goes through."""

    def __init__(self, name: str, evaluations: Evaluations, alter: Callable[..., dict[str, Any]]) -> None:
        super().__init__(name, evaluations)
        self._alter = alter

    def answer(self, verb, request):
        reply = super().answer(verb, request)
        forged = object.__new__(type(reply))
        for field, value in {**vars(reply), **self._alter(verb, request, reply)}.items():
            object.__setattr__(forged, field, value)
        return forged


def multiplied(verb, request, reply) -> dict[str, Any]:
    """Counts and sums of a client that has everything ten thousand times."""
    changes = {}
    for field, value in vars(reply).items():
        if isinstance(value, ExactSums):
            changes[field] = ExactSums(value.limbs * HUGE).carried()
        elif field in ("count", "sizes", "rows"):
            changes[field] = value * HUGE
    return changes


def boosted(factor: float, verb, request, reply) -> dict[str, Any]:
    """An update that goes further than its steps, or back."""
    if verb != "train":
        return {}
    return {
        "weights": {
            name: (request.weights[name] + factor * (array - request.weights[name])).astype(np.float32)
            for name, array in reply.weights.items()
        }
    }


def not_numbers(verb, request, reply) -> dict[str, Any]:
    if verb == "train":
        return {"weights": {name: np.full_like(array, np.nan) for name, array in reply.weights.items()}}
    return {"centres": np.full_like(reply.centres, np.nan)} if verb == "cluster" else {}


ATTACKS = ("inflated accuracy", "zero costs", "huge counts", "boosted x100", "flipped x100", "flipped x10", "NaN")
UPDATES = ("boosted x100", "flipped x100", "flipped x10")
"""Attacks on trained weights, which mean nothing to families that only send sums."""


def poisoned(attack: str, name: str, rows: Evaluations, everyone: Evaluations) -> Client:
    """The client that makes this attack; like a well-informed attacker it knows the whole world's averages."""
    favored = favored_model(everyone)
    price = float(everyone.cost[everyone.model == favored].mean())
    match attack:
        case "inflated accuracy":
            return Client(name, inflated(rows, favored, price))
        case "zero costs":
            return Client(name, free(rows))
        case "huge counts":
            return Liar(name, inflated(rows, favored, price), multiplied)
        case "boosted x100" | "flipped x100" | "flipped x10":
            factor = BOOST if "100" in attack else BOOST / 10
            return Liar(name, rows, partial(boosted, -factor if attack.startswith("flipped") else factor))
        case "NaN":
            return Liar(name, rows, not_numbers)
    raise ValueError(attack)


class Wire(LocalFederation):
    """The in-process engine, but as over a network: what cannot be unpacked is dropped, and the others go on."""

    def ask(self, verb, payload, to=None):
        request_type, reply_type = VERBS[verb]
        self.dropped = getattr(self, "dropped", [])
        replies = {}
        for name in sorted(self.clients() if to is None else to):
            packed = self._clients[name].answer(verb, request_type.unpack(payload.pack())).pack()
            try:
                replies[name] = reply_type.unpack(packed)
            except BadMessage:
                self.dropped.append((name, verb))
        return replies
