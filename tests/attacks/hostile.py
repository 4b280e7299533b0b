"""Active attacks: what a hostile coordinator can learn from requests that the protocol does not make.

An attack reaches a client only through verbs, and returns how often it tried and how often it succeeded: in getting one
row's exact accuracy and cost, or an embedding. The attacker knows the target's embedding and, where it helps, those of
all rows: protection must not depend on the coordinator not knowing them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fedrouter.errors import Refused
from fedrouter.evaluations import Evaluations, Floats
from fedrouter.federation.client import Client
from fedrouter.federation.message import Request
from fedrouter.federation.middleware.transcript import Transcript
from fedrouter.federation.privacy.memory import Memory, ShortMemory
from fedrouter.federation.privacy.policy import OPEN, PrivacyPolicy
from fedrouter.federation.rederivation import Rederivation
from fedrouter.federation.verbs.cluster import ClusterRequest
from fedrouter.federation.verbs.registry import verb_named
from fedrouter.federation.verbs.statistics import StatisticsRequest
from fedrouter.federation.verbs.train import TrainRequest
from fedrouter.federation.verbs.verb import SecureSum
from fedrouter.pool import ModelPool
from fedrouter.routers.kmeans import CellSums
from fedrouter.routers.mlp import CostScale, Weights, weight_shapes

if TYPE_CHECKING:
    from fedrouter.federation.secagg.identity import Identity

ROWS = 60
"""Number of queries, each asked of three models: enough for every minimum size, so that differences matter."""
NEAR = 1e-6
Rate = tuple[int, int]
"""Tries and successes."""
MEMBERS = ("one", "three", "two")
"""Clients of an attack; the first is the victim."""


def evaluations(seed: int, queries: int = ROWS, width: int = 8, models: int = 3) -> Evaluations:
    """A client's rows, every query asked of every model."""
    draw = np.random.default_rng(seed)
    embeddings = draw.normal(size=(queries, width))
    embeddings /= np.linalg.norm(embeddings, axis=1, keepdims=True)
    narrow = embeddings.astype(np.float32)
    query, model = np.divmod(np.arange(queries * models), models)
    accuracy, cost = draw.integers(0, 2, len(query)).astype(float), 1e-3 * draw.lognormal(0, 0.5, len(query))
    return Evaluations(ModelPool([f"model-{index}" for index in range(models)]), narrow, query, model, accuracy, cost)


@dataclass(frozen=True)
class UnderMasks(PrivacyPolicy):
    """A client that is asked under secure sums by a coordinator with which all other clients collude.

    Their sums are known, so the total gives the client's own: masks protect nothing here, and only the checks of the
    question are left. ``shown`` is the family of an honest run that the coordinator shows it before; "" for none.
    """

    shown: str = ""


class Victim:
    """The client of an attack; what it refuses counts as the answer of a client without rows."""

    def __init__(
        self,
        rows: Evaluations,
        privacy: PrivacyPolicy,
        memory: Memory | None = None,
        identity: Identity | None = None,
    ) -> None:
        self._masked = isinstance(privacy, UnderMasks)
        rederivation = Rederivation("one", identity) if self._masked else None
        self._client = Client("one", rows, privacy, memory, identity=identity, rederivation=rederivation)
        self._nobody = Client("one", rows.take(np.zeros(0, np.int64)), OPEN)
        if isinstance(privacy, UnderMasks) and privacy.shown:
            job = Transcript()
            job.begin(privacy.shown, {}, 0, rows.pool, MEMBERS)
            self._client.answer("follow", job.question(["one"]).request)

    def answer(self, verb: str, request: Request[Any]) -> Any:
        hidden = self._masked and isinstance(verb_named(verb).secure_sum, SecureSum)
        try:
            return self._client.reply_to_mask(verb, request) if hidden else self._client.answer(verb, request)
        except Refused:
            return self._nobody.answer(verb, request)


def table(client: Victim, rows: Evaluations, centres: Any) -> CellSums:
    """The client's counts and sums by centre and model."""
    request = StatisticsRequest(np.asarray(centres, np.float32), rows.pool.names)
    found: CellSums = client.answer("statistics", request).table(len(centres), len(rows.pool))
    return found


def reads_one(first: CellSums, second: CellSums, cells: Any, rows: Evaluations) -> int:
    """Number of pairs of cells whose difference is one row, and reveals that row's accuracy and cost."""
    found = 0
    truth = np.stack([rows.accuracy, rows.cost])
    for one, other in cells:
        if not first.count[one] or not second.count[other] or abs(first.count[one] - second.count[other]) != 1:
            continue
        gap = [abs(getattr(first, s).totals()[one] - getattr(second, s).totals()[other]) for s in ("accuracy", "cost")]
        found += bool((np.abs(truth - np.array(gap)[:, None]) < NEAR).all(axis=0).any())
    return found


def moved_centres(privacy: PrivacyPolicy, trials: int = 10) -> Rate:
    """Two centres, and then the same moved by so little that one query changes sides."""
    won = 0
    for seed in range(trials):
        rows, draw = evaluations(seed), np.random.default_rng(seed)
        client = Victim(rows, privacy)
        along = draw.normal(size=rows.dimension)
        along /= np.linalg.norm(along)
        heights = np.sort(rows.embeddings.astype(float) @ along)
        middle = len(heights) // 2
        answers: list[CellSums] = []
        for cut in (heights[middle - 1 : middle + 1].mean(), heights[middle : middle + 2].mean()):
            answers.append(table(client, rows, [along * (cut - 1), along * (cut + 1)]))
        won += bool(reads_one(answers[0], answers[1], [((side, 0), (side, 0)) for side in (0, 1)], rows))
    return trials, won


def _two_days(privacy: PrivacyPolicy, today: Evaluations, tomorrow: Evaluations) -> int:
    memory, origin = ShortMemory(), np.zeros((1, today.dimension))
    first = table(Victim(today, privacy, memory), today, origin)
    second = table(Victim(tomorrow, privacy, memory), tomorrow, origin)
    return int(bool(reads_one(second, first, [((0, m), (0, m)) for m in range(len(today.pool))], tomorrow)))


def one_new_row(privacy: PrivacyPolicy, trials: int = 10) -> Rate:
    """The same sum today and tomorrow, after one new query."""
    days = [evaluations(seed) for seed in range(trials)]
    return trials, sum(_two_days(privacy, rows.take(np.arange(len(rows) - 1)), rows) for rows in days)


def asked_again(privacy: PrivacyPolicy, trials: int = 10) -> Rate:
    """The same sum today and tomorrow, after an old query was asked again of the same model: a new row only."""
    won = 0
    for seed in range(trials):
        rows = evaluations(seed)
        again = rows.take([*range(len(rows)), 7])
        cost = again.cost.copy()
        cost[-1] *= 1.5
        again = Evaluations(again.pool, again.embeddings, again.query, again.model, again.accuracy, cost)
        won += _two_days(privacy, rows, again)
    return trials, won


def one_query_many_times(privacy: PrivacyPolicy, trials: int = 10) -> Rate:
    """A centroid of a cluster that is one query asked a thousand times, and few others."""
    won = 0
    for seed in range(trials):
        rows = evaluations(seed, queries=8, models=1)
        many = np.concatenate([np.repeat(rows.embeddings[:1], 1000, axis=0), rows.embeddings[1:]])
        indices = np.arange(len(many))
        own = Evaluations(
            rows.pool, many, indices, np.zeros(len(many), np.int64), np.ones(len(many)), np.ones(len(many))
        )
        centres = Victim(own, privacy).answer("cluster", ClusterRequest(1, 1, 10, 0)).centres
        cosine = centres @ rows.embeddings[0] / np.linalg.norm(centres, axis=1)
        won += bool((cosine > 0.99).any())
    return trials, won


# --- What minimum group sizes do not stop ---------------------------------------------------------------------------


def three_questions(privacy: PrivacyPolicy, trials: int = 10) -> Rate:
    """Sums over P and x, R and x, P and R: no two are close to each other, but the three give twice the row x.

    The attacker draws the boundaries, so it must know all embeddings, and they must have more dimensions than rows.
    """
    won = 0
    for seed in range(trials):
        rows = evaluations(seed, queries=30, width=40, models=1)
        client, indices = Victim(rows, privacy), np.arange(30)
        parts = {"x": indices == 0, "P": (indices > 0) & (indices < 10), "R": (indices >= 10) & (indices < 20)}
        sums = []
        for pair in (("P", "x"), ("R", "x"), ("P", "R")):
            wanted = np.where(parts[pair[0]] | parts[pair[1]], 1.0, -1.0)
            along = np.linalg.lstsq(rows.embeddings.astype(float), wanted, rcond=None)[0]
            sums.append(table(client, rows, [along, -along]))
        if all(part.count[0, 0] for part in sums):
            first, second, third = ([getattr(part, s).totals()[0, 0] for s in ("accuracy", "cost")] for part in sums)
            guess = (np.array(first) + second - np.array(third)) / 2
            won += bool(np.abs(guess - [rows.accuracy[0], rows.cost[0]]).max() < NEAR)
    return trials, won


def linear_network(along: Floats, bias: Floats) -> Weights:
    """A network whose accuracy logits are ``along · x + bias`` ``(M,)`` for a query x ``(d,)`` of length one.

    Its hidden units are the coordinates of x and of -x, both so far above zero that GELU changes nothing.
    """
    models, width = along.shape
    weights = {name: np.zeros(shape, np.float32) for name, shape in weight_shapes(width, (2 * width,), models).items()}
    weights["layer1.weight"] = np.concatenate([np.eye(width), -np.eye(width)]).astype(np.float32)
    weights["norm1.weight"] += np.float32(width**-0.5)  # which is what LayerNorm divides by
    weights["norm1.bias"] += 6
    weights["accuracy.weight"] = (np.concatenate([along, -along], axis=1) / 2).astype(np.float32)
    weights["accuracy.bias"] += bias.astype(np.float32)
    return weights


def query_moved(after: Weights, before: Weights) -> Floats:
    """The queries ``(M, d)``, up to a factor, by which steps moved the accuracy heads of a linear network."""
    moved = after["accuracy.weight"].astype(float) - before["accuracy.weight"]
    left, right = np.split(moved, 2, axis=1)
    return np.asarray(left - right)


def crafted_weights(privacy: PrivacyPolicy, trials: int = 10) -> Rate:
    """Weights under which only one query has a noticeable gradient, so that the update is its embedding.

    Its gradient is also so small that Adam passes it on in proportion. The attacker tries several biases, with weights
    and steps of any size and with such as are within the bounds of a client.
    """
    ways = [(height, steepness) for steepness in (500.0, 60.0) for height in range(12)]
    return trials, sum(any(_trapped(privacy, seed, *way) for way in ways) for seed in range(trials))


def _trapped(privacy: PrivacyPolicy, seed: int, height: int, steepness: float) -> bool:
    rows = evaluations(seed, models=1)
    along = np.random.default_rng(seed).normal(size=rows.dimension)
    along *= steepness / np.linalg.norm(along)
    weights = linear_network(along[None], np.array([20 * height - 22 - (rows.embeddings @ along).max()]))
    scale = CostScale(np.ones(1, np.int64), np.zeros(1), np.ones(1), np.ones(1))
    rate, clip_norm = (1e7, 1e30) if steepness > 100 else (0.1, 100.0)
    request = TrainRequest(rows.pool.names, weights, scale, 1, 65_536, rate, 0.0, clip_norm, 0.0, 0, heads_only=True)
    reply = Victim(rows, privacy).answer("train", request)
    gap = query_moved(reply.weights, weights)[0]
    cosine = np.abs(rows.embeddings @ gap) / max(float(np.linalg.norm(gap)), 1e-30)
    return bool(cosine.max() > 0.99)


Attack = Callable[..., Rate]
STOPPED: Mapping[str, Attack] = {
    "centres moved past one query": moved_centres,
    "today and tomorrow, one new query": one_new_row,
    "today and tomorrow, a query asked again": asked_again,
    "centroid of one query asked many times": one_query_many_times,
}
"""Attacks that minimum group sizes must stop."""
CRAFTED: Mapping[str, Attack] = {
    "three questions combined": three_questions,
    "weights under which one query trains": crafted_weights,
}
"""Attacks with crafted requests."""
