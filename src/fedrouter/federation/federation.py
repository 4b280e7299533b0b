"""The interface between an algorithm and its clients, wherever they are; and the callback for its progress."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol

from fedrouter.errors import FedrouterError
from fedrouter.evaluations import Evaluations
from fedrouter.federation.message import Reply, Request
from fedrouter.routers.base import Router

EVERYONE = "everyone"
"""The name of a reply that stands for all clients."""


@dataclass(frozen=True)
class Question(Generic[Reply]):
    """A verb and what is asked with it.

    Parameters
    ----------
    to : names of the clients, if not all that the exchange reaches are asked
    each : called with the name and the reply of each client as it comes. The answer to the question then has the names
        alone, each with None: no more than one reply has to be in memory
    """

    verb: str
    request: Request[Reply]
    to: tuple[str, ...] | None = None
    each: Callable[[str, Reply], None] | None = None


class Federation(Protocol):
    """How a server reaches its clients; an algorithm has no other way to the outside.

    An engine that inherits from this class has to write ``clients`` and ``ask``. It also writes ``ask_all`` if it can
    carry several questions in one exchange of messages.
    """

    def clients(self) -> Sequence[str]:
        """Names of the participating clients, sorted."""
        ...

    def ask(self, verb: str, payload: Request[Reply], to: Sequence[str] | None = None) -> Mapping[str, Reply]:
        """Replies by client name, in sorted order; clients that do not answer are missing."""
        ...

    def ask_all(self, questions: Sequence[Question[Any]], to: Sequence[str] | None = None) -> list[Mapping[str, Any]]:
        """The replies to several questions, in their order; none of the questions depends on another's replies."""
        answers: list[Mapping[str, Any]] = []
        for question in questions:
            recipients = to if question.to is None else question.to
            if question.each is None:
                answers.append(self.ask(question.verb, question.request, recipients))
            else:
                answers.append(self._ask_each(question, question.each, recipients))
        return answers

    def open_rows(self) -> Sequence[Evaluations] | None:
        """The clients' evaluations by name, where they are in this process and nothing protects them; else None."""
        return None

    def _ask_each(
        self, question: Question[Any], each: Callable[[str, Any], None], to: Sequence[str] | None
    ) -> Mapping[str, None]:
        """Hand over the replies one by one. An engine that has them one by one overrides this."""
        replies = self.ask(question.verb, question.request, to)
        for name, reply in replies.items():
            each(name, reply)
        return dict.fromkeys(replies)


class Middleware(Federation, Protocol):
    """Base class of a federation around a federation: writes ``clients`` and ``ask_all``, and inherits ``ask``."""

    def ask(self, verb: str, payload: Request[Reply], to: Sequence[str] | None = None) -> Mapping[str, Reply]:
        return self.ask_all([Question(verb, payload)], to)[0]


@dataclass(frozen=True)
class Progress:
    """State after a step of learning, for callbacks: progress bars, metrics and snapshots.

    ``router`` is the router as it stands after this step, for a callback that wants to save or measure it. ``notes``
    are what a user should know about what was learned, one line each.
    """

    stage: str
    step: int
    steps: int
    clients: tuple[str, ...]
    metrics: Mapping[str, float] = field(default_factory=dict)
    router: Router | None = None
    notes: tuple[str, ...] = ()


Callback = Callable[[Progress], None]


def ignore(progress: Progress) -> None:
    """The callback that does nothing."""


class NothingToLearn(FedrouterError):
    """A family cannot be learned: none of the ``clients`` that answered has enough rows to send ``what`` it needs.

    If nobody answered, clients withhold it, because of a total that they were in before.
    """

    def __init__(self, what: str = "sums", clients: Collection[str] | None = None) -> None:
        who = "no client" if clients is None else f"none of {len(clients)} clients"
        self.reason = f"{who} has enough evaluations of these models to send {what} under its minimum group sizes"
        if clients is not None and not clients:
            self.reason = (
                f"clients withhold {what}: they sent the same with one client more or less, and their logs have not "
                "changed since"
            )
        super().__init__(f"nothing to learn: {self.reason}")
