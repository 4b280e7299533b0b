"""Replies that are sums, laid out as vectors of 64-bit integers that can be added without being read.

A total is read back from the sum of the clients' vectors. Counts and exact sums are integers already, so it is the
total that adding the replies gives, bit for bit. Integers wrap around at 2^64, which is what masks need; read as signed
ones, a total is right as long as it fits 63 bits, and limbs leave room for four billion values.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from fedrouter.errors import BadInput, BadMessage
from fedrouter.exact import ExactSums
from fedrouter.federation.message import Message
from fedrouter.federation.verbs.messages import (
    CellStatistics,
    CostScaleRequest,
    CostTotals,
    CostTotalsRequest,
    HeldOutErrors,
    LogCostSums,
    ModelMoments,
    MomentsRequest,
    ScoreRequest,
    Scores,
    SecondMoment,
    SecondMomentRequest,
    StatisticsRequest,
    TrainRequest,
    Update,
    ValidateRequest,
    sent_back,
)
from fedrouter.routers.features import feature_map
from fedrouter.routers.kmeans import CELL_SUMS, CellSums

Vector = npt.NDArray[np.uint64]
WEIGHT_BITS = 32
"""Rows times weight is rounded to a multiple of 2^-32: a mean weight is off by 2^-33 over a client's mean rows at most,
where float32 itself keeps a weight of 0.01 only to 2^-31."""


@dataclass(frozen=True)
class Layout:
    """How the replies to one verb become vectors ``(m,)``, and a sum of them the reply that is their total.

    ``lay(request, reply, clients)`` and ``read(request, vector, clients)``, for a sum over so many clients.
    """

    lay: Callable[[Any, Any, int], Vector]
    read: Callable[[Any, Vector, int], Message]


def _laid(*parts: Any) -> Vector:
    whole = [part.limbs if isinstance(part, ExactSums) else part for part in parts]
    return np.concatenate([np.asarray(part, np.int64).ravel() for part in whole]).view(np.uint64)


def _parts(vector: Vector, *shapes: tuple[int, ...]) -> list[npt.NDArray[np.int64]]:
    sizes = [prod(shape) for shape in shapes]
    if sum(sizes) != len(vector):
        raise BadMessage(f"a total of {len(vector)} numbers where its request has {sum(sizes)}")
    pieces = np.split(vector.view(np.int64), np.cumsum(sizes)[:-1])
    return [piece.reshape(shape) for piece, shape in zip(pieces, shapes, strict=True)]


def _exact(limbs: npt.NDArray[np.int64]) -> ExactSums:
    return ExactSums(limbs).carried()


def _lay_statistics(request: StatisticsRequest, reply: CellStatistics, clients: int) -> Vector:
    """Every cell of the table, also those that are empty or withheld: which those are stays hidden, too."""
    table = reply.table(len(request.centres), len(request.models))
    return _laid(table.count, *(getattr(table, name) for name in CELL_SUMS))


def _read_statistics(request: StatisticsRequest, vector: Vector, clients: int) -> CellStatistics:
    shape = (len(request.centres), len(request.models))
    count, *limbs = _parts(vector, shape, *[(*shape, 2)] * len(CELL_SUMS))
    return CellStatistics.of(CellSums(count, *map(_exact, limbs)))


def _lay_cost_scale(request: CostScaleRequest, reply: LogCostSums, clients: int) -> Vector:
    # The width is no sum. But n clients have the same one only if n times the sum of squares is the sum, squared.
    return _laid(reply.count, reply.total, reply.squares, reply.dimension, reply.dimension**2)


def _read_cost_scale(request: CostScaleRequest, vector: Vector, clients: int) -> LogCostSums:
    size = len(request.models)
    count, total, squares, widths, width_squares = _parts(vector, (size,), (size, 2), (size, 2), (1,), (1,))
    width = int(widths[0]) // clients
    if (width * clients, width**2 * clients) != (int(widths[0]), int(width_squares[0])):
        raise BadMessage("LogCostSums: clients embed with different widths")
    return LogCostSums(count, _exact(total), _exact(squares), width)


def _lay_train(request: TrainRequest, reply: Update, clients: int) -> Vector:
    """Weights and loss, each times the rows behind it, in fixed point."""
    values = [reply.weights[name].astype(np.float64).ravel() for name in sent_back(request)]
    weighed = reply.rows * np.concatenate([*values, np.array([reply.loss])])
    if not np.abs(weighed).max() < 2.0 ** (63 - WEIGHT_BITS) / clients:  # also catches NaN
        raise BadInput("weights times rows too large to be added in fixed point: has the training diverged?")
    return _laid(reply.rows, np.rint(np.ldexp(weighed, WEIGHT_BITS)))


def _read_train(request: TrainRequest, vector: Vector, clients: int) -> Update:
    like = sent_back(request)
    rows, *sums, loss = _parts(vector, (1,), *(array.shape for array in like.values()), (1,))
    total = int(rows[0])
    if not total:
        return Update(like, 0, 0.0)
    means = [np.ldexp(part.astype(np.float64), -WEIGHT_BITS) / total for part in (*sums, loss)]
    weights = {name: mean.astype(np.float32) for name, mean in zip(like, means[:-1], strict=True)}
    return Update(weights, total, float(means[-1][0]))


def _lay_validate(request: ValidateRequest, reply: HeldOutErrors, clients: int) -> Vector:
    return _laid(reply.rows, reply.squares)


def _read_validate(request: ValidateRequest, vector: Vector, clients: int) -> HeldOutErrors:
    rows, squares = _parts(vector, (1,), (1, 2))
    return HeldOutErrors(int(rows[0]), _exact(squares))


def _lay_cost_totals(request: CostTotalsRequest, reply: CostTotals, clients: int) -> Vector:
    return _laid(reply.observed, reply.predicted)


def _read_cost_totals(request: CostTotalsRequest, vector: Vector, clients: int) -> CostTotals:
    return CostTotals(*map(_exact, _parts(vector, *[(len(request.models), 2)] * 2)))


def _lay_second_moment(request: SecondMomentRequest, reply: SecondMoment, clients: int) -> Vector:
    return _laid(reply.count, reply.total)


def _read_second_moment(request: SecondMomentRequest, vector: Vector, clients: int) -> SecondMoment:
    count, total = _parts(vector, (1,), (len(vector) // 2, 2))  # the one length its request does not know
    return SecondMoment(int(count[0]), _exact(total))


def _lay_moments(request: MomentsRequest, reply: ModelMoments, clients: int) -> Vector:
    return _laid(reply.count, reply.gram, reply.accuracy, reply.accuracy_squares, reply.cost, reply.cost_squares)


def _read_moments(request: MomentsRequest, vector: Vector, clients: int) -> ModelMoments:
    size, width = len(request.models), feature_map(request.features).width
    target = ((size, width, 2), (size, 2))
    count, *limbs = _parts(vector, (size,), (size, width * (width + 1) // 2, 2), *target, *target)
    return ModelMoments(count, *map(_exact, limbs))


def _lay_score(request: ScoreRequest, reply: Scores, clients: int) -> Vector:
    return _laid(reply.count, reply.gram)


def _read_score(request: ScoreRequest, vector: Vector, clients: int) -> Scores:
    count, gram = _parts(vector, (1,), (len(request.families),) * 2 + (2,))
    return Scores(int(count[0]), _exact(gram))


LAYOUTS: Mapping[str, Layout] = {
    "statistics": Layout(_lay_statistics, _read_statistics),
    "cost_scale": Layout(_lay_cost_scale, _read_cost_scale),
    "train": Layout(_lay_train, _read_train),
    "validate": Layout(_lay_validate, _read_validate),
    "cost_totals": Layout(_lay_cost_totals, _read_cost_totals),
    "second_moment": Layout(_lay_second_moment, _read_second_moment),
    "moments": Layout(_lay_moments, _read_moments),
    "score": Layout(_lay_score, _read_score),
}
"""The verbs whose replies are sums. Only centroids of clusters are not."""
