"""What a coordinator that keeps to the protocol can tell from what it hears: the passive attacks, each written once.

Two questions. Is anything that was sent one of the client's own embeddings, or nearly? And can one who holds a
candidate evaluation tell from what was sent whether it is among the client's rows? The tests and
``benchmarks/privacy.py`` ask both with and without floors; what a hostile coordinator can do is in ``hostile.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fedrouter.engines.local import LocalFederation
from fedrouter.evaluations import Evaluations
from fedrouter.federation.client import Client
from fedrouter.federation.families.registry import FAMILIES
from fedrouter.federation.federation import Federation
from fedrouter.federation.message import Message, Request
from fedrouter.federation.privacy.policy import PrivacyPolicy
from fedrouter.federation.secagg.server import EVERYONE, Secure
from fedrouter.federation.verbs.messages import CellStatistics, Centroids, ModelMoments, SecondMoment, Update
from fedrouter.pool import ModelPool
from fedrouter.routers.features import feature_map
from fedrouter.routers.kmeans import nearest_centre
from fedrouter.routers.linear import symmetric
from fedrouter.routers.mlp import forward, log_cost

VICTIM = "victim"
SIZES = (30, 100, 300, 1000, 3000)
EQUAL = 1e-5
"""So near, two vectors are the same: sums of products are rounded to 2^-20, which is a little less."""
CLOSE = 0.99
"""A cosine above which two embeddings say the same."""
UNHEARD = -1e12
"""The score of a candidate about which nothing was sent."""


@dataclass(frozen=True)
class Heard:
    """One reply, as the coordinator has it."""

    name: str
    verb: str
    request: Request[Any]
    reply: Message


@dataclass
class Watched:
    """A federation whose replies are all written down."""

    federation: Federation
    heard: list[Heard] = field(default_factory=list)

    def clients(self) -> Sequence[str]:
        return self.federation.clients()

    def ask(self, verb: str, payload: Request[Any], to: Sequence[str] | None = None) -> Mapping[str, Any]:
        replies = self.federation.ask(verb, payload, to)
        self.heard += [Heard(name, verb, payload, reply) for name, reply in replies.items()]
        return replies


def one_model_each(evaluations: Evaluations, queries: Any, seed: int) -> Evaluations:
    """These queries as one client has them: each asked of one model, some models much more often than others."""
    draw = np.random.default_rng(seed)
    rows = evaluations.of_queries(queries)
    taste = draw.dirichlet(np.full(len(rows.pool), 0.45)) + 1e-9
    luck = draw.exponential(size=len(rows)) / taste[rows.model]
    order = np.lexsort([luck, rows.query])
    return rows.take(np.sort(order[np.r_[True, np.diff(rows.query[order]) > 0]]))


def overhear(
    family: str, logs: Mapping[str, Evaluations], privacy: PrivacyPolicy, settings: Any = None, secure: bool = False
) -> list[Heard]:
    """Everything the coordinator hears while it learns a router; under secure aggregation that is totals."""
    federation: Federation = LocalFederation(Client(name, log, privacy) for name, log in logs.items())
    watched = Watched(Secure(federation) if secure else federation)
    entry = FAMILIES[family]
    entry.learn(watched, logs[VICTIM].pool, settings or entry.settings(), 0)
    return watched.heard


# --- Nearest neighbors ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Match:
    """Of ``sent`` vectors, how many are an embedding, nearly point to one, or lie nearer to one than its neighbors."""

    sent: int
    equal: int
    close: int
    nearest: int


def vectors_sent(heard: Sequence[Heard], name: str, width: int) -> list[Any]:
    """Every vector as wide as an embedding that a client's replies hold or that follows from their sums."""
    found: list[Any] = []
    for one in (one for one in heard if one.name == name):
        match one.reply:
            case Centroids():
                found.append(one.reply.centres)
            case Update():
                weights, before = one.reply.weights, getattr(one.request, "weights", {})
                found += [w - before[key] for key, w in weights.items() if w.ndim == 2 and w.shape[1] == width]
            case SecondMoment() if one.reply.count:
                found.append(_leading(one.reply.total.totals(), one.reply.count))
            case ModelMoments() if "directions" in getattr(one.request, "features", {}):
                back = one.request.features["directions"].astype(np.float64).T
                found += [part @ back for part in _of_moments(one.reply)]
    return [part[np.linalg.norm(part, axis=1) > 0] for part in found if len(part)]


def _leading(triangle: Any, most: int) -> Any:
    values, vectors = np.linalg.eigh(symmetric(triangle))
    return vectors[:, values > 1e-6 * values[-1]].T[::-1][:most]


def _of_moments(reply: ModelMoments) -> list[Any]:
    """Mean features of all rows, of those that were right and of those that were wrong; and leading directions."""
    found = []
    for place in np.flatnonzero(reply.count):
        gram = symmetric(reply.gram[place].totals())
        right = reply.accuracy[place].totals()
        sums = np.stack([gram[0], right, gram[0] - right, reply.cost[place].totals()])
        found.append(sums[:, 1:])
        found.append(_leading(reply.gram[place].totals(), int(reply.count[place]))[:, 1:])
    return found


def match(sent: Sequence[Any], own: Any) -> Match:
    """Compared by direction: embeddings have length one, and a sum over one row is a multiple of that row."""
    own = np.unique(own.astype(np.float64), axis=0)
    own /= np.linalg.norm(own, axis=1, keepdims=True)
    among = own @ own.T
    np.fill_diagonal(among, -1)
    neighbor = among.max(axis=1, initial=-1)
    counts = np.zeros(4, np.int64)
    for part in sent:
        turned = part.astype(np.float64) / np.linalg.norm(part.astype(np.float64), axis=1, keepdims=True)
        cosine = turned @ own.T
        sign = np.sign(np.take_along_axis(cosine, np.abs(cosine).argmax(axis=1)[:, None], axis=1))
        cosine *= sign
        best = cosine.argmax(axis=1)
        distance = np.linalg.norm(sign * turned - own[best], axis=1)
        top = cosine.max(axis=1)
        counts += [len(part), (distance < EQUAL).sum(), (top > CLOSE).sum(), (top > neighbor[best]).sum()]
    return Match(*counts.tolist())


# --- Membership -----------------------------------------------------------------------------------------------------


def separation(members: Any, others: Any) -> tuple[float, float]:
    """How well scores tell members from others: the area under the ROC curve, and the best advantage over guessing."""
    values = np.concatenate([members, others])
    _, place = np.unique(values, return_inverse=True)
    inside = np.bincount(place[: len(members)], minlength=place.max() + 1) / len(members)
    outside = np.bincount(place[len(members) :], minlength=place.max() + 1) / len(others)
    below = np.cumsum(outside)
    area = float((inside * (below - outside / 2)).sum())
    return area, float(np.abs(np.cumsum(inside) - below).max())


def by_centroids(heard: Sequence[Heard], candidates: Evaluations) -> Any:
    """A member lies nearer to a centroid."""
    centres = np.concatenate([one.reply.centres for one in heard if isinstance(one.reply, Centroids)])
    apart = candidates.embeddings[candidates.query].astype(np.float64)[:, None] - centres[None]
    return -np.linalg.norm(apart, axis=2).min(axis=1, initial=1e6)


def by_statistics(heard: Sequence[Heard], candidates: Evaluations) -> Any:
    """A member's cell was sent, and its accuracy and cost are possible there: no row is further from the mean of its
    cell than its squares allow."""
    one = next(one for one in heard if isinstance(one.reply, CellStatistics))
    reply, request = one.reply, one.request
    rows = candidates.over(ModelPool(request.models))
    cell = nearest_centre(rows.embeddings, request.centres)[rows.query] * len(request.models) + rows.model
    place = np.searchsorted(reply.cell, cell)
    place = np.minimum(place, max(len(reply.cell) - 1, 0))
    if not len(reply.cell):
        return np.full(len(rows), UNHEARD)
    count, worst = reply.count[place], np.zeros(len(rows))
    for total, squares, value in (
        (reply.accuracy, reply.accuracy_squares, rows.accuracy),
        (reply.log_cost, reply.log_cost_squares, log_cost(rows.cost)),
    ):
        mean = total.totals()[place] / count
        spread = np.maximum(squares.totals()[place] - count * mean**2, 0)
        away = (value - mean) ** 2
        worst = np.maximum(worst, np.where(away < 1e-9, 0, away / np.maximum(spread, 1e-9)))
    return np.where(reply.cell[place] == cell, -worst, UNHEARD)


def by_second_moment(heard: Sequence[Heard], candidates: Evaluations) -> Any:
    """A member lies in the span of the products, and in it nowhere that they do not reach."""
    one = next(one for one in heard if isinstance(one.reply, SecondMoment))
    return within(one.reply.total.totals(), candidates.embeddings[candidates.query])


def by_moments(heard: Sequence[Heard], candidates: Evaluations) -> Any:
    """The same in features, model by model."""
    one = next(one for one in heard if isinstance(one.reply, ModelMoments))
    rows = candidates.over(ModelPool(one.request.models))
    features = feature_map(one.request.features)(rows.embeddings)[rows.query]
    scores = np.full(len(rows), UNHEARD)
    for place in np.flatnonzero(one.reply.count):
        mine = rows.model == place
        scores[mine] = within(one.reply.gram[place].totals(), features[mine])
    return scores


def by_fold(heard: Sequence[Heard], candidates: Evaluations) -> Any:
    """Products over all queries less those over all but a fold are products over the fold, in whose span few lie."""
    whole = [one for one in heard if isinstance(one.reply, SecondMoment) and one.request.fold < 0]
    folds = [one for one in heard if isinstance(one.reply, SecondMoment) and one.request.fold >= 0 and one.reply.count]
    if not folds or not whole or not whole[0].reply.count:
        return np.full(len(candidates), UNHEARD)
    vectors = candidates.embeddings[candidates.query]
    gaps = [(whole[0].reply.total - one.reply.total).totals() for one in folds]
    return np.max([within(gap, vectors) for gap in gaps if gap.any()], axis=0, initial=UNHEARD)


def within(triangle: Any, vectors: Any) -> Any:
    """Minus ``v' G⁺ v``, which is at most 1 for a vector that is among those of the Gram matrix G."""
    gram = symmetric(triangle)
    if not gram.any():
        return np.full(len(vectors), UNHEARD)
    # The rounding of the sums is what keeps directions outside the span from being infinitely far.
    gram += 1e-6 * np.eye(len(gram))
    vectors = vectors.astype(np.float64)
    return -(vectors * np.linalg.solve(gram, vectors.T).T).sum(axis=1)


def by_update(heard: Sequence[Heard], candidates: Evaluations) -> Any:
    """Training lowers the loss of what it trains on more than that of other rows; over all rounds."""
    gain = np.zeros(len(candidates))
    for one in (one for one in heard if isinstance(one.reply, Update) and one.reply.rows):
        rows = candidates.over(ModelPool(one.request.models))
        before = _loss(one.request.weights, one.request.scale, rows)
        gain += before - _loss({**one.request.weights, **one.reply.weights}, one.request.scale, rows)
    return gain


def _loss(weights: Any, scale: Any, rows: Evaluations) -> Any:
    logits, cost = (part[rows.query, rows.model] for part in forward(weights, rows.embeddings))
    return (1 / (1 + np.exp(-logits)) - rows.accuracy) ** 2 + (cost - scale.normalised(rows.cost, rows.model)) ** 2


Membership = Callable[[Sequence[Heard], Evaluations], Any]
MEMBERSHIP: Mapping[str, tuple[str, Membership]] = {
    "centroids": ("kmeans", by_centroids),
    "statistics": ("kmeans", by_statistics),
    "second moment": ("linear", by_second_moment),
    "moments": ("linear", by_moments),
    "moments less a fold's": ("auto", by_fold),
    "updates": ("mlp", by_update),
}
"""What is looked at, the family whose learning sends it, and the attack."""


def membership(name: str, heard: Sequence[Heard], members: Evaluations, others: Evaluations) -> tuple[float, float]:
    """Area and advantage of one attack, on what was heard of the victim, or of everyone together."""
    about = [one for one in heard if one.name in (VICTIM, EVERYONE)]
    attack = MEMBERSHIP[name][1]
    return separation(attack(about, members), attack(about, others))
