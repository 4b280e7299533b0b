"""Validation: drops replies that do not fit their request, with a reason, so that one bad client costs nobody else.

A message's own rules are checked wherever it is unpacked. This adds what they cannot know: what was asked, what is
plausible (dollars, rows, training steps), and what other clients reply. The checks of each verb stand in its own file.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np

from fedrouter.errors import BadInput
from fedrouter.exact import LOW, ExactSums
from fedrouter.federation.federation import Federation, Middleware, Question
from fedrouter.federation.message import Message, Request
from fedrouter.federation.verbs.registry import verb_named
from fedrouter.federation.verbs.verb import ShowsEmbeddings

Report = Callable[[str, str, str], None]
"""Called with each reply that is dropped, or withheld: client, verb, reason."""
SCALAR_BYTES = 4096
"""Bytes allowed for a reply's scalars, besides its arrays."""
UNIT = 1.001
"""Embeddings with a median length below this are taken as normalized."""
MOST_TIMES = 10.0
"""Where embeddings are not normalized, a client's may be this many times as long as the median client's."""


def ignore(client: str, verb: str, reason: str) -> None:
    """The report that does nothing."""


def fault(verb: str, request: Request[Any], reply: Message) -> str | None:
    """What is wrong with a reply to this request, or None; a short fixed phrase that quotes nothing of the reply."""
    asked = verb_named(verb)
    if not isinstance(reply, asked.reply):
        return "a reply to another verb"
    if reply.size > most_bytes(verb, request):
        return "larger than its request allows"
    sums = [getattr(reply, part.name) for part in fields(reply)]
    for limbs in (part.limbs for part in sums if isinstance(part, ExactSums)):
        if ((limbs[..., 1] < 0) | (limbs[..., 1] > LOW)).any():
            return "sums that are not in their one form"
    return asked.faults(request, reply)


def most_bytes(verb: str, request: Request[Any]) -> int:
    """Maximum size of an honest reply to this request; an engine may refuse a larger one before it unpacks it."""
    found: Any = verb_named(verb).bytes_allowed(request)
    if not isinstance(found, int):  # nothing is larger than NaN or infinity
        raise BadInput(f"verb {verb}, most_bytes: expected a whole number, got {found!r}")
    return found + SCALAR_BYTES


def odd_ones_out(verb: str, replies: Mapping[str, Message]) -> dict[str, str]:
    """Clients whose reply cannot belong with the others', each with the reason.

    Embeddings of one encoder have one width. Where no width is that of most clients, all are kept, and adding them up
    will fail with an error. Lengths are compared among three clients or more.
    """
    shown = verb_named(verb).embeddings
    if not isinstance(shown, ShowsEmbeddings):
        return {}
    return _odd({name: (shown.width(reply), shown.length(reply)) for name, reply in replies.items()})


def _odd(shapes: Mapping[str, tuple[int | None, float | None]]) -> dict[str, str]:
    """The same from the width and the length of each client's embeddings."""
    found: dict[str, str] = {}
    widths = {name: width for name, (width, _) in shapes.items() if width is not None}
    if widths:
        common, times = Counter(widths.values()).most_common(1)[0]
        if 2 * times > len(widths):
            found |= {name: "embeddings of another width" for name, width in widths.items() if width != common}
    lengths = {name: length for name, (_, length) in shapes.items() if length is not None}
    if len(lengths) > 2:
        median = float(np.median(list(lengths.values())))
        most = UNIT if median <= UNIT else MOST_TIMES * median
        found |= {name: "longer embeddings than the others'" for name, length in lengths.items() if length > most}
    return found


@dataclass
class Checked(Middleware):
    """A federation that passes on only valid replies; ``dropped`` counts the others by client, verb and reason.

    ``withheld`` is called with each valid reply that has nothing in it, and with the rule that the client names.
    """

    federation: Federation
    report: Report = ignore
    withheld: Report = ignore
    dropped: Counter[tuple[str, str, str]] = field(default_factory=Counter)

    def clients(self) -> Sequence[str]:
        return self.federation.clients()

    def ask_all(self, questions: Sequence[Question[Any]], to: Sequence[str] | None = None) -> list[Mapping[str, Any]]:
        one_by_one = [_EachChecked(self, question) if question.each else None for question in questions]
        asked = [
            replace(question, each=check) if check else question
            for question, check in zip(questions, one_by_one, strict=True)
        ]
        answers = self.federation.ask_all(asked, to)
        return [
            check.valid(replies) if check else self._valid(question, replies)
            for question, check, replies in zip(questions, one_by_one, answers, strict=True)
        ]

    def _valid(self, question: Question[Any], answered: Mapping[str, Message]) -> Mapping[str, Message]:
        verb, replies = question.verb, dict(answered)
        self._drop(verb, replies, {name: fault(verb, question.request, reply) for name, reply in replies.items()})
        self._drop(verb, replies, odd_ones_out(verb, replies))
        for name, reply in replies.items():
            if reply.withheld_by:
                self.withheld(name, verb, reply.withheld_by)
        return replies

    def _drop(self, verb: str, replies: dict[str, Any], reasons: Mapping[str, str | None]) -> None:
        for name, reason in reasons.items():
            if reason:
                del replies[name]
                self.dropped[name, verb, reason] += 1
                self.report(name, verb, reason)


class _EachChecked:
    """Checks replies one by one, and hands the valid ones over.

    Clients are compared with each other by what their replies show, which is kept when the replies are gone. One that
    is odd by its length cannot be in a total before all are there: it waits. One of length one or less never is odd.
    One of another width adds up with its like only, so that :class:`~.sums.Summed` can leave it out in the end.
    """

    def __init__(self, checked: Checked, question: Question[Any]) -> None:
        assert question.each
        self._checked, self._question, self._each = checked, question, question.each
        self._faults: dict[str, str | None] = {}
        self._shapes: dict[str, tuple[int | None, float | None]] = {}
        self._waiting: dict[str, Message] = {}

    def __call__(self, name: str, reply: Message) -> None:
        verb = self._question.verb
        self._faults[name] = fault(verb, self._question.request, reply)
        if self._faults[name]:
            return
        if reply.withheld_by:
            self._checked.withheld(name, verb, reply.withheld_by)
        shown = verb_named(verb).embeddings
        if isinstance(shown, ShowsEmbeddings):
            self._shapes[name] = shown.width(reply), (length := shown.length(reply))
            if length is not None and length > UNIT:
                self._waiting[name] = reply
                return
        self._each(name, reply)

    def valid(self, names: Mapping[str, None]) -> Mapping[str, None]:
        """Those of the clients whose replies were handed over and count."""
        found = dict(names)
        verb, odd = self._question.verb, _odd(self._shapes)
        self._checked._drop(verb, found, self._faults)
        self._checked._drop(verb, found, odd)
        for name, reply in self._waiting.items():
            if name in found:
                self._each(name, reply)
        return found
