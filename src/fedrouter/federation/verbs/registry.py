"""All verbs: those in this folder, and those of other packages.

A verb from another package joins through the entry-point group ``fedrouter.verbs``, in that package's
``pyproject.toml``::

    [project.entry-points."fedrouter.verbs"]
    median = "fedrouter_median.verb:VERB"
"""

from __future__ import annotations

from typing import Any

from fedrouter.errors import BadMessage
from fedrouter.federation.verbs.verb import Verb
from fedrouter.registry import Registry

GROUP = "fedrouter.verbs"
OWN = (*("hello", "release", "keys", "shares", "deliver", "masked", "agree", "unmask", "excluded", "follow", "vote"),)
OF_FAMILIES = {
    "cluster": "kmeans:CLUSTER",
    "statistics": "kmeans:STATISTICS",
    "costs": "mlp:COSTS",
    "train": "mlp:TRAIN",
}


def _accept(name: str, found: Any) -> Verb[Any, Any]:
    if not isinstance(found, Verb):
        raise TypeError(f"expected a Verb, got {type(found).__name__}")
    if found.name != name:
        raise ValueError(f"its record is named {found.name!r}")
    return found


VERBS: Registry[Verb[Any, Any]] = Registry(
    "verb",
    GROUP,
    {name: f"fedrouter.federation.verbs.{name}:VERB" for name in OWN}
    | {name: f"fedrouter.federation.families.{place}" for name, place in OF_FAMILIES.items()},
    _accept,
)
"""What a client answers; nothing else is ever sent."""


def verb_named(name: str) -> Verb[Any, Any]:
    """The verb of this name; raises BadMessage if there is none."""
    if name not in VERBS:
        raise BadMessage(f"unknown verb {name!r}: expected one of {', '.join(VERBS)}")
    return VERBS[name]
