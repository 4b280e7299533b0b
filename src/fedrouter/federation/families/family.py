"""What a family of routers is to everyone else: a name, a router, settings, and four verbs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, Self

from fedrouter.errors import BadInput
from fedrouter.federation.federation import Callback, Federation, ignore
from fedrouter.pool import ModelPool
from fedrouter.routers.base import Router


class Settings(Protocol):
    """A family's settings: a frozen dataclass; its defaults are the paper's, but for additions that it names."""

    def single_client(self) -> Self:
        """The same settings for one owner of all the data: client-local and centralized baselines."""
        ...


class Learn(Protocol):
    """A router from a federation."""

    def __call__(
        self, federation: Federation, pool: ModelPool, settings: Any, seed: int = 0, callback: Callback = ignore
    ) -> Router: ...


class AddModels(Protocol):
    """A router that also knows these new models, from what the clients know of them; the old ones stay as they are."""

    def __call__(
        self,
        router: Any,
        federation: Federation,
        models: ModelPool,
        settings: Any,
        seed: int = 0,
        callback: Callback = ignore,
    ) -> Router: ...


class AddClients(Protocol):
    """A router that has also learned from the clients of this federation, who are new; nobody else is asked."""

    def __call__(
        self, router: Any, federation: Federation, settings: Any, seed: int = 0, callback: Callback = ignore
    ) -> Router: ...


RemoveClients = Callable[[Any, Federation], Router]
"""A router without the clients of this federation, who leave."""


@dataclass(frozen=True)
class Family:
    """One family. ``remove_clients`` is None where the state is no sum, so that nobody can be taken out of it."""

    name: str
    router: type[Router]
    settings: type[Settings]
    learn: Learn
    add_models: AddModels
    add_clients: AddClients
    remove_clients: RemoveClients | None


def never_joined(what: str) -> BadInput:
    """The error for a client whose sums are not part of a router's."""
    return BadInput(
        f"{what}: what the leaving client sends is not part of this router; it must send the sums of exactly the "
        "evaluations it joined with"
    )


def not_a_sum(family: str) -> BadInput:
    """The error for a family from which nobody can be taken out."""
    return BadInput(
        f"{family} router: its state is trained weights, not sums, so a client cannot be subtracted from it; "
        "learn it again without the client"
    )
