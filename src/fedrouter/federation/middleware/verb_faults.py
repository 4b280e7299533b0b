"""Verb by verb, what is wrong with a reply: shapes its request does not have, and sums that no evaluations have.

Counts, sums and sums of squares of values within known bounds hold each other in narrow limits: Cauchy-Schwarz from
below, Bhatia-Davis from above, and for dollars and their logarithms the inequality of the means.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from fedrouter.evaluations import MOST_COST, Floats
from fedrouter.exact import RESOLUTION
from fedrouter.federation.client import MOST_RELATIVE_COST
from fedrouter.federation.verbs.messages import (
    CellStatistics,
    Centroids,
    ClusterRequest,
    CostScaleRequest,
    CostTotals,
    CostTotalsRequest,
    HeldOutErrors,
    Hello,
    HelloRequest,
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
from fedrouter.routers.linear import symmetric
from fedrouter.routers.mlp import LEAST_COST

MOST_ROWS = 100_000_000
"""Evaluations one client may claim to have."""
MOST_WIDTH = 8192
"""Of embeddings: wider ones no encoder in use makes, and the server would allocate by it."""
MOST_CENTRES = 256
"""A client that has sent its centroids before sends the same again, even if fewer are asked for now."""
MOST_WORDS = 65_536
"""Bytes of names in a hello."""
MOST_DOLLARS = 1_000.0
"""What one request may cost in the mean; a single row may be as dear as evaluations allow."""
MOST_STEP = 10.0
"""Times the learning rate that a weight may move in one step of AdamW; with its usual constants it cannot be 7."""
LOGS = (float(np.log(LEAST_COST)), float(np.log(MOST_COST)))
SLACK = 1e-6
"""A row's worth of rounding."""

Fault = Callable[[Any, Any], str | None]

TOO_MANY = "more rows than a client can have"
SHAPE = "shapes that do not fit the request"
SPREAD = "counts, sums and squares that no values have"
COSTS = "costs beyond what is plausible"


def most_array_bytes(request: Any) -> int:
    """Bytes of the arrays, or else of the words, of the largest reply that fits the request."""
    match request:
        case HelloRequest():
            return MOST_WORDS
        case ClusterRequest():
            return max(request.clusters, MOST_CENTRES) * (4 * MOST_WIDTH + 8)
        case StatisticsRequest():
            return len(request.centres) * len(request.models) * (8 + 8 + 5 * 16)
        case CostScaleRequest():
            return len(request.models) * (8 + 2 * 16)
        case TrainRequest():
            return sum(array.nbytes for array in sent_back(request).values())
        case CostTotalsRequest():
            return len(request.models) * 2 * 16
        case SecondMomentRequest():
            return 16 * MOST_WIDTH * (MOST_WIDTH + 1) // 2
        case MomentsRequest():
            width = feature_map(request.features).width
            return len(request.models) * (8 + 16 * (width * (width + 1) // 2 + 2 * width + 2))
        case ScoreRequest():
            return 16 * len(request.families) ** 2
        case ValidateRequest():
            return 16
    return 2**63


def hello(request: HelloRequest, reply: Hello) -> str | None:
    return None if reply.dimension <= MOST_WIDTH else SHAPE


def cluster(request: ClusterRequest, reply: Centroids) -> str | None:
    if len(reply.centres) > max(request.clusters, MOST_CENTRES) or reply.centres.shape[1] > MOST_WIDTH:
        return SHAPE
    return _rows(reply.sizes)


def statistics(request: StatisticsRequest, reply: CellStatistics) -> str | None:
    if len(reply.cell) and reply.cell[-1] >= len(request.centres) * len(request.models):
        return SHAPE
    count, logs = reply.count, reply.log_cost.totals()
    return (
        _rows(count)
        or _spread(count, reply.accuracy.totals(), reply.accuracy_squares.totals(), 0.0, 1.0)
        or _spread(count, logs, reply.log_cost_squares.totals(), *LOGS)
        or _dollars(count, reply.cost.totals(), logs)
    )


def cost_scale(request: CostScaleRequest, reply: LogCostSums) -> str | None:
    if len(reply.count) != len(request.models) or not _whole(reply.dimension, 1, MOST_WIDTH):
        return SHAPE
    return _rows(reply.count) or _spread(reply.count, reply.total.totals(), reply.squares.totals(), *LOGS)


def train(request: TrainRequest, reply: Update) -> str | None:
    """AdamW divides a gradient by its size, so the number of steps bounds how far any weight can go."""
    sent = sent_back(request)
    if {name: array.shape for name, array in reply.weights.items()} != {n: a.shape for n, a in sent.items()}:
        return SHAPE
    if not _whole(reply.rows, 0, MOST_ROWS):
        return TOO_MANY
    if not isinstance(reply.loss, int | float) or reply.loss < 0:
        return "a loss below zero"
    steps = request.epochs * -(-reply.rows // request.batch_size)
    for name, array in reply.weights.items():
        size = np.abs(sent[name]).max(initial=0.0)
        furthest = steps * request.learning_rate * (MOST_STEP + request.weight_decay * size)
        if (np.abs(array - sent[name].astype(np.float64)) > furthest + SLACK * size).any():
            return "weights moved further than its steps could"
    return None


def validate(request: ValidateRequest, reply: HeldOutErrors) -> str | None:
    return None if _whole(reply.rows, 0, MOST_ROWS) else TOO_MANY


def cost_totals(request: CostTotalsRequest, reply: CostTotals) -> str | None:
    if not reply.observed.shape == reply.predicted.shape == (len(request.models),):
        return SHAPE
    observed, predicted = reply.observed.totals(), reply.predicted.totals()
    if max(observed.max(initial=0.0), predicted.max(initial=0.0)) > MOST_ROWS * MOST_DOLLARS:
        return COSTS
    return SPREAD if ((observed > 0) & (predicted <= 0)).any() else None


def second_moment(request: SecondMomentRequest, reply: SecondMoment) -> str | None:
    """Every two directions must be as correlated as two can be; the whole matrix would be dear to check."""
    if not _whole(reply.count, 0, MOST_ROWS):
        return TOO_MANY
    length = reply.total.shape[0]
    width = int((np.sqrt(8 * length + 1) - 1) / 2)
    if width * (width + 1) // 2 != length or width > MOST_WIDTH:
        return SHAPE
    full = symmetric(reply.total.totals())
    squares = np.diagonal(full)
    if (squares < 0).any() or (not reply.count and full.any()):
        return SPREAD
    return SPREAD if (full**2 > np.outer(squares, squares) * (1 + SLACK) + SLACK).any() else None


def moments(request: MomentsRequest, reply: ModelMoments) -> str | None:
    """Features with accuracy or cost beside them have a Gram matrix, and none has an eigenvalue below zero."""
    models, width = len(request.models), feature_map(request.features).width
    if (
        len(reply.count) != models
        or reply.gram.shape != (models, width * (width + 1) // 2)
        or not reply.accuracy.shape == reply.cost.shape == (models, width)
    ):
        return SHAPE
    gram = symmetric(reply.gram.totals())
    if not np.array_equal(gram[:, 0, 0], reply.count):  # the first feature is the constant 1
        return SPREAD
    parts = ((reply.accuracy, reply.accuracy_squares, 1.0), (reply.cost, reply.cost_squares, MOST_RELATIVE_COST))
    found = _rows(reply.count)
    for product, squares, most in parts:
        found = found or _spread(reply.count, product.totals()[:, 0], squares.totals(), 0.0, most)
        # Room because a target is rounded more coarsely in products than in its own squares.
        room = squares.totals() * (1 + SLACK) + SLACK * reply.count
        if not found and not _is_gram(_bordered(gram, product.totals(), room)):
            found = SPREAD
    return found


def score(request: ScoreRequest, reply: Scores) -> str | None:
    size = len(request.families)
    if reply.gram.shape != (size, size):
        return SHAPE
    gram = reply.gram.totals()
    if not np.array_equal(gram, gram.T) or not _is_gram(gram[None]):
        return SPREAD
    return None if _whole(reply.count, 0, MOST_ROWS) else TOO_MANY


def _whole(number: object, least: int, most: int) -> bool:
    """Whether this is a whole number within limits; JSON may have brought anything."""
    return isinstance(number, int) and not isinstance(number, bool) and least <= number <= most


def _rows(count: Any) -> str | None:
    # As floats: integers might overflow on the way to a sum that looks small.
    return TOO_MANY if count.astype(np.float64).sum() > MOST_ROWS else None


def _spread(count: Any, total: Floats, squares: Floats, low: float, high: float) -> str | None:
    """Counts, sums and sums of squares of values from ``low`` to ``high``, all of one shape."""
    room = SLACK * count * max(1.0, abs(low), abs(high))
    fits = (
        (total >= low * count - room)
        & (total <= high * count + room)
        & (total**2 <= count * (squares + room))
        & (squares <= (low + high) * total - low * high * count + room)
    )
    return None if fits.all() else SPREAD


def _dollars(count: Any, cost: Floats, logs: Floats) -> str | None:
    """A mean of dollars lies within what is plausible, and never below the geometric mean."""
    if (cost > MOST_DOLLARS * count).any():
        return COSTS
    geometric = np.exp(logs / count)
    least = (geometric - LEAST_COST) * count * (1 - SLACK) - (SLACK * LEAST_COST + RESOLUTION) * count
    return SPREAD if (cost < least).any() else None


def _bordered(gram: Floats, product: Floats, squares: Floats) -> Floats:
    """``(M, r + 1, r + 1)``: a target's products beside the features'."""
    column = np.concatenate([product, squares[:, None]], axis=1)
    return np.concatenate([np.concatenate([gram, product[:, None, :]], axis=1), column[:, :, None]], axis=2)


def _is_gram(matrices: Floats) -> bool:
    """Whether matrices ``(m, r, r)`` have no eigenvalue below zero, but for rounding; scaled to a diagonal of ones."""
    squares = np.diagonal(matrices, axis1=1, axis2=2)
    if (squares < 0).any():
        return False
    size = np.sqrt(np.maximum(squares, 1e-12))
    scaled = matrices / (size[:, :, None] * size[:, None, :])
    return bool((np.linalg.eigvalsh(scaled).min(axis=1) >= -SLACK).all())


FAULTS: Mapping[str, Fault] = {
    "hello": hello,
    "cluster": cluster,
    "statistics": statistics,
    "cost_scale": cost_scale,
    "train": train,
    "validate": validate,
    "cost_totals": cost_totals,
    "second_moment": second_moment,
    "moments": moments,
    "score": score,
}
