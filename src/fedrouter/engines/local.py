"""The in-process engine: all clients are objects in this process; messages are packed and unpacked as on a network."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, cast

from fedrouter.errors import BadInput
from fedrouter.evaluations import Evaluations
from fedrouter.federation.client import Client
from fedrouter.federation.federation import Federation, Question
from fedrouter.federation.message import Reply, Request
from fedrouter.federation.privacy.policy import OPEN
from fedrouter.federation.verbs.registry import verb_named
from fedrouter.federation.verbs.verb import Verb


class LocalFederation(Federation):
    """A :class:`~fedrouter.federation.federation.Federation` of clients in this process.

    >>> LocalFederation([]).clients()
    ()
    """

    def __init__(self, clients: Iterable[Client]) -> None:
        self._clients: dict[str, Client] = {}
        self._last: tuple[Request[Any], Any] | None = None
        for client in clients:
            if client.name in self._clients:
                raise BadInput(f"two clients are called {client.name!r}")
            self._clients[client.name] = client

    def clients(self) -> Sequence[str]:
        return tuple(sorted(self._clients))

    def open_rows(self) -> Sequence[Evaluations] | None:
        rows = [self._clients[name].open_rows for name in self.clients()]
        found = [own for own in rows if own is not None]
        return found if len(found) == len(rows) else None

    def ask(self, verb: str, payload: Request[Reply], to: Sequence[str] | None = None) -> Mapping[str, Reply]:
        asked = verb_named(verb)
        request = self._received(asked, payload)
        names = sorted(self.clients() if to is None else to)
        answers = ((name, self._clients[name].answer(verb, request)) for name in names)
        return {name: cast(Reply, asked.read(request, reply.pack())) for name, reply in answers}

    def _ask_each(
        self, question: Question[Any], each: Callable[[str, Any], None], to: Sequence[str] | None
    ) -> Mapping[str, None]:
        if type(self).ask is not LocalFederation.ask:  # a subclass that answers otherwise is asked as it expects
            return super()._ask_each(question, each, to)
        names: dict[str, None] = {}
        for name in sorted(self.clients() if to is None else to):
            for sender, reply in self.ask(question.verb, question.request, [name]).items():
                each(sender, reply)
                names[sender] = None
        return names

    def _received(self, verb: Verb[Any, Any], payload: Request[Any]) -> Any:
        """The request as a client gets it.

        Packing both ways keeps this engine honest: what cannot be sent over a network cannot be used here. Requests are
        immutable, so one is unpacked once for all clients.
        """
        if self._last is None or self._last[0] is not payload:
            self._last = payload, verb.request.unpack(payload.pack())
        return self._last[1]


def single_owner(name: str, rows: Evaluations) -> LocalFederation:
    """A federation of one client that owns these rows: how a router is learned without a federation.

    Nothing leaves its owner, so the client has no privacy to protect.
    """
    return LocalFederation([Client(name, rows, OPEN)])
