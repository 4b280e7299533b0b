"""A federation whose clients leave one fold of their rows out of every answer, for cross-validation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from fedrouter.federation.federation import Federation, Middleware, Question


@dataclass(frozen=True)
class WithoutFold(Middleware):
    """Every request to ``federation`` names this ``fold``; a family is then cross-validated without knowing it."""

    federation: Federation
    fold: int

    def clients(self) -> Sequence[str]:
        return self.federation.clients()

    def ask_all(self, questions: Sequence[Question[Any]], to: Sequence[str] | None = None) -> list[Mapping[str, Any]]:
        within = [replace(question, request=replace(question.request, fold=self.fold)) for question in questions]
        return self.federation.ask_all(within, to)
