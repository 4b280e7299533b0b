"""A federation of which only some clients are asked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fedrouter.federation.federation import Federation
from fedrouter.federation.message import Reply, Request


@dataclass(frozen=True)
class Subset:
    """Restrict a federation to the clients ``names``."""

    federation: Federation
    names: tuple[str, ...]

    def clients(self) -> Sequence[str]:
        return self.names

    def ask(self, verb: str, payload: Request[Reply], to: Sequence[str] | None = None) -> Mapping[str, Reply]:
        return self.federation.ask(verb, payload, self.names if to is None else to)
