"""The interface between an algorithm and its clients, wherever they are; and the callback for its progress."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from fedrouter.errors import FedrouterError
from fedrouter.federation.message import Reply, Request
from fedrouter.routers.base import Router


class Federation(Protocol):
    """How a server reaches its clients; an algorithm has no other way to the outside."""

    def clients(self) -> Sequence[str]:
        """Names of the participating clients, sorted."""
        ...

    def ask(self, verb: str, payload: Request[Reply], to: Sequence[str] | None = None) -> Mapping[str, Reply]:
        """Replies by client name, in sorted order; clients that do not answer are missing."""
        ...


@dataclass(frozen=True)
class Progress:
    """State after a step of learning, for callbacks: progress bars, metrics and snapshots.

    ``router`` is the router as it stands after this step, for a callback that wants to save or measure it.
    """

    stage: str
    step: int
    steps: int
    clients: tuple[str, ...]
    metrics: Mapping[str, float] = field(default_factory=dict)
    router: Router | None = None


Callback = Callable[[Progress], None]


def ignore(progress: Progress) -> None:
    """The callback that does nothing."""


class NothingToLearn(FedrouterError):
    """No client has evaluations of any model in the pool that its privacy policy lets it name."""

    def __init__(self) -> None:
        super().__init__(
            "nothing to learn: no client has evaluations of any model in the pool, or enough of them for its minimum "
            "group sizes"
        )
