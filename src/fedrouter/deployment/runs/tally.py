"""Counts the rows behind what each client sends, where replies are seen one by one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fedrouter.federation.federation import Federation, Middleware, Question
from fedrouter.federation.verbs.train import Update


@dataclass
class Tally(Middleware):
    """A federation that counts the rows behind the replies of each client, where replies are seen one by one.

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
            if set(replies) <= set(asked):  # not the total of all
                missing |= set(asked) - set(replies)
        self.silent = frozenset(missing)
        for name, reply in (each for replies in answers for each in replies.items()):
            count = reply.rows if isinstance(reply, Update) else getattr(reply, "count", 0)
            self.rows[name] = max(self.rows.get(name, 0), int(np.sum(count)))
        return answers
