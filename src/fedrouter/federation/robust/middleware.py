"""Robust aggregation: one poisoned client cannot dominate what all learn.

`Robust` stands between an algorithm and its clients and alters replies, so families need not know of it. Each part is
off unless it is switched on; :meth:`RobustSettings.preset` is a good choice. It does not replace validation, which
drops impossible replies (:mod:`~fedrouter.federation.middleware.validation`), and there is no defense against a
majority of poisoned clients. How the replies to a verb are treated stands in the verb's file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from fedrouter.errors import BadInput
from fedrouter.federation.federation import Federation, Middleware, Question
from fedrouter.federation.robust.caps import capped
from fedrouter.federation.robust.updates import capped_updates, clipped, median, trimmed_mean
from fedrouter.federation.verbs.registry import verb_named
from fedrouter.federation.verbs.verb import Cap, RobustTreatment, UpdateSteps, Winsorize
from fedrouter.routers.mlp import Weights

Step = Callable[[Mapping[str, Any]], Mapping[str, Any]]
LEAST_CLIENTS = 3
"""Of two clients that disagree, nobody can say which one is wrong."""


@dataclass(frozen=True)
class RobustSettings:
    """Each part is off by default.

    Parameters
    ----------
    most_rows : maximum weight of a client, in multiples of the rows of the median client
    winsorized : bring means of accuracy and cost inside the range that the other clients support
    clip : maximum length of an update of weights, in multiples of the median client's
    trim : share of the clients that is left out at either end before the mean of each weight is taken
    median : take the median of each weight over clients instead of the mean
    """

    most_rows: float | None = None
    winsorized: bool = False
    clip: float | None = None
    trim: float = 0.0
    median: bool = False

    @classmethod
    def preset(cls) -> RobustSettings:
        """Settings against one poisoned client of ten, at a small cost where all are honest."""
        return cls(most_rows=2.0, winsorized=True, clip=1.5, trim=0.2)

    def __post_init__(self) -> None:
        for name in ("most_rows", "clip"):
            value = getattr(self, name)
            if value is not None and not 1 <= value < np.inf:
                raise BadInput(f"{name}: expected a number of at least 1, got {value}")
        if not 0 <= self.trim < 0.5:
            raise BadInput(f"trim: expected a share of at least 0 and below 0.5, got {self.trim}")
        if self.trim and self.median:
            raise BadInput("trim and median: choose one, a median leaves nothing to trim")


class Robust(Middleware):
    """A federation with robust aggregation of the replies.

    Trimmed means and medians are one reply, named `everyone`; everything else is still one reply for each client. A
    client that leaves must be asked without this, because its contribution is subtracted exactly.
    """

    def __init__(self, federation: Federation, settings: RobustSettings) -> None:
        self._federation = federation
        self._settings = settings

    def clients(self) -> Sequence[str]:
        return self._federation.clients()

    def ask_all(self, questions: Sequence[Question[Any]], to: Sequence[str] | None = None) -> list[Mapping[str, Any]]:
        answers = self._federation.ask_all(questions, to)
        return [
            self._combined(question.verb, question.request, replies)
            for question, replies in zip(questions, answers, strict=True)
        ]

    def _combined(self, verb: str, request: Any, replies: Mapping[str, Any]) -> Mapping[str, Any]:
        steps = self._steps(verb, request)
        if steps and len(replies) < LEAST_CLIENTS:
            raise BadInput(
                f"{verb}: {len(replies)} clients answered; robust aggregation compares clients with each other and "
                f"needs at least {LEAST_CLIENTS} (more clients, or a larger share of them in every round)"
            )
        replies = {name: replies[name] for name in sorted(replies)}
        for step in steps:
            replies = step(replies)
        return replies

    def _steps(self, verb: str, request: Any) -> list[Step]:
        """What is done to the replies to a verb, in order."""
        treatment, chosen = verb_named(verb).robust, self._settings
        steps: list[Step] = []
        if not isinstance(treatment, RobustTreatment):
            return steps
        cap, winsorize, updates = treatment.cap, treatment.winsorize, treatment.updates
        if chosen.most_rows is not None and isinstance(cap, Cap):
            most, scale = chosen.most_rows, cap.scale
            rows = partial(cap.rows, request)
            steps.append(lambda replies: capped(replies, rows, scale, most))
        if chosen.winsorized and isinstance(winsorize, Winsorize):
            steps.append(partial(winsorize.apply, request))
        if isinstance(updates, UpdateSteps):
            steps += self._update_steps(updates.sent(request))
        return steps

    def _update_steps(self, sent: Weights) -> list[Step]:
        chosen = self._settings
        steps: list[Step] = []
        if chosen.clip is not None:
            longest = chosen.clip
            steps.append(lambda replies: clipped(sent, replies, longest))
        if chosen.most_rows is not None:
            most = chosen.most_rows
            steps.append(lambda replies: capped_updates(replies, most))
        if chosen.trim:
            steps.append(lambda replies: trimmed_mean(replies, chosen.trim))
        if chosen.median:
            steps.append(median)
        return steps
