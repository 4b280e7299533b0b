"""The in-process engine: every client lives here, and messages are packed and unpacked as if they did not."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import cast

from fedrouter.errors import BadInput
from fedrouter.evaluations import Evaluations
from fedrouter.federation.client import Client
from fedrouter.federation.message import Reply, Request
from fedrouter.federation.privacy.policy import OPEN
from fedrouter.federation.verbs.messages import VERBS


class LocalFederation:
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
        request_type, reply_type = VERBS[verb]
        replies = {}
        for name in sorted(self.clients() if to is None else to):
            # Packing both ways keeps this engine honest: what cannot be sent over a wire cannot be used here.
            reply = self._clients[name].answer(verb, request_type.unpack(payload.pack()))
            replies[name] = cast(Reply, reply_type.unpack(reply.pack()))
        return replies


def single_owner(name: str, rows: Evaluations) -> LocalFederation:
    """A federation of one client that owns these rows: how a router is learned without a federation.

    Nothing leaves its owner, so the client has no privacy to protect.
    """
    return LocalFederation([Client(name, rows, OPEN)])
