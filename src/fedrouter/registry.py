"""Registries of records by name, open to other packages through entry points."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Generic, TypeVar

from fedrouter.errors import BadInput

LOG = logging.getLogger("fedrouter.registry")

T = TypeVar("T")


class Registry(Mapping[str, T], Generic[T]):
    """Records by name: those of this package first, then those that installed packages offer.

    A record is imported when it is first looked up, so listing the names is cheap. A name of this package cannot be
    taken by another one.

    Parameters
    ----------
    kind : what the records are, for error messages: "family", "verb"
    group : the entry-point group under which another package offers records
    built_in : where this package's own records are, as ``module:attribute`` by name
    accept : turns the object behind an entry point into a record; raises if it is not one
    """

    def __init__(
        self,
        kind: str,
        group: str,
        built_in: Mapping[str, str],
        accept: Callable[[str, Any], T] = lambda name, found: found,
    ) -> None:
        self._kind, self._group, self._accept = kind, group, accept
        self._built_in = dict(built_in)
        self._loaded: dict[str, T] = {}

    @cached_property
    def _offered(self) -> dict[str, EntryPoint]:
        """What other packages offer, by name."""
        offered: dict[str, EntryPoint] = {}
        for point in sorted(entry_points(group=self._group), key=lambda point: (point.name, point.value)):
            if point.name in self._built_in or point.name in offered:
                LOG.warning("%s %r of %s is ignored: the name is taken", self._kind, point.name, point.value)
            else:
                offered[point.name] = point
        return offered

    def __getitem__(self, name: str) -> T:
        if name not in self._loaded:
            self._loaded[name] = self._load(name)
        return self._loaded[name]

    def _load(self, name: str) -> T:
        if name in self._built_in:
            module, _, attribute = self._built_in[name].partition(":")
            found: T = getattr(import_module(module), attribute)
            return found
        point = self._offered[name]
        try:
            return self._accept(name, point.load())
        except Exception as error:
            raise BadInput(f"{self._kind} {name!r} of {point.value}: cannot be used ({error})") from error

    def __iter__(self) -> Iterator[str]:
        yield from self._built_in
        yield from self._offered

    def __len__(self) -> int:
        return len(self._built_in) + len(self._offered)

    def __contains__(self, name: object) -> bool:
        return name in self._built_in or name in self._offered

    def find(self, name: str) -> T:
        """The record of this name; an unknown name is an error that lists the known ones."""
        if name not in self:
            raise BadInput(
                f"{self._kind} {name!r}: expected one of {', '.join(self)}; if it comes from a package of its own, "
                "that package is not installed here"
            )
        return self[name]
