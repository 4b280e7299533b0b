"""The verb ``score``: errors of several routers on a fold, to choose between families and blend them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Annotated

import numpy as np

from fedrouter.evaluations import Evaluations, Floats
from fedrouter.exact import RESOLUTION, ExactSums
from fedrouter.federation.client_view import ClientView
from fedrouter.federation.message import Message, Named, Request
from fedrouter.federation.plausibility import MOST_ROWS, SHAPE, SPREAD, TOO_MANY, is_gram, whole_number
from fedrouter.federation.privacy.disclosure import MASKED_SAY, row_keys
from fedrouter.federation.secagg.encoding import Vector, exact_sums, flatten, unflatten
from fedrouter.federation.verbs.verb import (
    ONLY_MEANS,
    HidesEmbeddings,
    MinimumSizes,
    RefusedUnderNoise,
    SecureSum,
    Verb,
    Withheld,
)
from fedrouter.pool import ModelPool
from fedrouter.routers.base import Router
from fedrouter.routers.blend import unpack_routers


@dataclass(frozen=True, eq=False)
class ScoreRequest(Request["Scores"]):
    """The routers to score on the fold that they were learned without."""

    models: Annotated[tuple[str, ...], "names of the M models, in order"]
    families: Annotated[tuple[str, ...], "family of each of the J routers"]
    arrays: Annotated[Named, "arrays by name: the routers, named by index"]

    def check(self) -> None:
        self.require(self.families and self.fold >= 0, "needs routers and a fold")

    @cached_property
    def routers(self) -> tuple[Router, ...]:
        """The routers; what they derive from their sums is derived once for all clients of a process."""
        return tuple(unpack_routers(ModelPool(self.models), self.families, self.arrays))


@dataclass(frozen=True, eq=False)
class Scores(Message):
    """Sums over the rows of a fold.

    The diagonal of ``gram`` is each router's squared error; the whole of it gives the error of any blend of them.
    """

    count: Annotated[int, "number of rows in the fold"]
    gram: Annotated[ExactSums, "(J, J) sums of products of the routers' errors in accuracy"]

    def check(self) -> None:
        self.require(self.count >= 0, "count must be at least 0")
        self.require_array("gram", np.int64, (None, None, 2))
        size = self.gram.totals()
        self.require((np.abs(size) <= self.count * (1 + RESOLUTION)).all(), "errors must not exceed their count")

    def __add__(self, other: Scores) -> Scores:
        return Scores(self.count + other.count, self.gram + other.gram)


def answer(client: ClientView, request: ScoreRequest) -> Scores:
    rows = client.rows.of_models(request, request.models, in_fold=True)
    predicted = _predicted(rows, request)
    columns = client.rows.prediction_columns(predicted, rows.accuracy)
    kept = client.rows.heard(row_keys(rows), lambda: columns, np.zeros(len(rows), np.int64), MASKED_SAY)
    rows = client.rows.sendable_together(rows.take(kept))
    errors = predicted[kept[: len(rows)]] - rows.accuracy[:, None]
    return Scores(len(rows), ExactSums.products(errors, errors))


def _predicted(rows: Evaluations, request: ScoreRequest) -> Floats:
    """Each router's accuracy of each row, ``(n, J)``; a model that it has not seen is as uncertain as can be."""
    found = np.zeros((len(rows), len(request.families)))
    for index, router in enumerate(request.routers):
        accuracy, _ = router.estimate_own(rows)
        found[:, index] = np.where(np.isnan(accuracy), 0.5, accuracy)
    return found


def numbers(request: ScoreRequest) -> int:
    return 1 + 2 * len(request.families) ** 2


def to_vector(request: ScoreRequest, reply: Scores, clients: int) -> Vector:
    return flatten(reply.count, reply.gram)


def from_vector(request: ScoreRequest, vector: Vector, clients: int) -> Scores:
    count, gram = unflatten(vector, (1,), (len(request.families),) * 2 + (2,))
    return Scores(int(count[0]), exact_sums(gram))


def nothing(request: ScoreRequest) -> Scores:
    return from_vector(request, np.zeros(numbers(request), np.uint64), 1)


def faults(request: ScoreRequest, reply: Scores) -> str | None:
    size = len(request.families)
    if reply.gram.shape != (size, size):
        return SHAPE
    gram = reply.gram.totals()
    if not np.array_equal(gram, gram.T) or not is_gram(gram[None]):
        return SPREAD
    return None if whole_number(reply.count, 0, MOST_ROWS) else TOO_MANY


def most_bytes(request: ScoreRequest) -> int:
    """16 bytes for each pair of routers."""
    return 16 * len(request.families) ** 2


VERB = Verb(
    name="score",
    request=ScoreRequest,
    reply=Scores,
    purpose="Choose between families of routers, or blend them, by cross-validation.",
    leaves="The number of rows in a fold, and sums of products of the routers' errors in accuracy on them.",
    answer=answer,
    disclosure=MinimumSizes(
        ("cell", "say"),
        "the sums have enough different queries, and so has their difference from any sent before; no query has more "
        "than 1/5 of the say in any combination of the routers' predictions, and under masks than half",
    ),
    differential_privacy=RefusedUnderNoise(ONLY_MEANS),
    secure_sum=SecureSum(numbers, to_vector, from_vector, exact=True),
    withheld=Withheld(lambda reply: not reply.count, nothing),
    faults=faults,
    most_bytes=most_bytes,
    embeddings=HidesEmbeddings("sums of errors"),
)
