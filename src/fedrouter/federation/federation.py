"""The interface between an algorithm and its clients, wherever they are; and the callback for its progress."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from fedrouter.errors import FedrouterError
from fedrouter.evaluations import Evaluations
from fedrouter.federation.message import Reply, Request
from fedrouter.routers.base import Router

EVERYONE = "everyone"
"""The name of a reply that stands for all clients: their total."""
LEAST_DECLARING = 3
"""A model that fewer members declare is explored, not trusted: one of them could make up everything about it."""


class Federation(Protocol):
    """How a server reaches its clients; an algorithm has no other way to the outside."""

    def clients(self) -> Sequence[str]:
        """Names of the participating clients, sorted."""
        ...

    def ask(self, verb: str, payload: Request[Reply], to: Sequence[str] | None = None) -> Mapping[str, Reply]:
        """Replies by client name, in sorted order; clients that do not answer are missing.

        Where replies add up, there may be one in place of all, their total.
        """
        ...

    def open_rows(self) -> Sequence[Evaluations] | None:
        """The clients' evaluations by name, where they are in this process and nothing protects them; else None."""
        return None


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
    """A family cannot be learned: none of the ``clients`` that answered has the rows for ``what`` it needs."""

    def __init__(self, what: str = "sums", clients: Collection[str] | None = None) -> None:
        who = "no client" if not clients else f"none of {len(clients)} clients"
        self.reason = f"{who} has enough evaluations of these models to send {what}"
        super().__init__(f"nothing to learn: {self.reason}")
