"""Passive attacks: what a coordinator that follows the protocol can infer from the replies it gets.

Two questions. Is anything that was sent equal, or nearly equal, to one of the client's embeddings? And given a
candidate evaluation, do the replies reveal whether it is among the client's rows (membership inference)? The tests and
``benchmarks/privacy.py`` ask both with and without minimum group sizes; active attacks are in ``hostile.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fedrouter.encoders.feature_map import UNIT
from fedrouter.engines.local import LocalFederation
from fedrouter.evaluations import Evaluations
from fedrouter.federation.client import Client
from fedrouter.federation.families.kmeans import CellStatistics, Centroids
from fedrouter.federation.families.mlp import Update
from fedrouter.federation.families.registry import FAMILIES
from fedrouter.federation.federation import Federation, NothingToLearn
from fedrouter.federation.message import Request
from fedrouter.federation.privacy.policy import PrivacyPolicy
from fedrouter.federation.secagg.server import EVERYONE, Secure
from fedrouter.federation.verbs.release import ReleaseReply
from fedrouter.pool import ModelPool
from fedrouter.release import SECOND_SHARE, symmetric
from fedrouter.routers.kmeans import nearest_centre
from fedrouter.routers.mlp import forward

VICTIM = "victim"
SIZES = (30, 100, 300, 1000, 3000)
EQUAL = 1e-5
"""Distance below which two vectors are equal: sums of products are rounded to 2^-20, which is a little less."""
CLOSE = 0.99
"""Cosine above which two embeddings are nearly equal."""
UNKNOWN = -1e12
"""Score of a candidate about which nothing was sent."""


@dataclass(frozen=True)
class Observed:
    """One reply, as the coordinator sees it."""

    name: str
    verb: str
    request: Any
    reply: Any


@dataclass
class Watched(Federation):
    """A federation that records all replies."""

    federation: Federation
    observed: list[Observed] = field(default_factory=list)

    def clients(self) -> Sequence[str]:
        return self.federation.clients()

    def ask(self, verb: str, payload: Request[Any], to: Sequence[str] | None = None) -> Mapping[str, Any]:
        replies = self.federation.ask(verb, payload, to)
        self.observed += [Observed(name, verb, payload, reply) for name, reply in replies.items()]
        return replies


def one_model_each(evaluations: Evaluations, queries: Any, seed: int) -> Evaluations:
    """The log of one client: each of these queries asked of one model, some models much more often than others."""
    draw = np.random.default_rng(seed)
    rows = evaluations.of_queries(queries)
    taste = draw.dirichlet(np.full(len(rows.pool), 0.45)) + 1e-9
    luck = draw.exponential(size=len(rows)) / taste[rows.model]
    order = np.lexsort([luck, rows.query])
    return rows.take(np.sort(order[np.r_[True, np.diff(rows.query[order]) > 0]]))


def observe(
    family: str, logs: Mapping[str, Evaluations], privacy: PrivacyPolicy, settings: Any = None, secure: bool = False
) -> list[Observed]:
    """All replies that the coordinator gets while it learns a router; under secure aggregation, totals."""
    federation: Federation = LocalFederation(Client(name, log, privacy) for name, log in logs.items())
    watched = Watched(Secure(federation) if secure else federation)
    entry = FAMILIES[family]
    with suppress(NothingToLearn):  # what was sent before counts all the same
        entry.learn(watched, logs[VICTIM].pool, settings or entry.settings(), 0)
    return watched.observed


# --- Nearest neighbors ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Match:
    """Number of vectors ``sent``; how many equal an embedding, are close to one, or closer than its neighbors are."""

    sent: int
    equal: int
    close: int
    nearest: int


def vectors_sent(observed: Sequence[Observed], name: str, width: int) -> list[Any]:
    """All vectors as wide as an embedding in a client's replies, or that follow from their sums."""
    found: list[Any] = []
    for one in (one for one in observed if one.name == name):
        match one.reply:
            case Centroids():
                found.append(one.reply.centres)
            case Update():
                weights, before = one.reply.weights, getattr(one.request, "weights", {})
                found += [w - before[key] for key, w in weights.items() if w.ndim == 2 and w.shape[1] == width]
    return [part[np.linalg.norm(part, axis=1) > 0] for part in found if len(part)]


def match(sent: Sequence[Any], own: Any) -> Match:
    """Compare vectors with the client's embeddings by direction: a sum over one row is a multiple of that row."""
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
    """How well scores separate members from others: area under the ROC curve, and best advantage over guessing."""
    values = np.concatenate([members, others])
    _, index = np.unique(values, return_inverse=True)
    inside = np.bincount(index[: len(members)], minlength=index.max() + 1) / len(members)
    outside = np.bincount(index[len(members) :], minlength=index.max() + 1) / len(others)
    below = np.cumsum(outside)
    area = float((inside * (below - outside / 2)).sum())
    return area, float(np.abs(np.cumsum(inside) - below).max())


def by_centroids(observed: Sequence[Observed], candidates: Evaluations) -> Any:
    """Members lie nearer to a centroid."""
    centres = np.concatenate([one.reply.centres for one in observed if isinstance(one.reply, Centroids)])
    apart = candidates.embeddings[candidates.query].astype(np.float64)[:, None] - centres[None]
    return -np.linalg.norm(apart, axis=2).min(axis=1, initial=1e6)


def by_statistics(observed: Sequence[Observed], candidates: Evaluations) -> Any:
    """A member's cell was sent, and its accuracy and cost are near the cell's means."""
    one = next(one for one in observed if isinstance(one.reply, CellStatistics))
    reply, request = one.reply, one.request
    rows = candidates.over(ModelPool(request.models))
    cell = nearest_centre(rows.embeddings, request.centres)[rows.query] * len(request.models) + rows.model
    index = np.searchsorted(reply.cell, cell)
    index = np.minimum(index, max(len(reply.cell) - 1, 0))
    if not len(reply.cell):
        return np.full(len(rows), UNKNOWN)
    count, worst = reply.count[index], np.zeros(len(rows))
    for total, value in ((reply.accuracy, rows.accuracy), (reply.cost, rows.cost)):
        mean = total.totals()[index] / count
        worst = np.maximum(worst, np.abs(value - mean) / np.maximum(mean, 1e-9))
    return np.where(reply.cell[index] == cell, -worst, UNKNOWN)


def by_release(observed: Sequence[Observed], candidates: Evaluations) -> Any:
    """Members lie in the span of the products of features: minus ``ψ' (Σψψᵀ)⁺ ψ`` is at least -1 for them."""
    one = next(one for one in observed if isinstance(one.reply, ReleaseReply))
    release = one.reply.release(ModelPool(one.request.models))
    gram = symmetric(release.second / (UNIT * SECOND_SHARE))
    values, vectors = np.linalg.eigh(gram)
    # Directions in which noise has made the sum negative say nothing.
    inside = (release.features(candidates.embeddings)[candidates.query, 1:] @ vectors) ** 2
    return -(inside / np.maximum(values, 1e-3)).sum(axis=1)


def by_update(observed: Sequence[Observed], candidates: Evaluations) -> Any:
    """Training lowers the loss of its own rows more than that of other rows; summed over all rounds."""
    gain = np.zeros(len(candidates))
    for one in (one for one in observed if isinstance(one.reply, Update) and one.reply.rows):
        rows = candidates.over(ModelPool(one.request.models))
        before = _loss(one.request.weights, one.request.scale, rows)
        gain += before - _loss({**one.request.weights, **one.reply.weights}, one.request.scale, rows)
    return gain


def _loss(weights: Any, scale: Any, rows: Evaluations) -> Any:
    logits, cost = (part[rows.query, rows.model] for part in forward(weights, rows.embeddings))
    return (1 / (1 + np.exp(-logits)) - rows.accuracy) ** 2 + (cost - scale.normalised(rows.cost, rows.model)) ** 2


Membership = Callable[[Sequence[Observed], Evaluations], Any]
MEMBERSHIP: Mapping[str, tuple[str, Membership]] = {
    "centroids": ("kmeans", by_centroids),
    "statistics": ("kmeans", by_statistics),
    "release": ("bayes", by_release),
    "updates": ("mlp", by_update),
}
"""By what is observed: the family whose learning sends it, and the attack."""


def membership(
    name: str, observed: Sequence[Observed], members: Evaluations, others: Evaluations
) -> tuple[float, float]:
    """Area and advantage of one attack, given the replies of the victim or totals of all clients."""
    about = [one for one in observed if one.name in (VICTIM, EVERYONE)]
    attack = MEMBERSHIP[name][1]
    return separation(attack(about, members), attack(about, others))
