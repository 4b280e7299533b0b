"""Disclosure control: what has too few queries behind it, alone or as a difference, does not leave."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from conftest import drawn_evaluations
from fedrouter.engines.local import LocalFederation
from fedrouter.errors import BadInput
from fedrouter.federation.client import Client
from fedrouter.federation.families.kmeans import ClusterRequest
from fedrouter.federation.families.mlp import CostsRequest
from fedrouter.federation.families.registry import FAMILIES
from fedrouter.federation.privacy.disclosure import DisclosureControl
from fedrouter.federation.privacy.journal import Journal
from fedrouter.federation.privacy.memory import ShortMemory
from fedrouter.federation.privacy.policy import OPEN, MinimumGroupSizes

MODELS = ("model-0", "model-1", "model-2")
CLUSTER = ClusterRequest(15, 2, 10, 0)


def keys(*values):
    return np.array(values, np.uint64)


def guard():
    return DisclosureControl(MinimumGroupSizes(), ShortMemory())


@pytest.mark.parametrize("queries", [3, 30, 100, 300])
def test_every_centroid_is_the_mean_of_at_least_five_queries(queries):
    rows = drawn_evaluations(queries=queries, dimension=6)
    reply = Client("one", rows).answer("cluster", CLUSTER)
    assert (reply.sizes >= 5).all()
    assert reply.sizes.sum() == (queries if queries >= 5 else 0)
    if queries >= 5:
        nearest = np.linalg.norm(rows.embeddings[:, None] - reply.centres[None], axis=2).min()
        assert nearest > 1e-3


def test_without_floors_a_small_client_sends_its_embeddings():
    rows = drawn_evaluations(queries=10, dimension=6)
    reply = Client("one", rows, OPEN).answer("cluster", CLUSTER)
    assert {row.tobytes() for row in reply.centres} == {row.tobytes() for row in rows.embeddings}


def test_a_second_training_of_another_family_still_hears_of_every_model():
    """After cells, totals: what the cells leave of them must not be a few rows."""
    clients = [Client(f"client-{seed}", drawn_evaluations(queries=80, dimension=6, seed=seed)) for seed in range(3)]
    federation, pool = LocalFederation(clients), drawn_evaluations().pool
    FAMILIES["kmeans"].learn(federation, pool, FAMILIES["kmeans"].settings())
    replies = federation.ask("costs", CostsRequest(MODELS))
    assert all(reply.count.sum() == 80 for reply in replies.values())


def test_one_new_row_waits_until_there_are_enough(tmp_path):
    rows = drawn_evaluations(queries=80, per_query=1, dimension=4)
    of_first = np.flatnonzero(rows.model == 0)
    others = np.flatnonzero(rows.model != 0)

    def count(new):
        journal = Journal(tmp_path / "journal.sqlite")
        own = rows.take(np.r_[others, of_first[: 10 + new]])
        reply = Client("one", own, memory=journal).answer("costs", CostsRequest(MODELS))
        journal.close()
        return int(reply.count[0])

    assert [count(new) for new in (0, 1, 4, 5, 6)] == [10, 10, 10, 15, 15]


@given(
    st.lists(st.integers(0, 5), min_size=5, max_size=60),
    st.lists(st.lists(st.integers(0, 5), min_size=60, max_size=60), min_size=1, max_size=3),
)
def test_no_two_answers_differ_by_few_rows(first, others):
    """Whatever the groupings asked for: two groups that were sent are the same, or at least five rows apart."""
    watch = guard()
    sent = []
    for grouping in (first, *others):
        group = np.array(grouping[: len(first)])
        allowed = watch.may_send(np.arange(len(group), dtype=np.uint64), group, 6)
        sent.append([set(np.flatnonzero(group == place).tolist()) for place in np.flatnonzero(allowed)])
    for answer in sent:
        assert all(len(group) >= 5 for group in answer)
        for other in sent:
            for group in answer:
                assert all(not group ^ peer or len(group ^ peer) >= 5 for peer in other)
                inside = [peer for peer in other if peer <= group]
                rest = group - set().union(*inside)
                assert not inside or not rest or len(rest) >= 5


@pytest.mark.parametrize("name", FAMILIES)
def test_every_family_learns_from_clients_with_minimum_group_sizes(name):
    logs = {f"client-{seed}": drawn_evaluations(queries=60, dimension=6, seed=seed) for seed in range(3)}
    clients = [Client(name, log) for name, log in logs.items()]
    pool = drawn_evaluations().pool
    router = FAMILIES[name].learn(LocalFederation(clients), pool, FAMILIES[name].settings())
    accuracy = router.estimate(drawn_evaluations(queries=5, dimension=6, seed=9).embeddings).accuracy
    assert np.isfinite(accuracy).all()


def test_a_minimum_group_size_below_two_is_refused():
    with pytest.raises(BadInput, match="minimum group size cell: expected at least 2"):
        MinimumGroupSizes(cell=1)
    with pytest.raises(BadInput, match="minimum group size say: expected a share"):
        MinimumGroupSizes(say=0.0)
