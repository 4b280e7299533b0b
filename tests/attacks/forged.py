"""A coordinator that asks only what follows from the run that it shows, but shows what is not true.

Clients derive every question, so what is left to it is to forge what the questions are derived from: centroids, and
totals. docs/security.md says which of these attacks are stopped, and by what. As in
``hostile.py``, the attacker knows the embeddings, and all other clients are in league with it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from attacks.hostile import MEMBERS, Attack, Rate, Victim, evaluations, linear_network, query_moved
from fedrouter.evaluations import Evaluations, Floats
from fedrouter.exact import ExactSums
from fedrouter.federation.families.auto import AutoSettings
from fedrouter.federation.families.linear import LinearSettings
from fedrouter.federation.families.mlp import MLPSettings
from fedrouter.federation.families.registry import FAMILIES
from fedrouter.federation.federation import Federation, NothingToLearn
from fedrouter.federation.message import Message, Request
from fedrouter.federation.middleware.transcript import Recorded, Shown, Transcript
from fedrouter.federation.privacy.memory import ShortMemory
from fedrouter.federation.privacy.policy import PrivacyPolicy
from fedrouter.federation.privacy.rows import folds
from fedrouter.federation.verbs.cluster import Centroids, signed
from fedrouter.federation.verbs.moments import ModelMoments, MomentsRequest
from fedrouter.federation.verbs.registry import verb_named
from fedrouter.federation.verbs.second_moment import SecondMoment
from fedrouter.federation.verbs.statistics import CellStatistics
from fedrouter.federation.verbs.train import TrainRequest, Update
from fedrouter.federation.verbs.verb import SecureSum
from fedrouter.routers.features import feature_map

if TYPE_CHECKING:
    from fedrouter.federation.secagg.identity import Identity

Sign = Callable[[Any, Centroids, str], Centroids]
"""Signs the reply to a request in the name of a client."""
Forge = Callable[[str, Any, Any], Message]
"""From a verb, a request and the victim's reply: the total that the coordinator shows."""


# --- Forged centroids ------------------------------------------------------------------------------------------------


class _Forging(Federation):
    """A coordinator that asks what follows from the run, but shows centroids of other clients that are not theirs.

    ``sign`` signs them with the keys that the coordinator has, for each of the ``forgers``.
    """

    def __init__(self, victim: Victim, target: Any, sign: Sign, forgers: Sequence[str]) -> None:
        self._victim, self._target, self._sign, self._forgers = victim, target, sign, forgers
        self.moments: list[tuple[Any, Any]] = []

    def clients(self) -> tuple[str, ...]:
        return MEMBERS

    def ask(self, verb: str, payload: Request[Any], to: Any = None) -> dict[str, Any]:
        reply = self._victim.answer(verb, payload)
        if verb == "cluster":
            near = self._target + 1e-4 * np.random.default_rng(0).normal(size=(100, len(self._target)))
            forged = Centroids(near.astype(np.float32), np.full(100, 10**6))
            return {"one": reply, **{name: self._sign(payload, forged, name) for name in self._forgers}}
        if verb == "moments":
            self.moments.append((payload, reply))
        return {"everyone": reply} if isinstance(verb_named(verb).secure_sum, SecureSum) else {"one": reply}


@dataclass(frozen=True)
class _Members:
    """Keys by member, and the lines of their public parts."""

    identities: Mapping[str, Identity]
    lines: Mapping[str, str]

    @classmethod
    def draw(cls, *more: str) -> _Members:
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

        from fedrouter.federation.secagg.identity import CURVE, Identity

        keys = {name: ec.generate_private_key(CURVE) for name in (*MEMBERS, *more)}
        roster = {name: key.public_key() for name, key in keys.items()}
        lines = {n: k.public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode() for n, k in roster.items()}
        return cls({name: Identity(key, roster) for name, key in keys.items()}, lines)

    def sign(self, request: Any, reply: Centroids, name: str) -> Centroids:
        return signed(request, reply, name, self.identities[name])

    def pinned(self) -> Identity:
        """The victim's identity after a run in which it was told these keys."""
        from fedrouter.federation.secagg.pinned_keys import PinnedKeys

        pins = PinnedKeys(ShortMemory(), "one", self.lines["one"])
        pins.admit({name: self.lines[name] for name in MEMBERS})
        return replace(self.identities["one"], roster={}, pins=pins)


def unsigned_centroids(privacy: PrivacyPolicy, trials: int = 10) -> Rate:
    """Landmarks around one query, from centroids that no client has, make a feature that is 1 at it and 0 elsewhere.

    The coordinator asks only what follows from what it shows; what it shows is not true. The victim checks no
    signatures.
    """
    return _forged(privacy, trials, None, {}, lambda request, reply, name: reply)


def forged_centroids(privacy: PrivacyPolicy, trials: int = 10) -> Rate:
    """The same, where the victim has taken part in an honest run and so knows the keys of the others.

    The coordinator signs with keys of its own, and states the members' keys, or its own.
    """
    members, coordinator = _Members.draw(), _Members.draw()
    own = {**coordinator.lines, "one": members.lines["one"]}
    won = [_forged(privacy, trials, members.pinned(), keys, coordinator.sign)[1] for keys in (members.lines, own)]
    return trials, max(won)


def forged_from_the_first_run(privacy: PrivacyPolicy, trials: int = 10) -> Rate:
    """The same, where the coordinator has stated its own keys as those of the others from the first run on."""
    coordinator = _Members.draw()
    return _forged(privacy, trials, coordinator.pinned(), coordinator.lines, coordinator.sign)


def forged_by_newcomer(privacy: PrivacyPolicy, trials: int = 10) -> Rate:
    """The same, where the coordinator invents a member that nobody knows yet, whose centroids it signs."""
    members = _Members.draw("four")
    return _forged(privacy, trials, members.pinned(), members.lines, members.sign, ("four",))


def forged_with_keys(privacy: PrivacyPolicy, trials: int = 10) -> Rate:
    """The same, where clients have exchanged keys: the coordinator signs with a key of its own."""
    members, coordinator = _Members.draw(), _Members.draw()
    return _forged(privacy, trials, members.identities["one"], coordinator.lines, coordinator.sign)


def forged_by_members(privacy: PrivacyPolicy, trials: int = 10) -> Rate:
    """The same, where clients have exchanged keys, and the other members sign what the coordinator wants."""
    members = _Members.draw()
    return _forged(privacy, trials, members.identities["one"], members.lines, members.sign)


def _forged(
    privacy: PrivacyPolicy,
    trials: int,
    identity: Identity | None,
    keys: Mapping[str, str],
    sign: Sign,
    forgers: Sequence[str] = MEMBERS[1:],
) -> Rate:
    won = 0
    for seed in range(trials):
        rows = evaluations(seed)
        victim, transcript = Victim(rows, privacy, identity=identity), Transcript()
        transcript.begin("kernel", {}, 0, rows.pool, MEMBERS, keys)
        forging = _Forging(victim, rows.embeddings[0].astype(float), sign, forgers)
        with suppress(NothingToLearn):
            FAMILIES["kernel"].learn(
                Recorded(Shown(forging, transcript), transcript), rows.pool, FAMILIES["kernel"].settings(), 0
            )
        for request, reply in forging.moments:
            features = feature_map(request.features)(rows.embeddings)
            weights = np.linalg.lstsq(features, (np.arange(rows.queries) == 0).astype(float), rcond=None)[0]
            own = rows.query == 0
            won += bool(
                reply.count.all() and np.abs(reply.accuracy.totals() @ weights - rows.accuracy[own]).max() < 0.01
            )
    return trials, won


# --- Forged totals ---------------------------------------------------------------------------------------------------


class _ForgingTotals(Federation):
    """A coordinator that gets the victim's own sums, since all others collude, and shows other totals."""

    def __init__(self, victim: Victim, forge: Forge) -> None:
        self._victim, self._forge = victim, forge
        self.heard: list[tuple[str, Any, Any]] = []

    def clients(self) -> tuple[str, ...]:
        return MEMBERS

    def ask(self, verb: str, payload: Request[Any], to: Any = None) -> dict[str, Any]:
        reply = self._victim.answer(verb, payload)
        self.heard.append((verb, payload, reply))
        hidden = isinstance(verb_named(verb).secure_sum, SecureSum)
        return {"everyone": self._forge(verb, payload, reply)} if hidden else {"one": reply}

    def replies(self, verb: str) -> list[tuple[Any, Any]]:
        return [(request, reply) for asked, request, reply in self.heard if asked == verb]


def _run(rows: Evaluations, privacy: PrivacyPolicy, family: str, settings: Any, forge: Forge) -> _ForgingTotals:
    """The coordinator after a run with these totals; they have no owner who could sign them, so keys do not matter."""
    transcript = Transcript()
    transcript.begin(family, settings.to_json(), 0, rows.pool, MEMBERS)
    forging = _ForgingTotals(Victim(rows, privacy), forge)
    with suppress(NothingToLearn):
        FAMILIES[family].learn(Recorded(Shown(forging, transcript), transcript), rows.pool, settings, 0)
    return forging


def forged_directions(privacy: PrivacyPolicy, trials: int = 10) -> Rate:
    """A second moment whose leading direction is at right angles to all queries but one: the moments are its row.

    There is such a direction where a model has fewer queries, of all clients, than embeddings have coordinates.
    """
    won = 0
    for seed in range(trials):
        rows = evaluations(seed, queries=30, width=40, models=1)
        along = np.linalg.lstsq(rows.embeddings.astype(float), (np.arange(30) == 0).astype(float), rcond=None)[0]
        along /= np.linalg.norm(along)
        upper = np.triu_indices(len(along))
        total = SecondMoment(10**6, ExactSums.from_totals(10**6 * np.outer(along, along)[upper]))

        def forge(verb: str, request: Any, reply: Any, total: SecondMoment = total) -> Message:
            return total if verb == "second_moment" else reply

        for request, reply in _run(rows, privacy, "linear", LinearSettings(directions=1), forge).replies("moments"):
            own = feature_map(request.features)(rows.embeddings)[0, 1]
            accuracy, cost = reply.accuracy.totals()[0, 1] / own, reply.cost.totals()[0, 1] * request.unit[0] / own
            won += bool(
                reply.count.all() and abs(accuracy - rows.accuracy[0]) < 0.01 and abs(cost / rows.cost[0] - 1) < 0.01
            )
    return trials, won


def forged_routers(privacy: PrivacyPolicy, trials: int = 10, apart: int = 1) -> Rate:
    """Moments of a step, so that the routers to be scored differ at one query (or some) of the fold, and at no other.

    On a sphere every query can be cut off by a plane, however many others there are. The score then holds its accuracy.
    """
    won = 0
    for seed in range(trials):
        rows = evaluations(seed, models=1)
        fold = np.flatnonzero(folds(rows.embeddings, MEMBERS[0]) == 0)
        near = rows.embeddings.astype(float) @ rows.embeddings[fold[0]]
        ranked = fold[np.argsort(-near[fold])]
        inner, outer = near[ranked[apart - 1 : apart + 1]]
        step = _Step(rows.embeddings[fold[0]].astype(float), (inner + outer) / 2, (inner - outer) / 10)
        heard = _run(rows, privacy, "auto", AutoSettings(candidates=("query_blind", "linear")), step.forge)
        for request, reply in heard.replies("score"):
            if request.fold == 0 and reply.count == len(fold):
                gram = reply.gram.totals()
                won += bool(abs(gram[0, 0] - gram[0, 1] - rows.accuracy[ranked[:apart]].sum()) < 0.01)
    return trials, won


@dataclass(frozen=True)
class _Step:
    """Totals as if accuracy were 1 beyond a plane and 0 before it, and 0 everywhere without regard to the query."""

    normal: Floats
    cut: float
    width: float

    def forge(self, verb: str, request: Any, reply: Message) -> Message:
        if isinstance(reply, CellStatistics) and len(reply.cell):
            nothing = ExactSums.zeros(reply.accuracy.shape)
            return replace(reply, count=reply.count * 10**4, accuracy=nothing, accuracy_squares=nothing)
        if isinstance(reply, ModelMoments) and isinstance(request, MomentsRequest):
            return self._moments(request, reply)
        return reply

    def _moments(self, request: MomentsRequest, reply: ModelMoments) -> ModelMoments:
        """Of points on both sides of the plane, close to it."""
        draw = np.random.default_rng(0)
        sides = np.repeat([0.0, 1.0], 10_000)
        points = 0.3 * draw.normal(size=(len(sides), len(self.normal)))
        height = self.cut + self.width / 2 * (2 * sides - 1)
        points += np.outer(height - points @ self.normal, self.normal)
        features = feature_map(request.features)(points.astype(np.float32))
        upper = np.triu_indices(features.shape[1])
        sums = [
            (features.T @ features)[upper],
            features.T @ sides,
            sides.sum(),
            features.sum(axis=0),
            float(len(sides)),
        ]
        count = np.full(len(request.models), len(sides))
        return ModelMoments(count, *(ExactSums.from_totals(np.stack([part] * len(count))) for part in sums))


def forged_weights(privacy: PrivacyPolicy, trials: int = 10) -> Rate:
    """Updates that lead to weights under which one query alone has a gradient: the next update is that query.

    The gradient must be so small that Adam passes it on in proportion, and its size is not known: several are tried.
    """
    settings = MLPSettings(rounds=2, hidden=(16,), participation=1.0, validation_fraction=0.0, shared_step=False)
    settings = replace(settings, learning_rate=0.1, weight_decay=0.0, clip_norm=100.0, dropout=0.0)
    won = 0
    for seed in range(trials):
        rows = evaluations(seed, models=1)
        steep = 60.0 * rows.embeddings[0].astype(float)
        for height in range(8):
            weights = linear_network(steep[None], np.full(1, 5.0 * height - 85))

            def forge(verb: str, request: Any, reply: Any, weights: Any = weights) -> Message:
                return Update(weights, 10**6, 0.1) if verb == "train" else reply

            heard = _run(rows, privacy, "mlp", settings, forge).replies("train")
            if any(_shows(request, reply, rows) for request, reply in heard):
                won += 1
                break
    return trials, won


def _shows(request: TrainRequest, reply: Update, rows: Evaluations) -> bool:
    """Whether the change of the weights points at a query's embedding."""
    if not reply.rows or not request.round:
        return False
    gap = query_moved(reply.weights, request.weights)[0]
    return bool((np.abs(rows.embeddings @ gap) > 0.99 * np.linalg.norm(gap)).any())


FORGED: Mapping[str, Attack] = {
    "landmarks from forged centroids, signatures not checked": unsigned_centroids,
    "the same, after an honest run": forged_centroids,
    "the same, the coordinator forged keys from the first run on": forged_from_the_first_run,
    "the same, by a member that the coordinator invents": forged_by_newcomer,
    "the same, clients have exchanged keys": forged_with_keys,
    "the same, and the other members sign the forgery": forged_by_members,
    "directions from a forged second moment, fewer queries than coordinates": forged_directions,
    "routers from forged moments, scored on a fold": forged_routers,
    "weights from forged updates": forged_weights,
}
"""Attacks by a coordinator that also forges what it shows of a run; docs/security.md says what they can do."""
