"""The verb ``vote``: what a candidate router would change for a client, before gateways may serve it.

Each client compares the candidate with the router that it has in service, or with its own best single model if there is
none, on its own log. A client that is worse off objects. An objection is a random number and none is zero, so that the
total shows whether anybody objects, but neither who nor how many, and nobody can cancel the objection of another.

A client that can subtract its own sums from the candidate also says what the others' rows give it: how their router,
which has not seen its log, does there, instead of its own best single model. Nobody else could say that of it, and
nobody sees it of a single client; the total is what federating is worth to the whole.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass, replace
from math import inf, isfinite, sqrt
from typing import Annotated

import numpy as np

from fedrouter.errors import BadMessage
from fedrouter.evaluations import Evaluations, Floats
from fedrouter.exact import RESOLUTION, ExactSums
from fedrouter.federation.client_view import ClientView
from fedrouter.federation.gain import MOST_DOLLARS, MOST_WEIGHT, TRADEOFFS, Gain, gain
from fedrouter.federation.message import Message, Named, Request
from fedrouter.federation.plausibility import MOST_ROWS, SHAPE, SPREAD, TOO_MANY, whole_number
from fedrouter.federation.privacy.disclosure import row_keys
from fedrouter.federation.privacy.earlier_votes import EarlierVotes
from fedrouter.federation.privacy.fingerprints import Keys
from fedrouter.federation.secagg.encoding import Vector, exact_sums, flatten, unflatten
from fedrouter.federation.verbs.verb import (
    HidesEmbeddings,
    MinimumSizes,
    SecureSum,
    Verb,
    Withheld,
)
from fedrouter.pool import ModelPool
from fedrouter.routers.base import Router
from fedrouter.routers.registry import router_class

MOST_ROUTER_BYTES = 1 << 28
"""The largest candidate that a client looks at."""
MOST_TRADEOFFS = 16
LEAST_JUDGED = 20
"""A client with fewer queries does not object: it could not tell."""
CONFIDENCE = 1.96
"""Standard errors on either side of a mean: a 95% interval."""
SURE = 3.0
"""Standard errors by which a client must be worse off to object: with a 95% interval, one of ten clients would object
to every fifth router without a reason."""
OBJECTIONS = 1 << 40
"""An objection is a random number below this; the sum of those of a million clients fits 63 bits."""
MOST_GAIN = 2 * (1 + 2 * MOST_WEIGHT)
"""No query can change utility or accuracy by more."""


@dataclass(frozen=True, eq=False)
class VoteRequest(Request["Ballot"]):
    """The candidate, and the values of λ at which it is compared."""

    models: Annotated[tuple[str, ...], "names of the M models, in order"]
    family: Annotated[str, "family of the candidate"]
    arrays: Annotated[Named, "arrays by name: the candidate"]
    tradeoffs: Annotated[tuple[float, ...], "the T values of λ, in accuracy per dollar"]

    def check(self) -> None:
        fits = 0 < len(self.tradeoffs) <= MOST_TRADEOFFS
        self.require(fits and all(isfinite(one) and one >= 0 for one in self.tradeoffs), "needs values of λ")
        size = sum(array.nbytes for array in self.arrays.values())
        self.require(size <= MOST_ROUTER_BYTES, f"a router of more than {MOST_ROUTER_BYTES} bytes")

    @classmethod
    def of(cls, router: Router) -> VoteRequest:
        return cls(router.pool.names, router.family, router.arrays(), TRADEOFFS)

    def router(self, pool: ModelPool | None = None) -> Router:
        """The candidate; ``pool`` is that of its models, if more than their names is known."""
        kind = router_class(self.family)
        if kind.composite:
            raise BadMessage(f"VoteRequest: a {self.family} router is one client's own")
        return kind.from_arrays(pool or ModelPool(self.models), self.arrays)


@dataclass(frozen=True, eq=False)
class Ballot(Message):
    """Sums over the client's queries of what the candidate would change, and whether the client objects."""

    count: Annotated[int, "number of queries compared"]
    gain: Annotated[ExactSums, "(2,) sums of the change of utility and of its square"]
    accuracy: Annotated[ExactSums, "(T,) sums of the change of accuracy"]
    cost: Annotated[ExactSums, "(T,) sums of the change of cost, in dollars"]
    objection: Annotated[int, "0, or a random number if the client is worse off than it tolerates"]
    compared: Annotated[int, "number of queries on which the router without the client's own rows was compared"]
    got_accuracy: Annotated[ExactSums, "(T, 2) sums of the change of accuracy by that router, and of its square"]
    got_cost: Annotated[ExactSums, "(T, 2) the same for cost, in dollars"]

    def check(self) -> None:
        self.require(self.count >= 0, "count must be at least 0")
        self.require(self.objection >= 0, "objection must be at least 0")
        self.require_array("gain", np.int64, (2, 2))
        self.require(self.compared >= 0, "compared must be at least 0")
        for name in ("accuracy", "cost"):
            self.require_array(name, np.int64, (None, 2))
            self.require_array(f"got_{name}", np.int64, (None, 2, 2))

    def __add__(self, other: Ballot) -> Ballot:
        return Ballot(
            self.count + other.count,
            self.gain + other.gain,
            self.accuracy + other.accuracy,
            self.cost + other.cost,
            self.objection + other.objection,
            self.compared + other.compared,
            self.got_accuracy + other.got_accuracy,
            self.got_cost + other.got_cost,
        )

    def interval(self, errors: float = CONFIDENCE) -> tuple[float, float]:
        """The mean change of utility, less and plus that many standard errors; the whole line for fewer than two."""
        if self.count < 2:
            return -inf, inf
        mean, square = (float(total) / self.count for total in self.gain.totals())
        half = errors * sqrt(max(square - mean**2, 0.0) / (self.count - 1))
        return mean - half, mean + half


def answer(client: ClientView, request: VoteRequest) -> Ballot:
    rows = client.rows.of_models(request.models)
    router, other = request.router(), client.in_service() if client.in_service else None
    if other is not None and other.dimension != router.dimension:
        other = None
    client.rows.require_width(router.dimension)
    rows = client.rows.sendable_apart(rows, "votes")
    found = gain(rows, router, other, request.tradeoffs) if len(rows) else None
    heard = _heard(client, rows, found)
    if heard is None:
        return _abstention(request)
    ballot = _ballot(request, heard, client.tolerance)
    others = client.without_own(router) if client.without_own else None
    got = gain(rows, others, None, request.tradeoffs) if others else None
    got = _heard(client, rows, got, heard.say) if got else None
    if got is None:
        return ballot
    accuracy, cost = (_sums(np.hstack([part, part**2])) for part in (got.accuracy, got.cost))
    return replace(ballot, compared=len(got), got_accuracy=_paired(accuracy), got_cost=_paired(cost))


def _paired(sums: ExactSums) -> ExactSums:
    """Sums ``(2T,)`` of values and then of their squares, as ``(T, 2)``."""
    return ExactSums(sums.limbs.reshape(2, -1, 2).transpose(1, 0, 2).copy())


def _heard(client: ClientView, rows: Evaluations, found: Gain | None, beside: Floats | None = None) -> Gain | None:
    """The gain at those values of λ at which no query has too much say, as if nothing changed at the others.

    Nor may it have too much in any combination with an earlier vote: the coordinator delivers the router in service, so
    it could let two votes differ by one query. Queries are not left out: two votes that leave out different ones would
    differ by those. The rule holds under masks, too: a small client loses nothing by saying nothing, unlike in
    learning. ``beside`` ``(E, k)`` are the weights in what is said along with it. None if nothing is left to say.
    """
    votes = EarlierVotes(client.memory, rows)
    kept = np.ones(0 if found is None else found.say.shape[1], np.bool_)
    while found is not None and kept.any():
        say = np.where(kept, found.say, 0.0)
        columns = say if beside is None else np.hstack([say, beside])
        if all(_evenly(client, keys, both) for keys, both in votes.with_each(columns)):
            if client.rows.control:
                votes.remember(columns)
            return found.where(kept)
        few = np.where(kept, (say != 0).sum(axis=0), len(rows) + 1)
        kept[few.argmin()] = False
    _evenly(client, row_keys(rows)[:0], np.zeros((0, 1)))
    return None


def _evenly(client: ClientView, keys: Keys, columns: Floats) -> bool:
    """Whether no query has too much say in the columns."""
    heard = client.rows.heard(keys, lambda: columns, np.zeros(len(keys), np.int64), under_masks=0.0)
    return len(heard) == len(keys)


def _ballot(request: VoteRequest, found: Gain, tolerance: float) -> Ballot:
    utility = found.utility.mean(axis=1)
    total = _sums(np.stack([utility, utility**2], axis=1))
    accuracy, cost = _sums(found.accuracy), _sums(found.cost)
    ballot = replace(_abstention(request), count=len(found), gain=total, accuracy=accuracy, cost=cost)
    worse = len(found) >= LEAST_JUDGED and ballot.interval(SURE)[1] < -tolerance
    return replace(ballot, objection=1 + secrets.randbelow(OBJECTIONS - 1)) if worse else ballot


def _sums(values: Floats) -> ExactSums:
    """Exact sums ``(k,)`` of the columns of values ``(n, k)``."""
    return ExactSums.of(values.ravel(), np.tile(np.arange(values.shape[1]), len(values)), values.shape[1])


def _abstention(request: VoteRequest) -> Ballot:
    size = len(request.tradeoffs)
    both, paired = ExactSums.zeros((size,)), ExactSums.zeros((size, 2))
    return Ballot(0, ExactSums.zeros((2,)), both, both, 0, 0, paired, paired)


def numbers(request: VoteRequest) -> int:
    return 3 + 4 + 12 * len(request.tradeoffs)


def to_vector(request: VoteRequest, reply: Ballot, clients: int) -> Vector:
    got = reply.compared, reply.got_accuracy, reply.got_cost
    return flatten(reply.count, reply.gain, reply.accuracy, reply.cost, reply.objection, *got)


def from_vector(request: VoteRequest, vector: Vector, clients: int) -> Ballot:
    size = len(request.tradeoffs)
    shapes = (1,), (2, 2), (size, 2), (size, 2), (1,), (1,), (size, 2, 2), (size, 2, 2)
    count, total, accuracy, cost, objection, compared, got_accuracy, got_cost = unflatten(vector, *shapes)
    return Ballot(
        int(count[0]),
        exact_sums(total),
        exact_sums(accuracy),
        exact_sums(cost),
        int(objection[0]),
        int(compared[0]),
        exact_sums(got_accuracy),
        exact_sums(got_cost),
    )


def nothing(request: VoteRequest) -> Ballot:
    return from_vector(request, np.zeros(numbers(request), np.uint64), 1)


def faults(request: VoteRequest, reply: Ballot) -> str | None:
    size = len(request.tradeoffs)
    if not reply.accuracy.shape == reply.cost.shape == (size,):
        return SHAPE
    if not reply.got_accuracy.shape == reply.got_cost.shape == (size, 2):
        return SHAPE
    if not whole_number(reply.count, 0, MOST_ROWS) or not whole_number(reply.compared, 0, reply.count):
        return TOO_MANY
    (total, squares), slack = reply.gain.totals(), reply.count * (MOST_GAIN + 1) * RESOLUTION
    most = MOST_GAIN * reply.count + slack
    if abs(total) > most or not total**2 <= (reply.count * squares + most * slack) * (1 + 1e-9):
        return SPREAD
    if squares > MOST_GAIN * most or np.abs(reply.accuracy.totals()).max() > most:
        return SPREAD
    if np.abs(reply.cost.totals()).max() > MOST_DOLLARS * most:
        return SPREAD
    for sums, each in ((reply.got_accuracy, MOST_GAIN), (reply.got_cost, MOST_GAIN * MOST_DOLLARS)):
        got, squares = sums.totals().T
        room = reply.compared * each * (1 + RESOLUTION) + slack * each
        if (np.abs(got) > room).any() or (squares < 0).any() or (squares > each * room).any():
            return SPREAD
    return None if whole_number(reply.objection, 0, 2**62) else SPREAD


def most_bytes(request: VoteRequest) -> int:
    """32 bytes, and 96 for each value of λ."""
    return 32 + 96 * len(request.tradeoffs)


VERB = Verb(
    name="vote",
    request=VoteRequest,
    reply=Ballot,
    purpose="Let the clients judge a new router on their own logs before gateways may serve it.",
    leaves="The number of queries compared, sums of what the router would change in utility, accuracy and cost, and "
    "whether the client is worse off than it tolerates; and sums of what the router without the client's own rows "
    "changes.",
    answer=answer,
    disclosure=MinimumSizes(
        ("cell", "say"),
        "the sums have enough different queries, and so has their difference from those of any vote before; at no "
        "value of λ has a query more than 1/5 of the say in any combination of them and of one vote before, also under "
        "masks",
        eased_by_masks=False,
    ),
    secure_sum=SecureSum(numbers, to_vector, from_vector, exact=True),
    withheld=Withheld(lambda reply: not reply.count, nothing),
    faults=faults,
    most_bytes=most_bytes,
    embeddings=HidesEmbeddings("sums of changes"),
)
