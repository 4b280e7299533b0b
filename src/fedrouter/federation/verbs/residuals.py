"""The verb ``residuals``: sums of scores by day, region and model, to see whether a model got worse.

What a router predicts for a region is subtracted by the server, and is the same for all queries of the region: a
prediction that differed from query to query would let a curious server tell queries apart.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from fedrouter.evaluations import Embeddings, Evaluations, Floats, Integers
from fedrouter.exact import RESOLUTION, ExactSums
from fedrouter.federation.client_view import ClientView
from fedrouter.federation.dp.mechanism import Part
from fedrouter.federation.dp.rows import NoiseTerms, NoisyRows
from fedrouter.federation.dp.sums import by_group
from fedrouter.federation.message import Message, Request
from fedrouter.federation.plausibility import MOST_ROWS, SHAPE, SPREAD, TOO_MANY
from fedrouter.federation.privacy.disclosure import row_keys
from fedrouter.federation.privacy.fingerprints import Keys
from fedrouter.federation.secagg.encoding import Vector, exact_sums, flatten, unflatten
from fedrouter.federation.verbs.verb import (
    HidesEmbeddings,
    MinimumSizes,
    NoisySums,
    NoRobust,
    SecureSum,
    Verb,
    Withheld,
)
from fedrouter.routers.kmeans import nearest_centre

SECONDS = 86_400
MOST_DAYS, MOST_REGIONS = 366, 64
LATEST = 100_000
"""The last day that may be asked about, in days since the epoch: in the year 2243."""
MOST_VARIANCE = 1e12
DEVIATIONS = 10.0
"""Standard deviations of noise by which a noisy sum may leave the range that sums have."""


@dataclass(frozen=True, eq=False)
class ResidualsRequest(Request["ResidualSums"]):
    """The regions, the models to report on, and the days."""

    centres: Annotated[Embeddings, "(K, d) float32: the centres of the regions"]
    models: Annotated[tuple[str, ...], "names of the M models, in order"]
    first: Annotated[int, "the first day, in days since the epoch (UTC)"]
    days: Annotated[int, "D, the number of days"]

    def check(self) -> None:
        self.require_array("centres", np.float32, (None, None))
        self.require(0 < len(self.centres) <= MOST_REGIONS and self.models, "needs a few regions, and models")
        self.require(type(self.first) is type(self.days) is int, "days must be whole numbers")
        self.require(0 < self.days <= MOST_DAYS and 0 <= self.first <= LATEST, "days out of range")

    @property
    def shape(self) -> tuple[int, int, int]:
        """``(D, K, M)``."""
        return self.days, len(self.centres), len(self.models)


@dataclass(frozen=True, eq=False)
class ResidualSums(Message):
    """For each day, region and model the number of rows and the sum of their scores."""

    count: Annotated[ExactSums, "(D, K, M) number of rows"]
    score: Annotated[ExactSums, "(D, K, M) sum of accuracies"]
    variance: Annotated[ExactSums, "(1,) variance of the noise on each count, and on each sum of 2 · accuracy - 1"]

    def check(self) -> None:
        for name in ("count", "score"):
            self.require_array(name, np.int64, (None, None, None, 2))
        self.require_array("variance", np.int64, (1, 2))

    def __add__(self, other: ResidualSums) -> ResidualSums:
        return ResidualSums(self.count + other.count, self.score + other.score, self.variance + other.variance)


def answer(client: ClientView, request: ResidualsRequest) -> ResidualSums:
    client.rows.require_width(request.centres.shape[1])
    rows = _dated(client.rows.of_models(request, request.models))
    centre = nearest_centre(rows.embeddings, request.centres)[rows.query]
    place = centre * len(request.models) + rows.model
    least = client.rows.control.sizes.cell if client.rows.control else 1
    day = whole_days(_days(rows), place, row_keys(rows), least)
    inside = np.flatnonzero((day >= request.first) & (day < request.first + request.days))
    size = int(np.prod(request.shape))
    cell = (day[inside] - request.first) * (size // request.days) + place[inside]
    rows, cell = client.rows.sendable(rows.take(inside), cell, size)
    count, score = (ExactSums.of(values, cell, size) for values in (np.ones(len(rows)), rows.accuracy))
    return _reply(request, count, score, 0.0)


def whole_days(day: Integers, place: Integers, keys: Keys, least: int) -> Integers:
    """The day ``(n,)`` at whose end each row is reported: its own, or the first by which its place has enough queries.

    So rows of a place that gets few of them are not lost: they wait for later ones. Which rows are reported together
    depends on earlier rows alone, so a day that is over stays as it is. -1 for rows that still wait.
    """
    found = np.full(len(day), -1, np.int64)
    for one in np.unique(place):
        mine = np.flatnonzero(place == one)
        waiting: list[int] = []
        for today in np.unique(day[mine]):
            waiting += mine[day[mine] == today].tolist()
            if len(np.unique(keys[waiting])) >= least:
                found[waiting] = today
                waiting = []
    return found


def _dated(rows: Evaluations) -> Evaluations:
    """The rows whose time is known."""
    known = np.zeros(len(rows), np.bool_) if rows.time is None else np.isfinite(rows.time)
    return rows.take(np.flatnonzero(known))


def _days(rows: Evaluations) -> Integers:
    time = np.zeros(0) if rows.time is None else rows.time
    return np.clip(np.floor(time / SECONDS), -1, 2 * LATEST).astype(np.int64)


def _reply(request: ResidualsRequest, count: ExactSums, score: ExactSums, variance: float) -> ResidualSums:
    count, score = (ExactSums(part.limbs.reshape(*request.shape, 2)) for part in (count, score))
    return ResidualSums(count, score, ExactSums.from_totals(np.array([variance])))


def noisy_parts(rows: NoisyRows, request: ResidualsRequest) -> list[Part]:
    rows.require_width(request.centres.shape[1])
    own = _dated(rows.of_models(request, request.models))
    day = _days(own) - request.first
    own, day = own.take(np.flatnonzero((day >= 0) & (day < request.days))), day[(day >= 0) & (day < request.days)]
    centre = nearest_centre(own.embeddings, request.centres)[own.query]
    _, regions, models = request.shape
    cell = (day * regions + centre) * models + own.model
    return by_group([2 * own.accuracy - 1], cell, int(np.prod(request.shape)), 1.0)


def noisy_reply(terms: NoiseTerms, request: ResidualsRequest, noisy: list[Floats]) -> ResidualSums:
    # As they are: cells that were left out for a low noisy count would make the others look better than they are.
    count, score = noisy[0], (noisy[0] + noisy[1]) / 2
    variance = max(terms.deviations[0], terms.deviations[1]) ** 2
    return _reply(request, ExactSums.from_totals(count), ExactSums.from_totals(score), min(variance, MOST_VARIANCE))


def numbers(request: ResidualsRequest) -> int:
    return 4 * int(np.prod(request.shape)) + 2


def to_vector(request: ResidualsRequest, reply: ResidualSums, clients: int) -> Vector:
    return flatten(reply.count, reply.score, reply.variance)


def from_vector(request: ResidualsRequest, vector: Vector, clients: int) -> ResidualSums:
    count, score, variance = unflatten(vector, (*request.shape, 2), (*request.shape, 2), (1, 2))
    return ResidualSums(exact_sums(count), exact_sums(score), exact_sums(variance))


def nothing(request: ResidualsRequest) -> ResidualSums:
    return from_vector(request, np.zeros(numbers(request), np.uint64), 1)


def faults(request: ResidualsRequest, reply: ResidualSums) -> str | None:
    if not reply.count.shape == reply.score.shape == request.shape:
        return SHAPE
    count, score, (variance,) = reply.count.totals(), reply.score.totals(), reply.variance.totals()
    if not 0 <= variance <= MOST_VARIANCE:
        return SPREAD
    room = DEVIATIONS * np.sqrt(variance) + RESOLUTION * np.maximum(count, 1)
    if np.abs(count).sum() > MOST_ROWS + room.sum():
        return TOO_MANY
    if not variance and (count != np.rint(count)).any():
        return SPREAD
    fits = (count >= -room) & (score >= -room) & (score <= count + room)
    return None if fits.all() else SPREAD


def most_bytes(request: ResidualsRequest) -> int:
    """32 bytes for each day, region and model, and 16."""
    return 32 * int(np.prod(request.shape)) + 16


VERB = Verb(
    name="residuals",
    request=ResidualsRequest,
    reply=ResidualSums,
    purpose="See whether a model got worse in a region, also where no member alone has enough scores to tell.",
    leaves="By day, region and model: the number of rows, and the sum of their accuracies.",
    answer=answer,
    disclosure=MinimumSizes(
        ("cell",),
        "each sum has enough different queries, and so has its difference from any sum sent before; rows of a region "
        "and model that are too few wait for those of later days",
        eased_by_masks=False,
    ),
    differential_privacy=NoisySums(
        "1 for each part, by day, region and model: the count, and accuracy scaled to [-1, 1]",
        noisy_parts,
        noisy_reply,
    ),
    secure_sum=SecureSum(numbers, to_vector, from_vector, exact=True),
    withheld=Withheld(lambda reply: not reply.count.limbs.any(), nothing),
    faults=faults,
    most_bytes=most_bytes,
    embeddings=HidesEmbeddings("sums by region do not depend on the width or length of embeddings"),
    robust=NoRobust("nothing is learned from it: an alarm is looked at by people"),
)
