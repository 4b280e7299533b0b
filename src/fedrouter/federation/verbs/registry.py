"""All verbs: those in this folder, and those that other packages provide through the entry-point group."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from importlib.metadata import entry_points
from typing import Any

from fedrouter.errors import BadInput, BadMessage
from fedrouter.federation.verbs import (
    agree,
    cluster,
    cost_scale,
    cost_totals,
    hello,
    keys,
    masked,
    moments,
    score,
    second_moment,
    shares,
    statistics,
    train,
    unmask,
    validate,
)
from fedrouter.federation.verbs.verb import Verb

GROUP = "fedrouter.verbs"
"""Entry points of other packages in this group name an object that is a :class:`Verb`."""
OWN = (
    hello,
    cluster,
    statistics,
    cost_scale,
    train,
    validate,
    cost_totals,
    second_moment,
    moments,
    score,
    keys,
    shares,
    masked,
    agree,
    unmask,
)


class VerbRegistry(Mapping[str, Verb[Any, Any]]):
    """Verbs by name; entry points are loaded on first use, so that a plugin may import any module of this package."""

    @cached_property
    def _verbs(self) -> dict[str, Verb[Any, Any]]:
        verbs: dict[str, Verb[Any, Any]] = {module.VERB.name: module.VERB for module in OWN}
        for entry in sorted(entry_points(group=GROUP), key=lambda entry: entry.name):
            verb = entry.load()
            if not isinstance(verb, Verb):
                raise BadInput(f"entry point {GROUP}: {entry.name} = {entry.value}: expected a Verb")
            if verb.name in verbs:
                raise BadInput(f"entry point {GROUP}: {entry.name} = {entry.value}: a verb {verb.name!r} exists")
            verbs[verb.name] = verb
        return verbs

    def __getitem__(self, name: str) -> Verb[Any, Any]:
        return self._verbs[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._verbs)

    def __len__(self) -> int:
        return len(self._verbs)


VERBS: Mapping[str, Verb[Any, Any]] = VerbRegistry()
"""What a client answers; nothing else is ever sent."""


def verb_named(name: str) -> Verb[Any, Any]:
    """The verb of this name; raises BadMessage if there is none."""
    try:
        return VERBS[name]
    except KeyError:
        raise BadMessage(f"unknown verb {name!r}: expected one of {', '.join(VERBS)}") from None
