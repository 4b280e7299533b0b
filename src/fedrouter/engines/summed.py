"""Clients in this process of whose sums only the total is seen, as under secure aggregation.

Because totals are equal to the bit, no masks are made here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from operator import add
from typing import Any, cast

from fedrouter.engines.local import LocalFederation
from fedrouter.federation.federation import EVERYONE
from fedrouter.federation.message import Reply, Request
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
        request = self._received(verb_named(verb), payload)
        replies: Any = (self._clients[name].answer(verb, request, hidden=len(names)) for name in names)
        total = reduce(add, (sums.flatten(request, reply, len(names)) for reply in replies))
        return {EVERYONE: cast(Reply, sums.unflatten(request, total, len(names)))}
