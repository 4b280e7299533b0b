"""A federation that writes a line of progress for every exchange with the clients: what, who answered, how long."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from fedrouter.deployment.runs.progress import ProgressLog
from fedrouter.federation.federation import Federation, Middleware, Question
from fedrouter.federation.message import Message


class Watched(Middleware):
    """Around an engine, so that every exchange counts, also those that protect another question."""

    def __init__(self, federation: Federation, log: ProgressLog) -> None:
        self._federation = federation
        self._log = log
        self._asked = 0

    def clients(self) -> Sequence[str]:
        return self._federation.clients()

    def ask_all(self, questions: Sequence[Question[Any]], to: Sequence[str] | None = None) -> list[Mapping[str, Any]]:
        began = time.monotonic()
        sizes = _Sizes()
        answers = self._federation.ask_all([sizes.counting(question) for question in questions], to)
        for replies in answers:
            for name, reply in replies.items():
                sizes.add(name, reply)
        self._asked += 1
        everyone = self.clients() if to is None else to
        mine = [set(everyone if question.to is None else question.to) for question in questions]
        asked = set().union(*mine)
        silent = {name for names, replies in zip(mine, answers, strict=True) for name in names if name not in replies}
        self._log.write(
            "exchange",
            number=self._asked,
            verbs=list(dict.fromkeys(question.verb for question in questions)),
            asked=len(asked),
            answered=len(asked - silent),
            clients=sorted(asked),
            silent=sorted(silent),
            bytes=dict(sorted(sizes.items())),
            seconds=round(time.monotonic() - began, 3),
        )
        return answers


class _Sizes(dict[str, int]):
    """The bytes that each client has sent."""

    def add(self, name: str, reply: Any) -> None:
        if isinstance(reply, Message):
            self[name] = self.get(name, 0) + reply.size

    def counting(self, question: Question[Any]) -> Question[Any]:
        """The question, such that replies which are handed over one by one are counted, too."""
        hand_over = question.each
        if hand_over is None:
            return question

        def each(name: str, reply: Any) -> None:
            self.add(name, reply)
            hand_over(name, reply)

        return replace(question, each=each)
