"""Poisoned clients: each poisoning attack as a client like any other, for tests and benchmarks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields, replace
from functools import partial
from typing import Any

import numpy as np

from fedrouter.engines.local import LocalFederation
from fedrouter.errors import BadMessage
from fedrouter.evaluations import Evaluations
from fedrouter.exact import ExactSums
from fedrouter.federation.client import Client
from fedrouter.federation.message import Reply, Request

HUGE = 10_000
"""Factor by which a client with huge counts multiplies its rows."""
BOOST = 100.0


def favored_model(train: Evaluations) -> int:
    """The model that an attacker would promote: the least accurate of the more expensive half."""
    count = np.maximum(np.bincount(train.model, minlength=len(train.pool)), 1)
    accuracy, cost = (np.bincount(train.model, v, len(train.pool)) / count for v in (train.accuracy, train.cost))
    return int(np.where(cost >= np.median(cost), accuracy, np.inf).argmin())


def inflated(rows: Evaluations, favored: int, price: float) -> Evaluations:
    """Rows in which the favored model answers every query correctly at its usual price, and all others are wrong."""
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
    """Rows in which every answer costs nothing."""
    return replace(rows, cost=np.zeros(len(rows)))


class AlteringClient(Client):
    """A client whose replies are altered on their way out, without the checks of an honest one."""

    def __init__(self, name: str, evaluations: Evaluations, alter: Callable[..., dict[str, Any]]) -> None:
        super().__init__(name, evaluations)
        self._alter = alter

    def answer(self, verb: str, request: Request[Reply], hidden: bool = False) -> Reply:
        reply = super().answer(verb, request, hidden)
        return forged(reply, **self._alter(verb, request, reply))


def forged(reply: Reply, **changes: Any) -> Reply:
    """The reply with other values and without its type's checks."""
    copy = object.__new__(type(reply))
    for part in fields(reply):
        object.__setattr__(copy, part.name, changes.get(part.name, getattr(reply, part.name)))
    return copy


def multiplied(verb: str, request: Any, reply: Any) -> dict[str, Any]:
    """Counts and sums multiplied by ten thousand."""
    changes: dict[str, Any] = {}
    for field, value in vars(reply).items():
        if isinstance(value, ExactSums):
            changes[field] = ExactSums(value.limbs * HUGE).carried()
        elif field in ("count", "sizes", "rows"):
            changes[field] = value * HUGE
    return changes


def boosted(factor: float, verb: str, request: Any, reply: Any) -> dict[str, Any]:
    """An update that is longer than its steps allow, or reversed."""
    if verb != "train":
        return {}
    return {
        "weights": {
            name: (request.weights[name] + factor * (array - request.weights[name])).astype(np.float32)
            for name, array in reply.weights.items()
        }
    }


def not_numbers(verb: str, request: Any, reply: Any) -> dict[str, Any]:
    """Weights and centres that are NaN."""
    if verb == "train":
        return {"weights": {name: np.full_like(array, np.nan) for name, array in reply.weights.items()}}
    return {"centres": np.full_like(reply.centres, np.nan)} if verb == "cluster" else {}


ATTACKS = ("inflated accuracy", "zero costs", "huge counts", "boosted x100", "flipped x100", "flipped x10", "NaN")
UPDATES = ("boosted x100", "flipped x100", "flipped x10")
"""Attacks on trained weights, which do not concern families that only send sums."""


def poisoned(attack: str, name: str, rows: Evaluations, everyone: Evaluations) -> Client:
    """The client that makes this attack; as a well-informed attacker it knows the averages of all clients."""
    favored = favored_model(everyone)
    price = float(everyone.cost[everyone.model == favored].mean())
    match attack:
        case "inflated accuracy":
            return Client(name, inflated(rows, favored, price))
        case "zero costs":
            return Client(name, free(rows))
        case "huge counts":
            return AlteringClient(name, inflated(rows, favored, price), multiplied)
        case "boosted x100" | "flipped x100" | "flipped x10":
            factor = BOOST if "100" in attack else BOOST / 10
            return AlteringClient(name, rows, partial(boosted, -factor if attack.startswith("flipped") else factor))
        case "NaN":
            return AlteringClient(name, rows, not_numbers)
    raise ValueError(attack)


class LossyFederation(LocalFederation):
    """The in-process engine, but as over a network: a reply that cannot be unpacked is dropped, not an error."""

    def __init__(self, clients: Iterable[Client]) -> None:
        super().__init__(clients)
        self.dropped: list[tuple[str, str]] = []

    def ask(self, verb: str, payload: Request[Reply], to: Sequence[str] | None = None) -> Mapping[str, Reply]:
        replies: dict[str, Reply] = {}
        for name in sorted(self.clients() if to is None else to):
            try:
                replies |= super().ask(verb, payload, [name])
            except BadMessage:
                self.dropped.append((name, verb))
        return replies
