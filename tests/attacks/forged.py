"""A coordinator that asks only what follows from the run that it shows, but shows what is not true.

Clients derive every question, so what is left to it is to forge what the questions are derived from: totals.
docs/security.md says what comes of it. As in ``hostile.py``, the attacker knows the embeddings, and all other clients
are in league with it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np

from attacks.hostile import MEMBERS, Attack, Rate, Victim, evaluations, linear_network, query_moved
from fedrouter.evaluations import Evaluations
from fedrouter.federation.families.mlp import MLPSettings
from fedrouter.federation.families.registry import FAMILIES
from fedrouter.federation.federation import Federation, NothingToLearn
from fedrouter.federation.message import Message, Request
from fedrouter.federation.middleware.transcript import Recorded, Shown, Transcript
from fedrouter.federation.privacy.policy import PrivacyPolicy
from fedrouter.federation.verbs.registry import verb_named
from fedrouter.federation.verbs.train import TrainRequest, Update
from fedrouter.federation.verbs.verb import SecureSum

Forge = Callable[[str, Any, Any], Message]
"""From a verb, a request and the victim's reply: the total that the coordinator shows."""


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


def forged_weights(privacy: PrivacyPolicy, trials: int = 10) -> Rate:
    """Updates that lead to weights under which one query alone has a gradient: the next update is that query.

    The gradient must be so small that Adam passes it on in proportion, and its size is not known: several are tried.
    """
    settings = MLPSettings(rounds=2, hidden=(16,), participation=1.0)
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
    "weights from forged updates": forged_weights,
}
"""Attacks by a coordinator that also forges what it shows of a run; docs/security.md says what they can do."""
