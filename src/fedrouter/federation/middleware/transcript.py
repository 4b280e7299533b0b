"""The transcript of a run, which the coordinator shows to clients so that each can derive the next question.

Used where replies are totals, under secure aggregation: a client's own reply is nobody else's business. The recording
stands outside a checkpoint and the showing inside it, so that a resumed run shows what was answered before.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fedrouter.federation.federation import Federation, Middleware, Question
from fedrouter.federation.verbs.follow import Exchange, FollowRequest
from fedrouter.pool import ModelPool


@dataclass
class Transcript:
    """What has been asked and answered in a run; ``known`` counts the exchanges that each client has been shown."""

    run: str = field(default_factory=lambda: secrets.token_hex(16))
    job: str = ""
    exchanges: list[Exchange] = field(default_factory=list)
    known: dict[str, int] = field(default_factory=dict)

    def begin(
        self, family: str, settings: Mapping[str, Any], seed: int, pool: ModelPool, clients: Sequence[str]
    ) -> None:
        """State the job; nothing is shown before."""
        job = {"family": family, "settings": settings, "seed": seed, "pool": pool.to_json(), "clients": list(clients)}
        self.job = json.dumps(job, sort_keys=True)

    def question(self, to: Sequence[str]) -> Question[Any]:
        """Shows these clients what at least one of them does not know yet."""
        start = min((self.known.get(name, 0) for name in to), default=0)
        return Question("follow", FollowRequest.of(self.run, self.job, start, self.exchanges[start:]))


@dataclass
class Recorded(Middleware):
    """A federation whose questions and replies enter the ``transcript``."""

    federation: Federation
    transcript: Transcript

    def clients(self) -> Sequence[str]:
        return self.federation.clients()

    def ask_all(self, questions: Sequence[Question[Any]], to: Sequence[str] | None = None) -> list[Mapping[str, Any]]:
        answers = self.federation.ask_all(questions, to)
        asked = zip(questions, answers, strict=True)
        self.transcript.exchanges.append(tuple((question.verb, dict(replies)) for question, replies in asked))
        return answers


@dataclass
class Shown(Middleware):
    """A federation that shows the ``transcript`` to the clients that it asks, in the same exchange, before the rest."""

    federation: Federation
    transcript: Transcript

    def clients(self) -> Sequence[str]:
        return self.federation.clients()

    def ask_all(self, questions: Sequence[Question[Any]], to: Sequence[str] | None = None) -> list[Mapping[str, Any]]:
        if not self.transcript.job:
            return self.federation.ask_all(questions, to)
        follow = self.transcript.question(self.clients() if to is None else to)
        heard, *answers = self.federation.ask_all([follow, *questions], to)
        self.transcript.known |= {name: reply.known for name, reply in heard.items()}
        return answers
