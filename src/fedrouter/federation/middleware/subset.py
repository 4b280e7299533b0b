"""A federation of which only some clients are asked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedrouter.federation.federation import Federation, Middleware, Question


@dataclass(frozen=True)
class Subset(Middleware):
    """Restrict a federation to the clients ``names``."""

    federation: Federation
    names: tuple[str, ...]

    def clients(self) -> Sequence[str]:
        return self.names

    def ask_all(self, questions: Sequence[Question[Any]], to: Sequence[str] | None = None) -> list[Mapping[str, Any]]:
        return self.federation.ask_all(questions, self.names if to is None else to)
