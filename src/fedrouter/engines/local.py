"""The in-process engine: all clients are objects in this process; messages are packed and unpacked as on a network."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import cast

from fedrouter.errors import BadInput
from fedrouter.evaluations import Evaluations
from fedrouter.federation.client import Client
from fedrouter.federation.federation import Federation
from fedrouter.federation.message import Reply, Request
from fedrouter.federation.privacy.policy import OPEN
from fedrouter.federation.verbs.registry import verb_named


class LocalFederation(Federation):
    """A :class:`~fedrouter.federation.federation.Federation` of clients in this process.

    >>> LocalFederation([]).clients()
    ()
    """

    def __init__(self, clients: Iterable[Client]) -> None:
        self._clients: dict[str, Client] = {}
        for client in clients:
            if client.name in self._clients:
                raise BadInput(f"two clients are called {client.name!r}")
            self._clients[client.name] = client

    def clients(self) -> Sequence[str]:
        return tuple(sorted(self._clients))

    def ask(self, verb: str, payload: Request[Reply], to: Sequence[str] | None = None) -> Mapping[str, Reply]:
        asked = verb_named(verb)
        # Packing both ways keeps this engine honest: what cannot be sent over a network cannot be used here. Requests
        # are immutable, so one is unpacked once for all clients.
        request = asked.request.unpack(payload.pack())
        names = sorted(self.clients() if to is None else to)
        packed = {name: self._clients[name].answer(verb, request).pack() for name in names}
        return {name: cast(Reply, asked.read(request, reply)) for name, reply in packed.items()}


def single_owner(name: str, rows: Evaluations) -> LocalFederation:
    """A federation of one client that owns these rows: how a router is learned without a federation.

    Nothing leaves its owner, so the client has no privacy to protect.
    """
    return LocalFederation([Client(name, rows, OPEN)])
