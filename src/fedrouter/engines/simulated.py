"""Simulated federations: the in-process engine with the privacy of a real federation, or with less.

`default` is what `fedrouter federation run` does unless told otherwise. Replies that add up are added as secure
aggregation adds them, and only the total is used; because totals are equal to the bit, no masks are made here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import reduce
from operator import add
from typing import Any, cast

from fedrouter.engines.local import LocalFederation
from fedrouter.errors import BadInput
from fedrouter.evaluations import Evaluations
from fedrouter.federation.client import Client
from fedrouter.federation.federation import Federation
from fedrouter.federation.message import Reply, Request
from fedrouter.federation.middleware.sums import Summed
from fedrouter.federation.privacy.policy import DEFAULT, OPEN, PRIVACY, UNPROTECTED, PrivacyPolicy
from fedrouter.federation.robust.updates import EVERYONE
from fedrouter.federation.verbs.hello import LEAST_NAMING, HelloRequest
from fedrouter.federation.verbs.registry import verb_named
from fedrouter.federation.verbs.verb import SecureSum

LEAST_CLIENTS = 3
"""Secure aggregation needs this many: of two clients, each could subtract its own sums from the total."""


class SummedFederation(LocalFederation):
    """Clients in this process, of whose sums only the total is seen, as under secure aggregation.

    A real federation refuses secure sums if it has fewer than three clients. Here each of them then answers under its
    own policy, as without secure sums.
    """

    def ask(self, verb: str, payload: Request[Reply], to: Sequence[str] | None = None) -> Mapping[str, Reply]:
        sums: Any = verb_named(verb).secure_sum
        names = sorted(self.clients() if to is None else to)
        if not isinstance(sums, SecureSum) or len(names) < LEAST_CLIENTS:
            return super().ask(verb, payload, to)
        request = verb_named(verb).request.unpack(payload.pack())
        replies = (self._clients[name].answer(verb, request, hidden=True) for name in names)
        total = reduce(add, (sums.flatten(request, reply, len(names)) for reply in replies))
        return {EVERYONE: cast(Reply, sums.unflatten(request, total, len(names)))}


def simulated_federation(rows: Mapping[str, Evaluations], privacy: str = DEFAULT) -> Federation:
    """A federation in this process of clients that own these rows, by name; ``privacy`` is one of ``PRIVACY``."""
    if privacy not in PRIVACY:
        raise BadInput(f"privacy: expected {', '.join(PRIVACY)}, got {privacy!r}")
    policy = OPEN if privacy == UNPROTECTED else PrivacyPolicy()
    clients = [Client(name, own, policy) for name, own in rows.items()]
    return SummedFederation(clients) if privacy == DEFAULT else Summed(LocalFederation(clients))


def shared_models(rows: Mapping[str, Evaluations], privacy: str = DEFAULT) -> frozenset[str]:
    """The models that a real federation of these clients would learn: those that two of them name, or that one does
    who is alone. Without protection there is no such rule.
    """
    if privacy == UNPROTECTED:
        return frozenset(name for own in rows.values() for name in own.pool.names)
    replies = simulated_federation(rows, privacy).ask("hello", HelloRequest())
    named = Counter(model for reply in replies.values() for model in reply.models)
    least = min(LEAST_NAMING, len(replies))
    return frozenset(model for model, times in named.items() if times >= least)
