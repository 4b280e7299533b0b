"""The engine that reaches clients over a network, through Flower's messages; algorithms need not know about it.

A misbehaving client or network costs only that client's contribution: a reply that is late, duplicated, malformed, an
error or from the wrong sender is dropped with a reason, and the rest is used.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

from fedrouter.engines.flower.encoding import HEADERS, LENGTH_BYTES, Part, decode, encode
from fedrouter.engines.flower.http import MOST_BYTES
from fedrouter.engines.flower.run_link import Arrived
from fedrouter.errors import REFUSALS, BadMessage
from fedrouter.federation.federation import Middleware, Question
from fedrouter.federation.message import Message
from fedrouter.federation.middleware.validation import Report, most_bytes
from fedrouter.federation.verbs.registry import verb_named

EAGER, IDLE, SHARE = 0.05, 0.5, 0.1
"""Seconds between two polls for replies: a share of the time since the request, between the first and the second."""
PATIENT = 10.0
"""Seconds after which an exchange takes long."""
MAX_ERROR_LENGTH = 40
"""Characters of the one word that an error reply may contain."""


Late = Callable[[Sequence[str], float], None]


class Link(Protocol):
    """What the engine needs of a run: :class:`~fedrouter.engines.flower.run_link.RunLink`."""

    def push(self, content: bytes, nodes: Sequence[int], ttl: float) -> list[str]: ...

    def pull(self, message_ids: Sequence[str], most: int) -> Iterable[Arrived]: ...


class FlowerFederation(Middleware):
    """A :class:`~fedrouter.federation.federation.Federation` of the clients behind a Flower run.

    Parameters
    ----------
    members : Flower's node id of each client, by client name; a client that is not connected may be among them, and
        takes part once it is
    timeout : seconds that an exchange may take, from sending its questions to the replies
    report : called for every client whose reply is missing or dropped, with the reason
    late : called once in an exchange that takes long, with the clients that it waits for and the seconds left for them
    """

    def __init__(
        self, link: Link, members: Mapping[str, int], timeout: float, report: Report, late: Late = lambda *_: None
    ) -> None:
        self._link = link
        self._members = dict(members)
        self._timeout = timeout
        self._report = report
        self._late = late

    def clients(self) -> Sequence[str]:
        return tuple(sorted(self._members))

    def ask_all(self, questions: Sequence[Question[Any]], to: Sequence[str] | None = None) -> list[Mapping[str, Any]]:
        """All questions for a client travel in one message to it, and all its replies in one back.

        Replies are downloaded one by one, so that those which are handed over (``Question.each``) are never in memory
        together.
        """
        if not questions:
            return []
        replies: list[dict[str, Message | None]] = [{} for _ in questions]
        everyone = self._members if to is None else to
        mine: dict[str, tuple[int, ...]] = {}  # the questions for each client
        for index, question in enumerate(questions):
            for name in everyone if question.to is None else question.to:
                mine[name] = (*mine.get(name, ()), index)
        alike: dict[tuple[int, ...], list[str]] = {}
        for name in sorted(mine):
            alike.setdefault(mine[name], []).append(name)
        sizes = [most_bytes(each.verb, each.request) + HEADERS for each in questions]
        most = LENGTH_BYTES + max((sum(sizes[index] for index in asked) for asked in alike), default=0)
        began = time.monotonic()
        told, waiting = False, dict[str, str]()
        for asked, names in alike.items():
            waiting |= self._send([questions[index] for index in asked], names)
        while waiting:
            for arrived in self._link.pull(list(waiting), min(most, MOST_BYTES)):
                sender = waiting.pop(arrived.message_id, None)
                if sender is not None:
                    own = [questions[index] for index in mine[sender]]
                    self._read(arrived, sender, own, [replies[index] for index in mine[sender]])
            elapsed = time.monotonic() - began
            if not waiting or elapsed >= self._timeout:
                break
            if elapsed > PATIENT and not told:
                self._late(sorted(waiting.values()), self._timeout - elapsed)
                told = True
            time.sleep(min(IDLE, max(EAGER, SHARE * elapsed), self._timeout - elapsed))
        for name in waiting.values():
            self._drop(name, [questions[index] for index in mine[name]], f"no answer within {self._timeout:g} s")
        return [{name: found[name] for name in sorted(found)} for found in replies]

    def _send(self, questions: Sequence[Question[Any]], names: Iterable[str]) -> dict[str, str]:
        """Send the questions to these clients, written once for all of them; client names by message id."""
        members = []
        for name in names:
            if name in self._members:
                members.append(name)
            else:
                self._drop(name, questions, "not on the roster")
        if not members:
            return {}
        content = encode([Part(each.verb, each.request.pack()) for each in questions])
        message_ids = self._link.push(content, [self._members[name] for name in members], self._timeout)
        sent = dict(zip(members, message_ids, strict=True))
        for name in members:
            if not sent[name]:
                self._drop(name, questions, "could not be asked")
        return {message_id: name for name, message_id in sent.items() if message_id}

    def _read(
        self,
        arrived: Arrived,
        name: str,
        questions: Sequence[Question[Any]],
        replies: Sequence[dict[str, Message | None]],
    ) -> None:
        """Put a client's replies with those of the others, or hand them over; what is unusable is reported."""
        if arrived.content is None:
            self._drop(name, questions, arrived.reason)
            return
        if arrived.node != self._members[name]:
            self._drop(name, questions, "answered by someone else")
            return
        try:
            parts = decode(arrived.content)
            if [part.verb for part in parts] != [each.verb for each in questions]:
                raise BadMessage("message: answers to other questions")
        except BadMessage as error:
            self._drop(name, questions, str(error))
            return
        for part, question, found in zip(parts, questions, replies, strict=True):
            if part.packed is None:
                self._drop(name, [question], refusal(part.error))
                continue
            try:
                reply = verb_named(question.verb).read(question.request, part.packed)
            except BadMessage as error:
                self._drop(name, [question], str(error))
                continue
            except Exception as error:
                self._drop(name, [question], f"unreadable reply ({type(error).__name__})")
                continue
            found[name] = None if question.each else reply
            if question.each:
                question.each(name, reply)

    def _drop(self, name: str, questions: Sequence[Question[Any]], reason: str) -> None:
        for verb in dict.fromkeys(each.verb for each in questions):
            self._report(name, verb, reason)


def refusal(word: str) -> str:
    """Describe why a client did not answer; of its own text only a single plain word is repeated."""
    # One word and nothing else: what a client writes here ends up in logs and on terminals.
    plain = word.isascii() and word.isidentifier() and len(word) <= MAX_ERROR_LENGTH
    return f"refused: {REFUSALS.get(word, word)}" if plain else "refused"
