"""The vote on a candidate router: asked of all clients after learning, and what follows from their total."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce
from math import sqrt
from operator import add
from typing import Any

from fedrouter.federation.federation import Federation
from fedrouter.federation.verbs.vote import CONFIDENCE, LEAST_JUDGED, Ballot, VoteRequest
from fedrouter.routers.base import Router

BETTER, WORSE, UNDECIDED = "better", "worse", "undecided"


@dataclass(frozen=True)
class FromOthers:
    """What federating gives to the whole: each member's router without its own rows, which has not seen its log,
    instead of its own best single model.

    ``changes`` holds, for each λ, the mean change of accuracy and of dollars a query over all members' queries, each
    with half of its 95% interval.
    """

    queries: int
    changes: tuple[Mapping[str, float], ...]

    def to_json(self) -> dict[str, Any]:
        return {"queries": self.queries, "changes": [dict(one) for one in self.changes]}

    @classmethod
    def of(cls, request: VoteRequest, total: Ballot) -> FromOthers:
        size = total.compared
        changes = []
        for place, tradeoff in enumerate(request.tradeoffs):
            one = {"tradeoff": tradeoff}
            for name, sums in (("accuracy", total.got_accuracy), ("cost", total.got_cost)):
                mean, square = (float(value) / size for value in sums.totals()[place])
                one[name] = mean
                one[f"{name}_error"] = CONFIDENCE * sqrt(max(square - mean**2, 0.0) / (size - 1))
            changes.append(one)
        return cls(size, tuple(changes))


@dataclass(frozen=True)
class VoteResult:
    """The total of all ballots.

    Parameters
    ----------
    queries : number of queries on which the candidate was compared
    low, high : 95% interval of the mean change of utility
    tradeoffs : values of λ
    accuracy, cost : mean change of accuracy and of dollars a query, at each λ
    objected : whether a client is worse off by more than it tolerates
    from_others : what the other members' rows give, on the logs of all members that can take their own out
    """

    queries: int
    low: float
    high: float
    tradeoffs: tuple[float, ...]
    accuracy: tuple[float, ...]
    cost: tuple[float, ...]
    objected: bool
    from_others: FromOthers | None = None

    @property
    def outcome(self) -> str:
        """The candidate is better if the interval clears zero and nobody objects; in between nothing is decided."""
        if self.objected or (self.high < 0 and self.queries >= LEAST_JUDGED):
            return WORSE
        return BETTER if self.low > 0 and self.queries >= LEAST_JUDGED else UNDECIDED

    @property
    def why(self) -> str:
        if self.objected:
            return "a client is worse off by more than it tolerates"
        if self.queries < LEAST_JUDGED:
            return f"compared on {self.queries} queries only"
        found = f"utility changes by {self.low:+.4f} to {self.high:+.4f} (95% interval, {self.queries:,} queries)"
        return f"{found}, neither clearly better nor worse" if self.outcome == UNDECIDED else found

    def to_json(self) -> dict[str, Any]:
        known = self.queries >= 2
        return {
            "queries": self.queries,
            "utility": [self.low, self.high] if known else None,
            "objected": self.objected,
            "from_others": self.from_others.to_json() if self.from_others else None,
            "changes": [
                {"tradeoff": tradeoff, "accuracy": accuracy, "cost": cost}
                for tradeoff, accuracy, cost in zip(self.tradeoffs, self.accuracy, self.cost, strict=True)
            ],
        }

    @classmethod
    def of(cls, request: VoteRequest, total: Ballot) -> VoteResult:
        low, high = total.interval()
        accuracy, cost = (
            tuple(float(value) for value in part.totals() / max(total.count, 1))
            for part in (total.accuracy, total.cost)
        )
        others = FromOthers.of(request, total) if total.compared >= LEAST_JUDGED else None
        return cls(total.count, low, high, request.tradeoffs, accuracy, cost, total.objection > 0, others)


def ask_vote(federation: Federation, router: Router) -> VoteResult | None:
    """Ask every client to vote on a router; None if nobody answers."""
    request = VoteRequest.of(router)
    replies = federation.ask("vote", request)
    return VoteResult.of(request, reduce(add, replies.values())) if replies else None
