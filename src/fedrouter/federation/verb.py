"""Verbs: what a family of routers may ask of a client, and the registry of all of them.

A verb from another package joins through the entry-point group ``fedrouter.verbs``, in that package's
``pyproject.toml``::

    [project.entry-points."fedrouter.verbs"]
    median = "fedrouter_median.verb:VERB"
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, Final, Generic, TypeVar

from fedrouter.errors import BadMessage
from fedrouter.evaluations import Evaluations
from fedrouter.exact import LOW, ExactSums
from fedrouter.federation.message import Message, Request
from fedrouter.federation.noise import Noise
from fedrouter.registry import Registry

Asked = TypeVar("Asked", bound=Request[Any])
Answered = TypeVar("Answered", bound=Message)
LEAST_IN_CENTROID: Final = 5
"""The fewest different queries that a centroid may stand for, wherever anything protects the rows."""


@dataclass(frozen=True)
class Own:
    """What an answer is made of: a function of this and the request.

    Parameters
    ----------
    name : the client's name, from which its random numbers follow
    rows : its evaluations
    least : the fewest different queries that a centroid may stand for
    noise, members : what it adds to a release, shared by so many; None for no noise
    """

    name: str
    rows: Evaluations
    least: int = 1
    noise: Noise | None = None
    members: int = 1


@dataclass(frozen=True)
class Verb(Generic[Asked, Answered]):
    """One question that a server may ask a client.

    Parameters
    ----------
    name : what a federation is asked with: ``federation.ask(name, request)``
    request, reply : the types of message; the reply's fields are all that can leave
    answer : the reply, from :class:`Own` and the request
    masked : whether replies are sums that leave a member of a real federation in the secure sum of an epoch only
    faults : what is wrong with a reply to a request, as a short phrase without anything of the reply; or None
    """

    name: str
    request: type[Asked]
    reply: type[Answered]
    answer: Callable[[Own, Asked], Answered]
    masked: bool
    faults: Callable[[Asked, Answered], str | None]

    def fault(self, request: Asked, reply: Message) -> str | None:
        """Why this is no reply to the request; None if it is one."""
        if not isinstance(reply, self.reply):
            return "a reply to another verb"
        for limbs in (value.limbs for value in _values(reply) if isinstance(value, ExactSums)):
            if ((limbs[..., 1] < 0) | (limbs[..., 1] > LOW)).any():
                return "sums that are not in their one form"
        return self.faults(request, reply)


def _values(message: Message) -> list[Any]:
    return [getattr(message, part.name) for part in fields(message)]


def _accept(name: str, found: Any) -> Verb[Any, Any]:
    if not isinstance(found, Verb):
        raise TypeError(f"expected a Verb, got {type(found).__name__}")
    if found.name != name:
        raise ValueError(f"its record is named {found.name!r}")
    return found


HERE: Final = "fedrouter.federation.families"
VERBS: Registry[Verb[Any, Any]] = Registry(
    "verb",
    "fedrouter.verbs",
    {
        "release": f"{HERE}.bayes:RELEASE",
        "cluster": f"{HERE}.kmeans:CLUSTER",
        "statistics": f"{HERE}.kmeans:STATISTICS",
        "costs": f"{HERE}.mlp:COSTS",
        "train": f"{HERE}.mlp:TRAIN",
    },
    _accept,
)


def verb_named(name: str) -> Verb[Any, Any]:
    """The verb of this name; raises BadMessage if there is none."""
    if name not in VERBS:
        raise BadMessage(f"unknown verb {name!r}: expected one of {', '.join(VERBS)}")
    return VERBS[name]
