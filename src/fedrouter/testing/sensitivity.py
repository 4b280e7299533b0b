"""How far one evaluation moves the answer to each verb, measured on neighboring logs with adversarial requests.

A request is adversarial if it turns rounding into something large: a network whose logit is a huge multiple of a
difference that is zero but for rounding, centres that are equally far from every query but for rounding. Whether a
prediction is then 0 or 1 hangs on the order in which BLAS adds up, which it chooses by the number of rows. So logs of
many sizes are compared with the same logs with one row more: first, last, or in the middle.

:func:`measure` needs a case for every verb that reads rows; it raises for a verb that has none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fedrouter.evaluations import Evaluations
from fedrouter.federation.client import Client
from fedrouter.federation.dp.accountant import PrivacyAccountant
from fedrouter.federation.dp.clusters import cluster_parts
from fedrouter.federation.dp.mechanism import Part, clipped
from fedrouter.federation.dp.rows import VALIDATION_BITS, NoisyRows
from fedrouter.federation.message import Request
from fedrouter.federation.privacy.disclosure import query_keys
from fedrouter.federation.privacy.memory import ShortMemory
from fedrouter.federation.privacy.policy import OPEN, DifferentialPrivacy
from fedrouter.federation.privacy.rows import FOLDS
from fedrouter.federation.verbs.cost_scale import CostScaleRequest
from fedrouter.federation.verbs.cost_totals import CostTotalsRequest
from fedrouter.federation.verbs.moments import MomentsRequest
from fedrouter.federation.verbs.registry import VERBS
from fedrouter.federation.verbs.residuals import ResidualsRequest
from fedrouter.federation.verbs.score import ScoreRequest
from fedrouter.federation.verbs.second_moment import SecondMomentRequest
from fedrouter.federation.verbs.statistics import StatisticsRequest
from fedrouter.federation.verbs.train import TrainRequest
from fedrouter.federation.verbs.validate import ValidateRequest
from fedrouter.federation.verbs.verb import NoisySums, NoNoiseNeeded, RefusedUnderNoise
from fedrouter.pool import ModelPool
from fedrouter.routers.blend import pack_routers
from fedrouter.routers.mf import MFRouter
from fedrouter.routers.mlp import HEADS, PROJECTION, CostScale, Weights

KERNEL_BOUNDARIES = (1, 2, 3, 4, 7, 8, 11, 12, 15, 16, 18, 24, 31, 32, 47, 48, 63, 64, 96, 127, 128, 150, 256, 600)
"""Numbers of rows at which one more makes BLAS change kernels: multiples of the widths of its kernels, and where
OpenBLAS stops using those for small matrices (1,200 results: 150 rows with the 8 columns used here, 600 with 2)."""
WIDTH = 96
MODELS = ("small", "large")
HUGE = np.float32(1e12)
TINY = 2e-16
HELD_OUT = 0.9
QUIET = DifferentialPrivacy(1e15, multiplier=1e-6, rows=65_536)
"""So little noise that an answer shows its sum."""
ADAM_EPSILON = 1e-8
CLIP_NORM, LEARNING_RATE = 1e-3, 0.05


@dataclass(frozen=True)
class Movement:
    """How far one evaluation moved a part of an answer at most, and how far it may, both in the l2 norm."""

    verb: str
    part: str
    stated: float
    measured: float

    @property
    def holds(self) -> bool:
        return self.measured <= self.stated * (1 + 1e-3 * (self.verb == "train") + 1e-9)


def measure(verb: str, sizes: Sequence[int] = KERNEL_BOUNDARIES) -> list[Movement]:
    """The largest movement of each part of an answer over all sizes and neighbors; KeyError without a case."""
    how = VERBS[verb].differential_privacy
    if isinstance(how, NoNoiseNeeded | RefusedUnderNoise):
        return []
    parts = CASES[verb]
    most: dict[str, tuple[float, float]] = {}
    for size in sizes:
        for fewer, more in neighbors(size):
            for (name, stated, before), (_, _, after) in zip(parts(fewer), parts(more), strict=True):
                moved = float(np.linalg.norm((after - before).ravel()))
                most[name] = stated, max(moved, most.get(name, (0.0, 0.0))[1])
    return [Movement(verb, name, *found) for name, found in most.items()]


def neighbors(size: int, seed: int = 2) -> Iterator[tuple[Evaluations, Evaluations]]:
    """A log of ``size`` evaluations and the same with one more, at three positions.

    All queries are in fold 0 and validate, so that every answer is about that many rows.
    """
    draw = np.random.default_rng(seed)
    embeddings = draw.normal(size=(10 * size + 200, WIDTH)).astype(np.float32)
    embeddings /= np.linalg.norm(embeddings, axis=1, keepdims=True)
    keys = query_keys(embeddings)
    validates = (keys >> np.uint64(VALIDATION_BITS)) % np.uint64(2**VALIDATION_BITS) < HELD_OUT * 2**VALIDATION_BITS
    embeddings = embeddings[(keys % np.uint64(FOLDS) == 0) & validates][: size + 1]
    model, accuracy = draw.integers(0, len(MODELS), size + 1), draw.integers(0, 2, size + 1).astype(float)
    cost = 10.0 ** draw.uniform(-6, -1, size + 1)
    time = draw.uniform(0, 3 * 86_400, size + 1)
    whole = Evaluations(ModelPool(MODELS), embeddings, np.arange(size + 1), model, accuracy, cost, time=time)
    for left_out in sorted({0, size // 2, size}):
        rest = np.delete(np.arange(size + 1), left_out)
        yield whole.of_queries(rest), whole


Measured = list[tuple[str, float, Any]]
"""Parts of an answer before noise: name, stated l2 sensitivity, and the sums."""


def _sums(verb: str, request: Request[Any]) -> Callable[[Evaluations], Measured]:
    """The parts of the answer to a request, of a verb with noise on sums."""

    def parts(rows: Evaluations) -> Measured:
        how = VERBS[verb].differential_privacy
        assert isinstance(how, NoisySums)
        with np.errstate(all="ignore"):
            return _named(how.parts(noisy_rows(verb, rows), request))

    return parts


def _named(parts: list[Part]) -> Measured:
    return [(str(index + 1), part.l2, part.totals()) for index, part in enumerate(parts)]


def noisy_rows(verb: str, rows: Evaluations) -> NoisyRows:
    """The rows of a client with hardly any noise."""
    memory = ShortMemory()
    return NoisyRows("one", verb, rows, QUIET, None, memory, PrivacyAccountant("one", QUIET, memory))


def _clusters(rows: Evaluations) -> Measured:
    """Steps of clustering, around positions that are equally near to a point but for rounding."""
    draw = np.random.default_rng(0)
    points = clipped(rows.embeddings.astype(np.float64), 1.0)
    low = clipped(points @ np.linalg.qr(draw.normal(size=(WIDTH, 8)))[0], 1.0)
    return _named(cluster_parts(low, _ties(8).astype(np.float64), points, 1.0))


def _step(rows: Evaluations) -> Measured:
    """The gradient of one step of training, read off the weights that the client sends."""
    request = train_request()
    client = Client("one", rows, replace(OPEN, differential_privacy=QUIET))
    with np.errstate(all="ignore"):
        found = step_gradient(client, request)[PROJECTION]
    return [("gradient of a step, in clip norms", 1.0, found / CLIP_NORM)]


def step_gradient(client: Client, request: TrainRequest) -> Weights:
    """The sum of clipped gradients of one step, by weight; its noise is in it.

    The first step of AdamW moves a weight by ``rate · g / (|g| + 1e-8)``, which can be inverted if g is small.
    """
    sent = client.answer("train", request).weights
    batch = client.privacy.differential_privacy.rows  # type: ignore[union-attr]
    found = {}
    for name, array in sent.items():
        moved = (request.weights[name].astype(np.float64) - array) / request.learning_rate
        share = np.minimum(np.abs(moved), 1 - 2.0**-24)
        found[name] = np.sign(moved) * ADAM_EPSILON * share / (1 - share) * batch
    return found


def rounding_weights(head: str) -> Weights:
    """A matrix factorization whose ``head`` predicts a huge multiple of ``3 (w · x) - (3 w) · x``: of rounding."""
    draw = np.random.default_rng(1)
    direction = (np.rint(draw.normal(size=WIDTH) * 2**20) * 2.0**-20).astype(np.float32)
    weights = {PROJECTION: np.stack([direction, 3 * direction]).astype(np.float32)}
    for name in HEADS:
        size = HUGE if name == head else np.float32(0)
        weights[f"{name}.weight"] = np.tile(np.array([3, -1], np.float32) * size, (len(MODELS), 1))
        weights[f"{name}.bias"] = np.zeros(len(MODELS), np.float32)
    return weights


def train_request(**changes: Any) -> TrainRequest:
    """One step over all rows whose direction, for each of them, is that of rounding."""
    weights = rounding_weights("cost")
    request = TrainRequest(
        MODELS, weights, SCALE, 1, QUIET.rows, LEARNING_RATE, 0.0, CLIP_NORM, dropout=0.0, seed=0, held_out=0.0
    )
    return replace(request, **changes)


def _ties(width: int) -> Any:
    """Centres ``(8, width)`` that are, but for rounding, equally far from any point.

    They differ in half of their coordinates only, by what float64 loses when it is added to the rest.
    """
    draw = np.random.default_rng(2)
    centres = np.repeat(draw.normal(size=(1, width)), 8, axis=0)
    centres[:, ::2] = TINY * draw.normal(size=(8, (width + 1) // 2))
    return centres.astype(np.float32)


SCALE = CostScale(np.full(2, 50), np.log([1e-4, 1e-3]), np.full(2, 0.5), np.ones(2))
_LANDMARKS = {
    "places": _ties(WIDTH)[:2] / 8,
    "whitening": np.array([[1e30], [-1e30]], np.float32),
    "sharpness": np.ones(1, np.float32),
}
_ROUTERS = [MFRouter(ModelPool(MODELS), rounding_weights("accuracy"), SCALE)] * 2
CASES: dict[str, Callable[[Evaluations], Measured]] = {
    "statistics": _sums("statistics", StatisticsRequest(_ties(WIDTH), MODELS)),
    "cost_scale": _sums("cost_scale", CostScaleRequest(MODELS)),
    "validate": _sums("validate", ValidateRequest(MODELS, rounding_weights("accuracy"), SCALE, HELD_OUT)),
    "cost_totals": _sums("cost_totals", CostTotalsRequest(MODELS, rounding_weights("cost"), SCALE)),
    "second_moment": _sums("second_moment", SecondMomentRequest()),
    "moments": _sums("moments", MomentsRequest(MODELS, _LANDMARKS, np.array([1e-4, 1e-3]))),
    "score": _sums("score", ScoreRequest(MODELS, ("mf",) * 2, pack_routers(_ROUTERS), fold=0)),
    "residuals": _sums("residuals", ResidualsRequest(_ties(WIDTH), MODELS, 0, 2)),
    "cluster": _clusters,
    "train": _step,
}
"""By verb: the parts of the answer to an adversarial request, before noise."""
