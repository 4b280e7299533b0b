"""Counts the rows behind what each client sends, where that is seen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fedrouter.federation.federation import Federation, Middleware, Question
from fedrouter.federation.middleware.sums import rows_of_each


@dataclass
class Tally(Middleware):
    """A federation that counts the rows behind the replies of each client, where no masks hide them.

    ``silent`` names the clients that did not answer all that was last asked of them.
    """

    federation: Federation
    rows: dict[str, int] = field(default_factory=dict)
    silent: frozenset[str] = frozenset()

    def clients(self) -> Sequence[str]:
        return self.federation.clients()

    def ask_all(self, questions: Sequence[Question[Any]], to: Sequence[str] | None = None) -> list[Mapping[str, Any]]:
        answers = self.federation.ask_all(questions, to)
        missing = set()
        for question, replies in zip(questions, answers, strict=True):
            asked = next(names for names in (question.to, to, self.clients()) if names is not None)
            rows = rows_of_each(replies)
            if set(rows) <= set(asked):  # not the total of all, under masks
                missing |= set(asked) - set(rows)
            for name, count in rows.items():
                self.rows[name] = max(self.rows.get(name, 0), count)
        self.silent = frozenset(missing)
        return answers
