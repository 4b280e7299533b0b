"""The in-process engine: clients that are rows in this process, protected as in a real federation or not at all.

``default`` is what a real federation does: releases have the noise of members that trust each other, and no centroid
stands for few queries. ``exact`` is the same without noise, ``open`` protects nothing. No masks are made: sums are
exact, so the total of a secure sum is the sum of these replies.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

import numpy as np

from fedrouter.errors import BadInput
from fedrouter.evaluations import Evaluations
from fedrouter.federation.federation import EVERYONE, LEAST_DECLARING, Federation
from fedrouter.federation.message import Reply, Request
from fedrouter.federation.noise import Noise
from fedrouter.federation.verb import LEAST_IN_CENTROID, Own, verb_named

DEFAULT, EXACT, OPEN = "default", "exact", "open"
PRIVACY: Final = {
    DEFAULT: "noise on a release, and at least 5 queries behind a centroid, as in a real federation",
    EXACT: "the same without noise",
    OPEN: "no protection",
}
"""What protects the clients' rows, from the most to the least."""


class LocalFederation(Federation):
    """A :class:`~fedrouter.federation.federation.Federation` of clients that own these rows, by name.

    The noise of a client's release follows from its name and the seed, so that a simulation can be repeated.

    >>> LocalFederation({}).clients()
    ()
    """

    def __init__(self, rows: Mapping[str, Evaluations], privacy: str = OPEN, seed: int = 0) -> None:
        if privacy not in PRIVACY:
            raise BadInput(f"privacy: expected {', '.join(PRIVACY)}, got {privacy!r}")
        if any(not name.strip() for name in rows):
            raise BadInput("client name: expected a non-empty string")
        least = 1 if privacy == OPEN else LEAST_IN_CENTROID
        self._privacy = privacy
        self._clients = {
            name: Own(
                name,
                own,
                least,
                Noise(seed=_seed_of(name, seed)) if privacy == DEFAULT else None,
                len(rows),
            )
            for name, own in sorted(rows.items())
        }

    def clients(self) -> Sequence[str]:
        return tuple(self._clients)

    def open_rows(self) -> Sequence[Evaluations] | None:
        return [own.rows for own in self._clients.values()] if self._privacy == OPEN else None

    def ask(self, verb: str, payload: Request[Reply], to: Sequence[str] | None = None) -> Mapping[str, Reply]:
        asked = verb_named(verb)
        # Packing both ways keeps this engine honest: what cannot be sent over a network cannot be used here.
        request = asked.request.unpack(payload.pack())
        names = self.clients() if to is None else sorted(to)
        replies = ((name, self._answer(asked, request, self._clients[name])) for name in names)
        if self._privacy == OPEN or not hasattr(asked.reply, "__add__"):
            return {name: cast(Reply, reply) for name, reply in replies}
        total: Any = None  # one total and one reply are in memory, whatever the number of clients
        for _, reply in replies:
            total = reply if total is None else total + reply
        return {} if total is None else {EVERYONE: cast(Reply, total)}

    def _answer(self, asked: Any, request: Any, own: Own) -> Any:
        try:
            return asked.reply.unpack(asked.answer(own, request).pack())
        except OverflowError:
            raise BadInput(
                f"client {own.name}: embeddings with values this large cannot be summed exactly; normalize them to "
                "length one before they are used"
            ) from None


def single_owner(name: str, rows: Evaluations) -> LocalFederation:
    """A federation of one client that owns these rows: how a router is learned without a federation."""
    return LocalFederation({name: rows})


def shared_models(rows: Mapping[str, Evaluations], privacy: str = DEFAULT) -> frozenset[str]:
    """The models that a real federation of these clients would trust: those that three of them have evaluated, or all
    where there are fewer. Without protection there is no such rule.
    """
    if privacy == OPEN:
        return frozenset(name for own in rows.values() for name in own.pool.names)
    evaluated = (own.pool.names[index] for own in rows.values() for index in np.unique(own.model))
    declared, least = Counter(evaluated), min(LEAST_DECLARING, len(rows))
    return frozenset(model for model, clients in declared.items() if clients >= least)


def _seed_of(name: str, seed: int) -> int:
    return int.from_bytes(hashlib.sha256(f"{seed} {name}".encode()).digest()[:8], "big")
