"""A federation whose clients leave one fold of their rows out of every answer, for cross-validation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from fedrouter.federation.federation import Federation
from fedrouter.federation.message import Reply, Request


@dataclass(frozen=True)
class WithoutFold:
    """Every request to ``federation`` names this ``fold``; a family is then cross-validated without knowing it."""

    federation: Federation
    fold: int

    def clients(self) -> Sequence[str]:
        return self.federation.clients()

    def ask(self, verb: str, payload: Request[Reply], to: Sequence[str] | None = None) -> Mapping[str, Reply]:
        return self.federation.ask(verb, replace(payload, fold=self.fold), to)
