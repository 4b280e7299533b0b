"""Sums are added as they come: the same routers to the bit, with one total and one reply in memory."""

from functools import reduce
from operator import add
from weakref import ref

import numpy as np
import pytest

from conftest import drawn_evaluations, family_params
from fedrouter.engines.local import LocalFederation
from fedrouter.federation.client import Client
from fedrouter.federation.families.mlp import CostsRequest
from fedrouter.federation.families.registry import FAMILIES
from fedrouter.federation.federation import EVERYONE, Federation, Question
from fedrouter.federation.message import packed_digest
from fedrouter.federation.middleware.checkpoint import Checkpointed
from fedrouter.federation.middleware.quorum import Quorum, QuorumLost
from fedrouter.federation.middleware.sums import Summed, Total
from fedrouter.federation.middleware.validation import Checked
from fedrouter.federation.privacy.policy import OPEN
from fedrouter.federation.verbs.release import ReleaseRequest
from fedrouter.testing.engines import SMALL, content
from fedrouter.testing.samples import POOL, sample_clients

MODELS = ("model-0", "model-1", "model-2")
COSTS, RELEASE = CostsRequest(MODELS), ReleaseRequest(MODELS)


def clients(number, **options):
    return [Client(f"client-{seed}", drawn_evaluations(seed=seed, **options), OPEN) for seed in range(number)]


def arrays(router):
    return {name: array.tobytes() for name, array in router.arrays().items()}


class Shuffled(LocalFederation):
    """Replies that are handed over one by one come in another order."""

    def _ask_each(self, question, each, to):
        replies = list(self.ask(question.verb, question.request, to).items())
        np.random.default_rng(len(replies)).shuffle(replies)
        for name, reply in replies:
            each(name, reply)
        return dict.fromkeys(name for name, _ in replies)


@pytest.mark.parametrize(("verb", "request_"), [("costs", COSTS), ("release", RELEASE)])
def test_totals_of_a_tree_of_aggregators_are_those_of_the_flat_federation_to_the_bit(verb, request_):
    replies = list(LocalFederation(clients(9)).ask(verb, request_).values())
    regions = [reduce(add, replies[start : start + 4]) for start in range(0, 9, 4)]
    assert packed_digest(reduce(add, regions).pack()) == packed_digest(reduce(add, replies).pack())


@pytest.mark.parametrize("name", family_params())
def test_every_family_learns_the_same_router_from_totals(name):
    family = FAMILIES[name]
    settings = family.settings(**SMALL.get(name, {}))
    names = [f"client-{number}" for number in range(5)]
    apart, added, shuffled = (
        family.learn(make(sample_clients(*names, queries=300)), POOL, settings, 7)
        for make in (LocalFederation, lambda some: Summed(LocalFederation(some)), lambda some: Summed(Shuffled(some)))
    )
    assert arrays(added) == arrays(apart)
    assert arrays(shuffled) == arrays(apart)


def test_the_total_says_whose_rows_are_in_it():
    federation = LocalFederation(clients(3))
    (total,) = Summed(federation).ask_all([Question("costs", COSTS)])
    apart = federation.ask("costs", COSTS)
    assert isinstance(total, Total)
    assert list(total) == [EVERYONE]
    assert total.rows == {name: reply.count.sum() for name, reply in apart.items()}
    expected = apart["client-0"] + apart["client-1"] + apart["client-2"]
    assert content(total[EVERYONE]) == content(expected)


def test_only_one_reply_is_alive_at_a_time():
    sums, most = [], []

    class Watched(Client):
        def answer(self, verb, request, hidden=False):
            most.append(sum(one() is not None for one in sums))
            reply = super().answer(verb, request, hidden)
            sums.append(ref(reply.vector))
            return reply

    some = [Watched(f"client-{seed:02}", drawn_evaluations(seed=seed), OPEN) for seed in range(20)]
    Summed(Checked(LocalFederation(some))).ask("release", RELEASE)
    assert len(most) == 20
    assert max(most) <= 1  # of the one before


def test_a_quorum_counts_the_clients_in_a_total():
    few = Quorum(LocalFederation(clients(2)), 3)
    assert list(Summed(few).ask("costs", COSTS)) == [EVERYONE]  # all that are asked answer

    class Silent(LocalFederation):
        def ask(self, verb, payload, to=None):
            return super().ask(verb, payload, ["client-0"])

    with pytest.raises(QuorumLost, match="1 of 4 clients answered, the quorum is 3"):
        Summed(Quorum(Silent(clients(4)), 3)).ask("costs", COSTS)


def test_a_checkpoint_keeps_the_total_and_whose_rows_are_in_it(tmp_path):
    first = Checkpointed(Summed(LocalFederation(clients(3))), tmp_path).ask("costs", COSTS)
    again = Checkpointed(Summed(LocalFederation([])), tmp_path).ask("costs", COSTS)
    assert isinstance(again, Total)
    assert again.rows == first.rows
    assert content(again[EVERYONE]) == content(first[EVERYONE])


def test_nobody_asked_is_nothing():
    assert dict(Summed(LocalFederation(clients(2))).ask("costs", COSTS, [])) == {}


def test_an_engine_that_has_all_replies_at_once_hands_them_over_one_by_one():
    class Whole(Federation):
        inner = LocalFederation(clients(2))

        def clients(self):
            return self.inner.clients()

        def ask(self, verb, payload, to=None):
            return self.inner.ask(verb, payload, to)

    total = Summed(Whole()).ask("costs", COSTS)
    assert content(total[EVERYONE]) == content(Summed(LocalFederation(clients(2))).ask("costs", COSTS)[EVERYONE])
