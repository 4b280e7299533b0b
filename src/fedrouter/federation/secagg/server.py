"""The coordinator side of secure aggregation: computes the total of the clients' sums without seeing any of them.

The rules that clients enforce are in :mod:`~fedrouter.federation.secagg.client`. Setting up a session takes two
exchanges (``keys``, ``shares``), which travel along with questions that need no masks, such as ``hello`` and
``cluster``. A sum then takes two (``masked``, ``unmask``; three if clients sign the list of survivors), however many
questions it answers: questions that are asked together make one vector. A joint sum, of what clients would also say
without masks, takes one (``masked``), and two more only if not everyone answers. Clients may drop out at each step as
long as more than two thirds remain.

The protocol is implemented here because Flower's (SecAgg+) rounds values and trusts the coordinator's list of keys and
its choice of the graph, and we know of no maintained package that adds integers exactly modulo 2^64.

Limits: the coordinator sees only the total, so it cannot tell an invalid vector from the others. A total that no
evaluations could have is refused; a poisoned one that is plausible is not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from fedrouter.errors import BadInput, BadMessage
from fedrouter.federation.federation import Federation, Middleware, Question
from fedrouter.federation.middleware.validation import fault
from fedrouter.federation.secagg.client import LEAST_CLIENTS
from fedrouter.federation.secagg.server_session import ServerSession, TooFewLeft, Withheld
from fedrouter.federation.verbs.registry import verb_named
from fedrouter.federation.verbs.verb import SecureSum

EVERYONE = "everyone"
PREPARED = 8
"""Sums that one session prepares; a family needs one to three, and the vote one, or two if a client is missing."""
MANY = 100
"""Above this many clients a session prepares one sum: every client gets everyone's keys of all prepared sums."""


class Secure(Middleware):
    """A federation that answers a request for sums with one reply, the total, under the name ``everyone``.

    More than the fraction ``threshold`` of the clients asked must complete a request, otherwise :class:`TooFewLeft` is
    raised. Clients refuse two thirds or less. A question that they withhold, because they answered it in a cohort that
    differs by too few clients, has no reply at all; the others of the same exchange do. Requests for anything but sums,
    such as centroids, are passed on as they are. ``answered`` holds the names of the clients whose sums are in the last
    total. ``joint`` is False to ask for no joint sums, as where somebody is always missing.
    """

    def __init__(
        self, federation: Federation, threshold: float = 2 / 3, prepared: int = PREPARED, joint: bool = True
    ) -> None:
        if not 2 / 3 <= threshold < 1:
            raise BadInput(f"threshold: expected a fraction from 2/3 to below 1, got {threshold}")
        self._federation = federation
        self._fraction = threshold
        self._prepared = prepared
        self._joint = joint
        self._session: ServerSession | None = None
        self.answered: tuple[str, ...] = ()

    def clients(self) -> Sequence[str]:
        return self._federation.clients()

    def ask_all(self, questions: Sequence[Question[Any]], to: Sequence[str] | None = None) -> list[Mapping[str, Any]]:
        asked = tuple(sorted(self.clients() if to is None else to))
        hidden = [question for question in questions if _sums(question)]
        along = _Along(self._federation, [question for question in questions if not _sums(question)], asked)
        totals: list[Mapping[str, Any]] = []
        if hidden:
            if len(asked) < LEAST_CLIENTS:
                raise BadInput(
                    f"{hidden[0].verb}: secure aggregation needs at least {LEAST_CLIENTS} clients, {len(asked)} would "
                    "be asked; enroll more, let more of them take part in a round, or let the coordinator see each "
                    "client's sums (`fedrouter federation run --plain`)"
                )
            totals = self._totals(hidden, asked, along)
        elif len(asked) >= LEAST_CLIENTS:
            self._prepare(asked, along)
        else:
            along.exchange([])
        seen, sums = iter(along.answers), iter(totals)
        return [next(sums) if _sums(question) else next(seen) for question in questions]

    def _prepare(self, asked: tuple[str, ...], along: _Along) -> None:
        """Ask what needs no masks, and take one step towards a session on the way."""
        session = self._session_for(asked)
        if session.ready:
            along.exchange([])
            return
        try:
            session.step(along.exchange, asked)
        except TooFewLeft:  # it matters only once a sum is asked for
            self._session = None

    def _totals(
        self, questions: Sequence[Question[Any]], asked: tuple[str, ...], along: _Along
    ) -> list[Mapping[str, Any]]:
        """The total of each question under its name; nothing where clients withhold it.

        If clients dropped out, the others may withhold from the smaller cohort what they would have answered in the
        larger one. They are then asked once more, among themselves.
        """
        try:
            return self._without_withheld(questions, asked, along)
        except TooFewLeft as error:
            self._session = None
            if not set(error.survivors) < set(asked) or len(error.survivors) < LEAST_CLIENTS:
                raise
            left = error.survivors
        try:
            return self._without_withheld(questions, left, along)
        except TooFewLeft:
            self._session = None
            raise

    def _without_withheld(
        self, questions: Sequence[Question[Any]], asked: tuple[str, ...], along: _Along
    ) -> list[Mapping[str, Any]]:
        try:
            return self._sum(questions, asked, along)
        except Withheld as error:
            withheld = error.questions
        rest = [question for number, question in enumerate(questions) if number not in withheld]
        totals = iter(self._sum(rest, asked, along) if rest else [])
        return [{} if number in withheld else next(totals) for number in range(len(questions))]

    def _sum(
        self, questions: Sequence[Question[Any]], asked: tuple[str, ...], along: _Along
    ) -> list[Mapping[str, Any]]:
        session = self._session_for(asked)
        try:
            while not session.ready:
                session.step(along.exchange, asked)
            parts, self.answered = session.total(along.exchange, questions, asked)
        except BadMessage:
            self._session = None
            raise
        found: list[Mapping[str, Any]] = []
        for question, part in zip(questions, parts, strict=True):
            total = cast("SecureSum[Any, Any]", verb_named(question.verb).secure_sum).unflatten(
                question.request, part, len(self.answered)
            )
            wrong = fault(question.verb, question.request, total)
            if wrong:
                raise BadMessage(f"{question.verb}: the total of {len(self.answered)} clients cannot be right: {wrong}")
            found.append({EVERYONE: total})
        return found

    def _session_for(self, asked: tuple[str, ...]) -> ServerSession:
        """The open session if it can serve these clients, otherwise a new one."""
        if self._session is None or not self._session.serves(asked):
            prepared = self._prepared if len(asked) <= MANY else 1
            self._session = ServerSession(asked, prepared, self._fraction, self._joint)
        return self._session


class _Along:
    """Questions that need no masks, which travel with the first exchange of the protocol."""

    def __init__(self, federation: Federation, questions: Sequence[Question[Any]], asked: Sequence[str]) -> None:
        self._federation = federation
        self._waiting = list(questions)
        self._asked = asked
        self.answers: list[Mapping[str, Any]] = []

    def exchange(self, own: Sequence[Question[Any]]) -> list[Mapping[str, Any]]:
        waiting, self._waiting = self._waiting, []
        if not waiting and not own:
            return []
        answers = self._federation.ask_all([*waiting, *own], self._asked)
        self.answers += answers[: len(waiting)]
        return answers[len(waiting) :]


def _sums(question: Question[Any]) -> bool:
    return isinstance(verb_named(question.verb).secure_sum, SecureSum)
