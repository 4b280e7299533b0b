"""What the server believes: replies that do not fit their request are dropped by name, and the others go on."""

import numpy as np
import pytest

from attacks.poison import forged
from conftest import drawn_evaluations
from fedrouter.engines.local import LocalFederation
from fedrouter.exact import ExactSums
from fedrouter.federation.client import Client
from fedrouter.federation.families.registry import FAMILIES
from fedrouter.federation.middleware.validation import Checked, fault, most_bytes
from fedrouter.federation.plausibility import COSTS, MOST_ROWS, SHAPE, TOO_MANY
from fedrouter.federation.privacy.policy import OPEN
from fedrouter.federation.verbs.registry import VERBS
from fedrouter.federation.verbs.release import ReleaseRequest
from fedrouter.federation.vote import ask_vote
from fedrouter.pool import ModelPool

POOL = ModelPool(["model-0", "model-1", "model-2"])
SMALL = {"mlp": {"rounds": 2, "hidden": (16,)}}


def client(seed, dimension=8):
    return Client(f"client-{seed}", drawn_evaluations(queries=200, seed=seed, dimension=dimension), OPEN)


class Recorder(LocalFederation):
    """Keeps one request and its reply of every verb."""

    def __init__(self, clients):
        super().__init__(clients)
        self.seen = {}

    def ask(self, verb, payload, to=None):
        replies = super().ask(verb, payload, to)
        self.seen.setdefault(verb, (payload, replies))
        return replies


@pytest.fixture(scope="module")
def seen():
    """A request and the honest replies to it, of every verb."""
    federation = Recorder(client(seed) for seed in range(3))
    federation.ask("hello", VERBS["hello"].request())
    federation.ask("release", ReleaseRequest(POOL.names))
    for name in ("mlp", "kmeans"):
        family = FAMILIES[name]
        router = family.learn(federation, POOL, family.settings(**SMALL.get(name, {})))
    ask_vote(federation, router)
    return federation.seen


def scaled(sums, factor):
    return ExactSums(sums.limbs * factor).carried()


@pytest.mark.parametrize("name", FAMILIES)
def test_honest_clients_of_every_family_lose_nothing(name):
    family = FAMILIES[name]
    federation = Checked(LocalFederation(client(seed) for seed in range(3)))
    family.learn(federation, POOL, family.settings(**SMALL.get(name, {})))
    assert not federation.dropped


def test_every_verb_has_its_rules_and_honest_replies_keep_them(seen):
    assert set(seen) == set(VERBS) - {"keys", "shares", "deliver", "masked", "agree", "unmask", "excluded", "follow"}
    for verb, (request, replies) in seen.items():
        for reply in replies.values():
            assert fault(verb, request, reply) is None
            assert reply.size <= most_bytes(verb, request)


LIES = [
    ("cluster", lambda r: {"centres": np.repeat(r.centres, 300, 0), "sizes": np.repeat(r.sizes, 300)}, SHAPE),
    ("cluster", lambda r: {"sizes": r.sizes * MOST_ROWS}, TOO_MANY),
    ("cluster", lambda r: {"sizes": np.full_like(r.sizes, 2**62)}, TOO_MANY),
    ("statistics", lambda r: {"count": r.count[:, :1]}, SHAPE),
    ("statistics", lambda r: {"cost": scaled(r.cost, 10**9)}, COSTS),
    ("statistics", lambda r: {"accuracy": scaled(r.accuracy, 10)}, "accuracies that do not fit their counts"),
    ("costs", lambda r: {"count": np.r_[r.count, 1]}, SHAPE),
    ("costs", lambda r: {"count": -r.count}, "counts or sums below 0"),
    ("costs", lambda r: {"count": r.count * MOST_ROWS}, TOO_MANY),
    ("train", lambda r: {"weights": r.weights[:1]}, SHAPE),
    ("train", lambda r: {"rows": r.rows * MOST_ROWS}, TOO_MANY),
    ("release", lambda r: {"vector": r.vector[:-1]}, SHAPE),
    ("release", lambda r: {"vector": np.full_like(r.vector, 2**62)}, TOO_MANY),
    ("hello", lambda r: {"dimension": 10**6}, SHAPE),
    ("hello", lambda r: {"models": tuple(f"{place:0100d}" for place in range(2000))}, "larger than its request allows"),
    ("statistics", lambda r: {"cost": ExactSums(r.cost.limbs - [1, -(2**31)])}, "sums that are not in their one form"),
]


@pytest.mark.parametrize(
    ("verb", "lie", "reason"), LIES, ids=[f"{verb}-{place}" for place, (verb, *_) in enumerate(LIES)]
)
def test_a_lie_is_dropped_for_its_reason(seen, verb, lie, reason):
    request, replies = seen[verb]
    reply = replies["client-1"]
    assert fault(verb, request, forged(reply, **lie(reply))) == reason


def test_the_reply_to_another_verb_is_dropped(seen):
    request, _ = seen["costs"]
    assert fault("costs", request, seen["vote"][1]["client-0"]) == "a reply to another verb"
