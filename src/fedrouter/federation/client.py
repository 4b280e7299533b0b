"""A client: owns evaluations, and answers verbs under its privacy policy."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol, cast

from fedrouter.errors import BadInput, BadMessage, FedrouterError, Refused
from fedrouter.evaluations import Evaluations
from fedrouter.federation.client_view import ClientView
from fedrouter.federation.message import Message, Reply, Request
from fedrouter.federation.noise import Noise
from fedrouter.federation.privacy.cohorts import Cohorts
from fedrouter.federation.privacy.disclosure import DisclosureControl, rows_digest
from fedrouter.federation.privacy.memory import MASKED, REFUSED, SENT, Memory, ShortMemory
from fedrouter.federation.privacy.policy import CLEAR, OPEN, PrivacyPolicy
from fedrouter.federation.privacy.rows import PrivateRows
from fedrouter.federation.verbs.follow import FollowRequest
from fedrouter.federation.verbs.registry import verb_named
from fedrouter.federation.verbs.verb import (
    NO_ROWS,
    NoRows,
    Own,
    OwnNoise,
    SecureSum,
    SumsUnderMasks,
    Verb,
)
from fedrouter.routers.base import Router

if TYPE_CHECKING:
    from fedrouter.federation.secagg.identity import Identity


TOLERANCE = 0.02
"""Utility, such as accuracy at no price, that a client gives up for the whole before it objects to a new router."""


class FollowsRuns(Protocol):
    """See :class:`~fedrouter.federation.rederivation.Rederivation`."""

    @property
    def open(self) -> bool: ...

    @property
    def trusted(self) -> bool: ...

    def follow(self, request: Any) -> int: ...

    def derives(self, verb: str, request: Request[Any]) -> bool: ...


class Client:
    """One participant of a federation.

    A client without evaluations is valid: its sums are zero, and so is its weight in every average. Evaluations of
    models that the server does not ask about take no part.

    Parameters
    ----------
    name : unique in the federation
    evaluations : its private rows
    privacy : what it requires before anything leaves; the default is for federations in one process. Members of a real
        one are made from their state directory, whose default also refuses sums in the clear
    memory : what it keeps between requests; a :class:`~fedrouter.federation.privacy.journal.Journal` outlives the
        process
    encoder, normalised, weights : name of the encoder of its embeddings, whether they have length one, and a digest of
        the encoder's weights, if it is known
    identity : its long-term key, for secure aggregation
    rederivation : derives the questions of a run from what the coordinator shows of it. With it, a question under masks
        that does not follow is refused, and before anything is shown, minimum group sizes apply as without masks. None
        trusts the coordinator to ask what the published software asks
    in_service : the router that it serves, with which it compares a candidate; None for its own best single model
    tolerance : by how much a candidate may make it worse off, in utility, before it objects; None for
        :data:`TOLERANCE`
    without_own : subtracts its own sums from a router, to say in a vote what the others' rows give it; an error says
        that they cannot be subtracted. None if it does not say so
    """

    def __init__(
        self,
        name: str,
        evaluations: Evaluations,
        privacy: PrivacyPolicy = CLEAR,
        memory: Memory | None = None,
        encoder: str = "unnamed",
        normalised: bool = True,
        identity: Identity | None = None,
        weights: str | None = None,
        rederivation: FollowsRuns | None = None,
        in_service: Callable[[], Router | None] | None = None,
        tolerance: float | None = None,
        without_own: Callable[[Router], Router] | None = None,
    ) -> None:
        if not name.strip():
            raise BadInput("client name: expected a non-empty string")
        tolerance = TOLERANCE if tolerance is None else tolerance
        if not (isinstance(tolerance, int | float) and tolerance >= 0):
            raise BadInput(f"tolerance: expected a number of at least 0, got {tolerance!r}")
        self.name = name
        self.privacy = privacy
        self.encoder = encoder
        self.normalised = normalised
        self.weights = weights
        self._identity = identity
        self._rederivation = rederivation
        self._in_service = in_service
        self._tolerance = tolerance
        self._without_own = without_own
        self._memory = memory or ShortMemory()
        self._evaluations = evaluations
        self._spent = ""
        if control := self._control():
            self._evaluations = control.admitted(evaluations)
        self._cohorts = Cohorts(
            name, self._memory, rows_digest(self._evaluations), privacy.least_cohort, privacy.cohort_gap
        )

    @property
    def open_rows(self) -> Evaluations | None:
        """The rows themselves, if the policy protects nothing; else None."""
        return self._evaluations if self.privacy == OPEN else None

    def answer(self, verb: str, request: Request[Reply], hidden: int = 0) -> Reply:
        """The reply to a verb; ``hidden`` is the number of clients in the secure sum that masks it, 0 if none does.

        Raises BadMessage for an unknown verb or a request of another type, and Refused if the privacy policy forbids
        the answer.
        """
        asked = verb_named(verb)
        if not isinstance(request, asked.request):
            raise BadMessage(f"{verb}: expected {asked.request.__name__}, got {type(request).__name__}")
        return cast(Reply, self._recorded(asked, request, hidden, lambda: bool(hidden)))

    def reply_to_mask(self, verb: str, request: Request[Any], clients: int = 1) -> Message:
        """The reply to a question under masks, in a sum of so many clients; it must follow from what was shown."""
        run, asked = self._rederivation, verb_named(verb)

        def follows() -> bool:
            # Of a run that is not shown, or that extends a router that this client did not derive, questions are
            # checked by themselves, as in the clear.
            checked = not isinstance(asked.disclosure, NoRows)
            if run and not (run.derives(verb, request) if run.open else checked):
                raise Refused(f"{verb}: client {self.name} is asked what does not follow from the run", "question")
            return run is None or run.trusted

        return self._recorded(asked, request, clients, follows)

    def _recorded(self, asked: Verb[Any, Any], request: Request[Any], hidden: int, rule: Callable[[], bool]) -> Message:
        """The reply, after every check of the question itself; the question is recorded with what became of it.

        ``rule`` says whether the answer is hidden so well that single queries may have any say in it, or refuses.
        """
        reads = not isinstance(asked.disclosure, NoRows)
        outcome = REFUSED
        try:
            if self.privacy.secure_only and isinstance(asked.secure_sum, SecureSum) and not hidden:
                raise Refused(
                    f"{asked.name}: client {self.name} answers it under secure aggregation only; its owner allows sums "
                    "in the clear with `fedrouter federation client --no-secure-only`",
                    "secure_only",
                )
            most = self.privacy.questions_a_day
            if reads and self._memory.times_answered(asked.name, 24) >= most:
                raise Refused(f"{asked.name}: client {self.name} has answered it {most} times in a day", "questions")
            reply = self._answered(asked, request, hidden, rule())
            outcome = MASKED if hidden else SENT
        finally:
            if isinstance(request, FollowRequest):  # what the coordinator signed is kept, to be shown to others
                self._memory.asked(asked.name, request.proof(), outcome, whole=True)
            else:
                self._memory.asked(asked.name, request, outcome, whole=reads)
        return reply

    def _answered(self, asked: Verb[Any, Any], request: Request[Any], hidden: int, relaxed: bool) -> Message:
        """The reply; ``relaxed`` where a sum needs no more say of single queries to be limited."""
        verb = asked.name
        if not hidden:
            self._spent = ""  # what is masked is sent in the message around it
        try:
            reply, rule = self._reply(asked, request, hidden, relaxed)
        except OverflowError:
            raise BadInput(
                f"client {self.name}: embeddings with values this large cannot be summed exactly; normalize them to "
                "length one before they are used"
            ) from None
        if type(reply) is not asked.reply:
            raise Refused(f"{verb}: its answer is a {type(reply).__name__}, which it does not state")
        if not hidden:
            reply = asked.as_sent(reply, rule)
            self._memory.sent(verb, reply, self._spent)
        return reply

    def _control(self) -> DisclosureControl | None:
        """The disclosure control for one answer."""
        sizes = self.privacy.minimum_sizes
        return DisclosureControl(sizes, self._memory) if sizes else None

    def _reply(self, verb: Verb[Any, Any], request: Message, hidden: int, relaxed: bool) -> tuple[Message, str]:
        """The answer, and the rule that applies if there is nothing in it.

        It must have applied the minimum group sizes that its verb states.
        """
        if verb.disclosure is None:
            sizes = self.privacy.minimum_sizes
            return verb.answer(Own(self.name, self._evaluations, sizes.cluster if sizes else 1), request), NO_ROWS
        if isinstance(verb.disclosure, NoRows):
            return verb.answer(self._view(verb, None), request), NO_ROWS
        if isinstance(verb.disclosure, OwnNoise):
            noise = self.privacy.noise or Noise(epsilon=0)
            self._spent = json.dumps({"epsilon": noise.epsilon or None, "delta": noise.delta})
            rows = PrivateRows(self.name, self._evaluations, None, masked=hidden)
            return verb.answer(self._view(verb, rows), request), NO_ROWS
        control = self._control()
        rows = PrivateRows(self.name, self._evaluations, control, relaxed, masked=hidden)
        reply: Message = verb.answer(self._view(verb, rows), request)
        forgotten = [size for size in verb.disclosure.sizes if control and size not in control.applied]
        if forgotten:
            raise Refused(f"{verb.name}: its answer did not apply the minimum group size it states: {forgotten[0]}")
        return reply, control.emptied_by if control else NO_ROWS

    def _view(self, verb: Verb[Any, Any], rows: PrivateRows | None) -> ClientView:
        return ClientView(
            self.name,
            self.encoder,
            self.weights or "",
            self._evaluations.dimension,
            self.normalised,
            self._memory,
            self._identity,
            rows,
            self.reply_to_mask if isinstance(verb.disclosure, SumsUnderMasks) else None,
            noise=self.privacy.noise,
            follow=self._rederivation.follow if self._rederivation else None,
            admit_cohort=self._cohorts.admit,
            in_service=self._in_service,
            tolerance=self._tolerance,
            without_own=self._router_without_own if self._without_own else None,
        )

    def _router_without_own(self, router: Router) -> Router | None:
        """None for a family whose state is no sum, or a log that is not the one that the router was learned from."""
        try:
            return self._without_own(router) if self._without_own else None
        except FedrouterError:
            return None
