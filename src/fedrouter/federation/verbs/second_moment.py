"""The verb ``second_moment``: the sum of ``x x'`` over a client's queries, for principal directions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from fedrouter.evaluations import blocks
from fedrouter.exact import ExactSums
from fedrouter.federation.client_view import ClientView
from fedrouter.federation.message import Message, Request
from fedrouter.federation.plausibility import MOST_ROWS, MOST_WIDTH, SHAPE, SLACK, SPREAD, TOO_MANY, whole_number
from fedrouter.federation.privacy.disclosure import query_keys
from fedrouter.federation.secagg.encoding import Vector, exact_sums, flatten, unflatten
from fedrouter.federation.verbs.verb import (
    ONLY_MEANS,
    MinimumSizes,
    RefusedUnderNoise,
    SecureSum,
    ShowsEmbeddings,
    Verb,
    Withheld,
)
from fedrouter.routers.linear import symmetric


@dataclass(frozen=True, eq=False)
class SecondMomentRequest(Request["SecondMoment"]):
    """It has no fields of its own."""


@dataclass(frozen=True, eq=False)
class SecondMoment(Message):
    """The second moment of the client's embeddings, not centered."""

    count: Annotated[int, "number of queries"]
    total: Annotated[ExactSums, "(d(d+1)/2,) upper triangle of the sum of x x'; (0,) if it is withheld"]

    def check(self) -> None:
        self.require(self.count >= 0, "count must be at least 0")
        self.require_array("total", np.int64, (None, 2))

    def __add__(self, other: SecondMoment) -> SecondMoment:
        if self.withheld or other.withheld:
            return other if self.withheld else self
        self.require(self.total.shape == other.total.shape, "clients embed with different widths")
        return SecondMoment(self.count + other.count, self.total + other.total)

    @property
    def withheld(self) -> bool:
        """Whether there is nothing in it: the request does not name d, so the sums have no length then."""
        return not self.total.shape[0]


def answer(client: ClientView, request: SecondMomentRequest) -> SecondMoment:
    queries = client.rows.queries(request)
    keys = query_keys(queries)
    kept = client.rows.differing_together(keys, queries)
    queries, keys = queries[kept], keys[kept]
    kept = client.rows.heard(keys, lambda: queries.astype(np.float64), np.zeros(len(keys), np.int64))
    queries, keys = queries[kept], keys[kept]
    sent = client.rows.may_multiply(keys, np.zeros(len(keys), np.int64), 1, client.dimension, "second moments")
    points = queries if sent[0] else queries[:0]
    if not len(points) and not client.rows.masked:
        return SecondMoment(0, ExactSums.zeros((0,)))
    total = ExactSums.zeros((client.dimension, client.dimension))
    for _, some in blocks(points):
        wide = some.astype(np.float64)
        total.limbs[:] += ExactSums.products(wide, wide).limbs
    return SecondMoment(len(points), total.carried()[np.triu_indices(client.dimension)])


def numbers(request: SecondMomentRequest) -> int:
    return 1 + MOST_WIDTH * (MOST_WIDTH + 1)  # the request does not say how wide embeddings are


def to_vector(request: SecondMomentRequest, reply: SecondMoment, clients: int) -> Vector:
    return flatten(reply.count, reply.total)


def from_vector(request: SecondMomentRequest, vector: Vector, clients: int) -> SecondMoment:
    count, total = unflatten(vector, (1,), (len(vector) // 2, 2))
    return SecondMoment(int(count[0]), exact_sums(total))


def nothing(request: SecondMomentRequest) -> SecondMoment:
    return SecondMoment(0, ExactSums.zeros((0,)))


def faults(request: SecondMomentRequest, reply: SecondMoment) -> str | None:
    """No two directions may be more than fully correlated; checking the whole matrix would be expensive."""
    if not whole_number(reply.count, 0, MOST_ROWS):
        return TOO_MANY
    if reply.withheld:
        return SHAPE if reply.count else None
    width = _side(reply)
    if width * (width + 1) // 2 != reply.total.shape[0] or width > MOST_WIDTH:
        return SHAPE
    full = symmetric(reply.total.totals())
    squares = np.diagonal(full)
    if (squares < 0).any() or (not reply.count and full.any()):
        return SPREAD
    return SPREAD if (full**2 > np.outer(squares, squares) * (1 + SLACK) + SLACK).any() else None


def most_bytes(request: SecondMomentRequest) -> int:
    """8d(d + 1) bytes; at most 8,192 dimensions, because the request does not name d."""
    return 16 * MOST_WIDTH * (MOST_WIDTH + 1) // 2


def _side(reply: SecondMoment) -> int:
    """The width d whose upper triangle the reply holds."""
    return int((np.sqrt(8 * reply.total.shape[0] + 1) - 1) / 2)


def _width(reply: SecondMoment) -> int | None:
    return reply.total.shape[0] or None


def _length(reply: SecondMoment) -> float | None:
    """Root mean square length of the embeddings."""
    if not reply.count:
        return None
    diagonal = np.flatnonzero(np.equal(*np.triu_indices(_side(reply))))
    return float(np.sqrt(max(0.0, reply.total.totals()[diagonal].sum()) / reply.count))


VERB = Verb(
    name="second_moment",
    request=SecondMomentRequest,
    reply=SecondMoment,
    purpose="Find the directions in which the clients' queries differ most, as features of linear routers.",
    leaves="The number of queries, and the sum of products of their embeddings' coordinates.",
    answer=answer,
    disclosure=MinimumSizes(
        ("say",),
        "no query has more than 1/5 of the say in any combination of coordinates, and enough different queries for "
        "each coordinate are in the difference from any sum sent before (under secure sums: enough queries in total)",
    ),
    differential_privacy=RefusedUnderNoise(ONLY_MEANS),
    secure_sum=SecureSum(numbers, to_vector, from_vector, exact=True),
    withheld=Withheld(lambda reply: reply.withheld, nothing),
    faults=faults,
    most_bytes=most_bytes,
    embeddings=ShowsEmbeddings(_width, _length),
)
