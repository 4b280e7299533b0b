"""What the server believes: a reply that does not fit its request is dropped, with a reason, and costs nobody else.

A message's own rules (:mod:`~fedrouter.federation.verbs.messages`) are checked wherever it is unpacked. Here is what
they cannot know: what was asked, what is plausible (dollars, rows, training steps), and what other clients say.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np

from fedrouter.exact import LOW, ExactSums
from fedrouter.federation.federation import Federation
from fedrouter.federation.message import Message, Reply, Request
from fedrouter.federation.middleware.verb_faults import FAULTS, most_array_bytes
from fedrouter.federation.verbs.messages import VERBS, Centroids, LogCostSums, SecondMoment

Report = Callable[[str, str, str], None]
"""Told of every reply that is dropped: client, verb, reason."""
SCALAR_BYTES = 4096
"""Room for what a reply says besides its arrays."""
UNIT = 1.001
"""Embeddings whose lengths stay below this are taken for normalised ones."""
MOST_TIMES = 10.0
"""Where embeddings are not normalised, a client's may be so many times as long as the median client's."""


def ignore(client: str, verb: str, reason: str) -> None:
    """The report that goes nowhere."""


def fault(verb: str, request: Request[Any], reply: Message) -> str | None:
    """What is wrong with a reply to this request, or None; one of few short phrases, never anything of the reply.

    Of a reply that is masked nothing can be said but what type it has.
    """
    expected = VERBS[verb][1]
    if not isinstance(reply, expected):
        return "a reply to another verb"
    if reply.size > most_bytes(request):
        return "larger than its request allows"
    check = FAULTS.get(verb)
    if check is None:
        return None
    sums = [getattr(reply, part.name) for part in fields(reply)]
    for limbs in (part.limbs for part in sums if isinstance(part, ExactSums)):
        if ((limbs[..., 1] < 0) | (limbs[..., 1] > LOW)).any():
            return "sums that are not in their one form"
    return check(request, reply)


def most_bytes(request: Request[Any]) -> int:
    """What an honest reply to this request can weigh at most; an engine may refuse more before it unpacks it."""
    return most_array_bytes(request) + SCALAR_BYTES


def odd_ones_out(replies: Mapping[str, Message]) -> dict[str, str]:
    """Clients whose reply cannot belong with the others', each with the reason.

    Embeddings of one encoder have one width; where no width is that of most clients, all are kept, and whoever adds
    them up will say so. Lengths are compared among three clients or more.
    """
    found: dict[str, str] = {}
    widths = {name: width for name, reply in replies.items() if (width := _width(reply)) is not None}
    if widths:
        common, times = Counter(widths.values()).most_common(1)[0]
        if 2 * times > len(widths):
            found |= {name: "embeddings of another width" for name, width in widths.items() if width != common}
    lengths = {name: length for name, reply in replies.items() if (length := _length(reply)) is not None}
    if len(lengths) > 2:
        median = float(np.median(list(lengths.values())))
        most = UNIT if median <= UNIT else MOST_TIMES * median
        found |= {name: "longer embeddings than the others'" for name, length in lengths.items() if length > most}
    return found


def _width(reply: Message) -> int | None:
    """The width of the embeddings behind a reply, where it shows."""
    match reply:
        case Centroids() if len(reply.centres):
            return int(reply.centres.shape[1])
        case LogCostSums():
            return reply.dimension
        case SecondMoment():
            return reply.total.shape[0]
    return None


def _length(reply: Message) -> float | None:
    """How long the embeddings behind a reply are, where it shows: the longest centre, or the root mean square."""
    match reply:
        case Centroids() if len(reply.centres):
            return float(np.linalg.norm(reply.centres.astype(np.float64), axis=1).max())
        case SecondMoment() if reply.count:
            size = int((np.sqrt(8 * reply.total.shape[0] + 1) - 1) / 2)
            diagonal = np.flatnonzero(np.equal(*np.triu_indices(size)))
            return float(np.sqrt(max(0.0, reply.total.totals()[diagonal].sum()) / reply.count))
    return None


@dataclass
class Checked:
    """A federation that passes on only replies that fit; ``dropped`` counts the others by client, verb and reason."""

    federation: Federation
    report: Report = ignore
    dropped: Counter[tuple[str, str, str]] = field(default_factory=Counter)

    def clients(self) -> Sequence[str]:
        return self.federation.clients()

    def ask(self, verb: str, payload: Request[Reply], to: Sequence[str] | None = None) -> Mapping[str, Reply]:
        replies = dict(self.federation.ask(verb, payload, to))
        self._drop(verb, replies, {name: fault(verb, payload, reply) for name, reply in replies.items()})
        self._drop(verb, replies, odd_ones_out(replies))
        return replies

    def _drop(self, verb: str, replies: dict[str, Reply], reasons: Mapping[str, str | None]) -> None:
        for name, reason in reasons.items():
            if reason:
                del replies[name]
                self.dropped[name, verb, reason] += 1
                self.report(name, verb, reason)
