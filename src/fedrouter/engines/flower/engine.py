"""The engine that reaches clients over a network, through Flower's messages; algorithms need not know about it.

A misbehaving client or network costs only that client's contribution: a reply that is late, duplicated, malformed, an
error or from the wrong sender is dropped with a reason, and the rest is used.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from fedrouter.engines.flower.records import MOST_BYTES, from_records, to_records
from fedrouter.errors import REFUSALS, BadMessage
from fedrouter.federation.federation import Federation
from fedrouter.federation.message import Message as Payload
from fedrouter.federation.message import Reply, Request
from fedrouter.federation.middleware.validation import Report, most_bytes
from fedrouter.federation.verbs.registry import verb_named

if TYPE_CHECKING:
    from flwr.app import Message
    from flwr.serverapp import Grid

CATEGORY = "query"
"""Flower's category of messages, of which a verb is the action: ``query.statistics``."""
PAUSE = 1.0
"""Seconds between two polls for replies."""
MAX_ERROR_LENGTH = 40
"""Characters of the one word that an error reply may contain."""


class FlowerFederation(Federation):
    """A :class:`~fedrouter.federation.federation.Federation` of the clients behind a Flower grid.

    Parameters
    ----------
    members : Flower's node id of each client, by client name; a client that is not connected may be among them, and
        takes part once it is
    timeout : seconds that a request may take, from sending it to the reply
    report : called for every client whose reply is missing or dropped, with the reason
    """

    def __init__(
        self, grid: Grid, members: Mapping[str, int], timeout: float, report: Report, pause: float = PAUSE
    ) -> None:
        self._grid = grid
        self._members = dict(members)
        self._timeout = timeout
        self._report = report
        self._pause = pause

    def clients(self) -> Sequence[str]:
        return tuple(sorted(self._members))

    def ask(self, verb: str, payload: Request[Reply], to: Sequence[str] | None = None) -> Mapping[str, Reply]:
        names = sorted(self._members if to is None else to)
        waiting = self._send(verb, payload, names)
        deadline = time.monotonic() + self._timeout
        most = min(most_bytes(verb, payload), MOST_BYTES)
        replies: dict[str, Reply] = {}
        while waiting:
            for message_id, name in list(waiting.items()):
                # One by one: a reply that cannot be fetched must not hold up the others.
                for message in self._fetch(message_id, name, verb, waiting):
                    if message.metadata.reply_to_message_id != message_id or message_id not in waiting:
                        continue  # a duplicate, or a reply to another request
                    del waiting[message_id]
                    reply = self._open(message, name, verb, most)
                    if reply is not None:
                        replies[name] = cast(Reply, reply)
            if not waiting or time.monotonic() >= deadline:
                break
            time.sleep(self._pause)
        for name in waiting.values():
            self._report(name, verb, f"no answer within {self._timeout:g} s")
        return {name: replies[name] for name in sorted(replies)}

    def _send(self, verb: str, payload: Request[Any], names: Iterable[str]) -> dict[str, str]:
        """Send a request to all clients, written once for all of them; client names by message id."""
        from flwr.app import Message

        members = []
        for name in names:
            if name in self._members:
                members.append(name)
            else:
                self._report(name, verb, "not on the roster")
        if not members:
            return {}
        records, kind = to_records(payload), f"{CATEGORY}.{verb}"
        messages = [Message(records, self._members[name], kind, ttl=self._timeout) for name in members]
        try:
            # In one call, in which Flower encodes, hashes and uploads the content that all messages share once.
            message_ids = list(self._grid.push_messages(messages)) or [""] * len(members)
        except Exception as error:
            for name in members:
                self._report(name, verb, f"could not be asked ({type(error).__name__})")
            return {}
        for name, message_id in zip(members, message_ids, strict=True):
            if not message_id:
                self._report(name, verb, "could not be asked")
        return {message_id: name for name, message_id in zip(members, message_ids, strict=True) if message_id}

    def _fetch(self, message_id: str, name: str, verb: str, waiting: dict[str, str]) -> Sequence[Message]:
        try:
            return list(self._grid.pull_messages([message_id]))
        except (KeyError, TypeError, ValueError, AttributeError) as error:  # a reply that is not a message
            del waiting[message_id]
            self._report(name, verb, f"unreadable reply ({type(error).__name__})")
        except Exception:  # the network, which may be back at the next poll
            return []
        return []

    def _open(self, message: Message, name: str, verb: str, most: int) -> Payload | None:
        """The reply in a message; None, and a report, if it is unusable."""
        if message.has_error():
            self._report(name, verb, error_reason(message.error.code, message.error.reason))
            return None
        if message.metadata.src_node_id != self._members[name]:
            self._report(name, verb, "answered by someone else")
            return None
        try:
            kind: type[Payload] = verb_named(verb).reply
            return kind.unpack(from_records(message.content, most))
        except BadMessage as error:
            self._report(name, verb, str(error))
        except Exception as error:
            self._report(name, verb, f"unreadable reply ({type(error).__name__})")
        return None


def error_reason(code: int, text: str | None) -> str:
    """Describe an error reply in one line; of the client's own text only a single plain word is repeated."""
    from flwr.common.constant import ErrorCode

    if code == ErrorCode.CLIENT_APP_RAISED_EXCEPTION:
        # One word and nothing else: what a client writes here ends up in logs and on terminals.
        plain = text is not None and text.isascii() and text.isidentifier() and len(text) <= MAX_ERROR_LENGTH
        return f"refused: {REFUSALS.get(text or '', text)}" if plain else "refused"
    known = {
        ErrorCode.LOAD_CLIENT_APP_EXCEPTION: "its fedrouter could not be started",
        ErrorCode.NODE_UNAVAILABLE: "not connected",
        ErrorCode.MESSAGE_UNAVAILABLE: "no answer in time",
        ErrorCode.REPLY_MESSAGE_UNAVAILABLE: "no answer in time",
        ErrorCode.CLIENT_APP_CRASHED: "its process died",
        ErrorCode.INVALID_FAB: "does not trust the app it was sent",
    }
    return known.get(code, "no answer")
