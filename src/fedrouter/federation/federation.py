"""The one seam between an algorithm and wherever its clients are, and the one through which it tells how it goes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from fedrouter.errors import FedrouterError
from fedrouter.federation.message import Reply, Request
from fedrouter.routers.base import Router


class Federation(Protocol):
    """How a server reaches its clients; everything an algorithm may do to the world outside."""

    def clients(self) -> Sequence[str]:
        """Names of those who take part, sorted."""
        ...

    def ask(self, verb: str, payload: Request[Reply], to: Sequence[str] | None = None) -> Mapping[str, Reply]:
        """Replies by client name, in sorted order; who does not answer is not in it."""
        ...


@dataclass(frozen=True)
class Progress:
    """Told after every step of learning; progress bars, metrics and checkpoints all hang on it.

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
    """No client has evaluations of any model in the pool that it would speak of."""

    def __init__(self) -> None:
        super().__init__(
            "nothing to learn: no client has evaluations of any model in the pool, or enough for its privacy floors"
        )
