"""Robust aggregation, by choice: what one client says of its own cannot rule what all learn.

`Robust` stands between an algorithm and its clients and alters replies, so no family knows of it. Everything is off
unless asked for; :meth:`RobustSettings.preset` is what to ask for. It is no substitute for dropping replies that cannot
be true (:mod:`~fedrouter.federation.middleware.validation`), and there is no defence against a majority of liars.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedrouter.errors import BadInput
from fedrouter.federation.federation import Federation
from fedrouter.federation.message import Reply, Request
from fedrouter.federation.robust.caps import CAPPED
from fedrouter.federation.robust.sums import WINSORIzED
from fedrouter.federation.robust.updates import capped_updates, clipped, median, trimmed_mean

Step = Callable[[Mapping[str, Any]], Mapping[str, Any]]
LEAST_CLIENTS = 3
"""Of two clients that disagree nobody can say which one is lying."""


@dataclass(frozen=True)
class RobustSettings:
    """Each part is off by default.

    Parameters
    ----------
    most_rows : no client counts for more than so many times the rows of the median client
    winsorized : means of accuracy and cost are brought inside the range that the other clients support
    clip : no update of weights is longer than so many times the median client's
    trim : of every weight, so large a share of the clients is left out at either end before the mean is taken
    median : of every weight the median client's is taken, not the mean
    """

    most_rows: float | None = None
    winsorized: bool = False
    clip: float | None = None
    trim: float = 0.0
    median: bool = False

    @classmethod
    def preset(cls) -> RobustSettings:
        """Against one liar among ten, at a small price where all are honest."""
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


class Robust:
    """A federation whose replies have been made harmless.

    Trimmed means and medians are one reply, named `everyone`; everything else is still a reply a client. A client that
    leaves must be asked without this: what it brought is subtracted as it was.
    """

    def __init__(self, federation: Federation, settings: RobustSettings) -> None:
        self._federation = federation
        self._settings = settings

    def clients(self) -> Sequence[str]:
        return self._federation.clients()

    def ask(self, verb: str, payload: Request[Reply], to: Sequence[str] | None = None) -> Mapping[str, Reply]:
        replies: Mapping[str, Any] = self._federation.ask(verb, payload, to)
        steps = self._steps(verb, payload)
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
        """What is done to the replies of a verb, in order."""
        chosen = self._settings
        steps: list[Step] = []
        if chosen.most_rows is not None and verb in CAPPED:
            cap, most = CAPPED[verb], chosen.most_rows
            steps.append(lambda replies: cap(request, replies, most))
        if chosen.winsorized and verb in WINSORIzED:
            bring_in = WINSORIzED[verb]
            steps.append(lambda replies: bring_in(request, replies))
        if verb == "train":
            steps += self._update_steps(request)
        return steps

    def _update_steps(self, request: Any) -> list[Step]:
        chosen = self._settings
        steps: list[Step] = []
        if chosen.clip is not None:
            longest = chosen.clip
            steps.append(lambda replies: clipped(request, replies, longest))
        if chosen.most_rows is not None:
            most = chosen.most_rows
            steps.append(lambda replies: capped_updates(replies, most))
        if chosen.trim:
            steps.append(lambda replies: trimmed_mean(replies, chosen.trim))
        if chosen.median:
            steps.append(median)
        return steps
