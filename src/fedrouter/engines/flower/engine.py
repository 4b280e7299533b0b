"""The engine that reaches clients over a network, through Flower's messages; the algorithms do not know of it.

Whatever a client or the network does costs that client's contribution and nothing else: a reply that is late, doubled,
broken, an error or not its sender's is dropped with a named reason, and what was not dropped goes on.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from fedrouter.engines.flower.records import MOST_BYTES, from_records, to_records
from fedrouter.errors import BadMessage, Refused
from fedrouter.federation.message import Message as Payload
from fedrouter.federation.message import Reply, Request
from fedrouter.federation.middleware.validation import most_bytes
from fedrouter.federation.verbs.messages import VERBS

if TYPE_CHECKING:
    from flwr.app import Message
    from flwr.serverapp import Grid

Report = Callable[[str, str, str], None]
"""Told of every answer that does not come or does not count: client, verb, reason."""
CATEGORY = "query"
"""Flower's kind of message that a verb is an action of: ``query.statistics``."""
PAUSE = 1.0
"""Seconds between two looks at the letter box."""
LONGEST_KIND = 40
"""Letters of the one word that an error reply may say."""


class FlowerFederation:
    """A :class:`~fedrouter.federation.federation.Federation` of the clients behind a Flower grid.

    Parameters
    ----------
    members : Flower's number of the node behind which each client is, by the client's name; who is not connected may
        be among them, and takes part once it is
    timeout : seconds that a question may take, from asking to answer
    report : told of every client that does not answer, with why
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
        until = time.monotonic() + self._timeout
        most = min(most_bytes(payload), MOST_BYTES)
        replies: dict[str, Reply] = {}
        while waiting:
            for letter, name in list(waiting.items()):
                # One by one: a reply that cannot even be fetched must not keep the others' away.
                for message in self._fetch(letter, name, verb, waiting):
                    if message.metadata.reply_to_message_id != letter or letter not in waiting:
                        continue  # a second answer, or one to something else
                    del waiting[letter]
                    reply = self._open(message, name, verb, most)
                    if reply is not None:
                        replies[name] = cast(Reply, reply)
            if not waiting or time.monotonic() >= until:
                break
            time.sleep(self._pause)
        for name in waiting.values():
            self._report(name, verb, f"no answer within {self._timeout:g} s")
        return {name: replies[name] for name in sorted(replies)}

    def _send(self, verb: str, payload: Request[Any], names: Iterable[str]) -> dict[str, str]:
        """Send the question to everyone; the clients' names by the number of the letter each got."""
        from flwr.app import Message

        records, sent = to_records(payload), {}
        for name in names:
            if name not in self._members:
                self._report(name, verb, "not on the roster")
                continue
            message = Message(records, self._members[name], f"{CATEGORY}.{verb}", ttl=self._timeout)
            try:
                number = next(iter(self._grid.push_messages([message])), None)
            except Exception as error:
                self._report(name, verb, f"could not be asked ({type(error).__name__})")
                continue
            if number:
                sent[number] = name
            else:
                self._report(name, verb, "could not be asked")
        return sent

    def _fetch(self, letter: str, name: str, verb: str, waiting: dict[str, str]) -> Sequence[Message]:
        try:
            return list(self._grid.pull_messages([letter]))
        except (KeyError, TypeError, ValueError, AttributeError) as error:  # a reply that is no message
            del waiting[letter]
            self._report(name, verb, f"unreadable reply ({type(error).__name__})")
        except Exception:  # the network, which may be back at the next look
            return []
        return []

    def _open(self, message: Message, name: str, verb: str, most: int) -> Payload | None:
        """The reply in a message, or None and a report."""
        if message.has_error():
            self._report(name, verb, error_reason(message.error.code, message.error.reason))
            return None
        if message.metadata.src_node_id != self._members[name]:
            self._report(name, verb, "answered by someone else")
            return None
        try:
            return VERBS[verb][1].unpack(from_records(message.content, most))
        except BadMessage as error:
            self._report(name, verb, str(error))
        except Exception as error:
            self._report(name, verb, f"unreadable reply ({type(error).__name__})")
        return None


def error_reason(code: int, text: str | None) -> str:
    """A line that says what an error reply means; of the client's own words only those that cannot tell anything."""
    from flwr.common.constant import ErrorCode

    if code == ErrorCode.CLIENT_APP_RAISED_EXCEPTION:
        # A word and nothing else: what a client writes here ends in logs and on terminals.
        told = text is not None and text.isascii() and text.isidentifier() and len(text) <= LONGEST_KIND
        if text == Refused.__name__:
            return (
                "refused: its privacy settings forbid it (a budget that is spent, or sums asked for without --secure)"
            )
        return f"refused: {text}" if told else "refused"
    known = {
        ErrorCode.LOAD_CLIENT_APP_EXCEPTION: "its fedrouter could not be started",
        ErrorCode.NODE_UNAVAILABLE: "not connected",
        ErrorCode.MESSAGE_UNAVAILABLE: "no answer in time",
        ErrorCode.REPLY_MESSAGE_UNAVAILABLE: "no answer in time",
        ErrorCode.CLIENT_APP_CRASHED: "its process died",
        ErrorCode.INVALID_FAB: "does not trust the app it was sent",
    }
    return known.get(code, "no answer")
