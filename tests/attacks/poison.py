"""Poisoned clients: clients like any other that answer with what no honest log gives."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np

from fedrouter.engines.local import LocalFederation
from fedrouter.errors import BadMessage
from fedrouter.evaluations import Evaluations
from fedrouter.federation.client import Client
from fedrouter.federation.message import Reply, Request


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


def forged(reply: Reply, **changes: Any) -> Reply:
    """The reply with other values and without its type's checks."""
    copy = object.__new__(type(reply))
    for part in fields(reply):
        object.__setattr__(copy, part.name, changes.get(part.name, getattr(reply, part.name)))
    return copy


class NotNumbers(Client):
    """A client whose centres and weights are NaN, without the checks of an honest one."""

    def answer(self, verb: str, request: Request[Reply], hidden: bool = False) -> Reply:
        reply: Any = super().answer(verb, request, hidden)
        if verb == "train":
            return forged(reply, weights={name: np.full_like(array, np.nan) for name, array in reply.weights.items()})
        return forged(reply, centres=np.full_like(reply.centres, np.nan)) if verb == "cluster" else reply


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
