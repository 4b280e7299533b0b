"""The record of a router family: everything that the rest of the project needs to know about one."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Protocol, Self

from fedrouter.errors import BadInput
from fedrouter.evaluations import Evaluations
from fedrouter.federation.federation import Callback, Federation, ignore
from fedrouter.pool import ModelPool
from fedrouter.routers.base import Router


@dataclass(frozen=True)
class Settings:
    """Base class of a family's settings: a frozen dataclass whose every field has a default."""

    def single_client(self) -> Self:
        """The settings for one owner of all the data, who needs no federation."""
        return self

    def client_local(self) -> Self:
        """The settings for a client that learns from its own rows, where they differ from those for all rows."""
        return self

    def changed(self, **changes: Any) -> Self:
        """A copy with some settings changed; changes of settings that this family does not have are ignored."""
        known = {part.name for part in fields(self)}
        return replace(self, **{name: value for name, value in changes.items() if name in known})

    def to_json(self) -> dict[str, Any]:
        """The settings as a JSON object, nested settings included."""
        return dict(json.loads(json.dumps(asdict(self))))

    @classmethod
    def from_json(cls, values: Mapping[str, Any], **changes: Any) -> Self:
        """The settings that :meth:`to_json` wrote, some of them changed.

        Missing settings get their defaults; unknown ones are ignored.
        """
        known = {part.name for part in fields(cls)}
        return cls(
            **{
                name: tuple(value) if isinstance(value, list) else value
                for name, value in {**values, **changes}.items()
                if name in known
            }
        )


class Learn(Protocol):
    """Learns a router from the clients of a federation."""

    def __call__(
        self, federation: Federation, pool: ModelPool, settings: Any, seed: int = 0, callback: Callback = ignore
    ) -> Router: ...


class AddModels(Protocol):
    """Adds new models to a router from the clients' evaluations of them; estimates of the old models do not change."""

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
    """Adds new clients to a router: only the clients of this federation are asked, and all of them are new."""

    def __call__(
        self, router: Any, federation: Federation, settings: Any, seed: int = 0, callback: Callback = ignore
    ) -> Router: ...


RemoveClients = Callable[[Any, Federation], Router]
"""Removes the clients of this federation from a router, exactly."""


@dataclass(frozen=True)
class NotASum:
    """Says that clients cannot be removed from a family's routers; ``reason`` completes "<name> router: ..."."""

    reason: str


TRAINED_WEIGHTS = NotASum("its state is trained weights, not sums")

SingleOwner = Callable[[str, Evaluations], Federation]
"""Makes a federation in this process whose one client, of this name, owns these rows."""
PooledSettings = Callable[[Any, Evaluations, int, SingleOwner], Settings]
"""From a family's settings, the pooled training rows, a seed and a way to train on rows: the settings to train with."""


@dataclass(frozen=True, eq=False)
class Family:
    """One family of routers. Every field is required, so that nothing about a family is left to a default.

    Parameters
    ----------
    name : identifies the family in bundles, on the command line and in results; equal to ``router.family``
    title : the name in figures and tables
    description : one line for command-line help and documentation
    router : the class of its routers
    settings : the class of its settings; called without arguments it gives the defaults
    paper : the settings of the paper, or None if the paper does not have the family
    learn, add_models, add_clients : see :class:`Learn`, :class:`AddModels`, :class:`AddClients`
    remove_clients : see :data:`RemoveClients`, or why it is not possible
    pooled : how its settings change to train on all clients' rows in one place, the centralized baseline
    extra : the optional dependencies that learning needs, such as "train" for torch; None if there are none
    random : whether another seed gives another router
    """

    name: str
    title: str
    description: str
    router: type[Router]
    settings: type[Settings]
    paper: Settings | None
    learn: Learn
    add_models: AddModels
    add_clients: AddClients
    remove_clients: RemoveClients | NotASum
    pooled: PooledSettings
    extra: str | None
    random: bool

    def __post_init__(self) -> None:
        if self.router.family != self.name:
            raise BadInput(
                f"family {self.name!r}: its router class says {self.router.family!r}; expected the same name"
            )
        if not self.description or "\n" in self.description:
            raise BadInput(f"family {self.name!r}: expected a description of one line")

    def alone(self, settings: Settings, rows: Evaluations, seed: int, owner: SingleOwner) -> Settings:
        """The settings with which a client learns from its own rows: the client-local baseline.

        Chosen from these rows in the same way as those of the centralized baseline from all rows.
        """
        return self.pooled(settings.client_local(), rows, seed, owner)

    def removal(self) -> RemoveClients:
        """The operation that removes clients; an error that says why, where there is none."""
        if isinstance(self.remove_clients, NotASum):
            raise BadInput(
                f"{self.name} router: {self.remove_clients.reason}, so a client cannot be subtracted from it; "
                "learn it again without the client"
            )
        return self.remove_clients


def train_once(settings: Settings, train: Evaluations, seed: int, owner: SingleOwner) -> Settings:
    """Pooled training of a family that has nothing to choose: the settings of a single client."""
    return settings.single_client()


def never_joined(family: str) -> BadInput:
    """The error for a client whose sums are not part of a router's."""
    return BadInput(
        f"{family} router: what the leaving client sends is not part of this router; it must send the sums of exactly "
        "the evaluations it joined with"
    )
