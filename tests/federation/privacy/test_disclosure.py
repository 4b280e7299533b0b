"""Disclosure control: what has too few queries behind it, alone or as a difference, does not leave."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from conftest import drawn_evaluations
from fedrouter.engines.local import LocalFederation
from fedrouter.errors import BadInput
from fedrouter.federation.client import Client
from fedrouter.federation.families.registry import FAMILIES
from fedrouter.federation.privacy.disclosure import DisclosureControl
from fedrouter.federation.privacy.journal import Journal
from fedrouter.federation.privacy.memory import ShortMemory
from fedrouter.federation.privacy.policy import OPEN, MinimumGroupSizes
from fedrouter.federation.verbs.cluster import ClusterRequest
from fedrouter.federation.verbs.cost_scale import CostScaleRequest
from fedrouter.federation.verbs.statistics import StatisticsRequest
from fedrouter.federation.verbs.train import TrainRequest
from fedrouter.routers.mlp import CostScale, initial_weights

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


def test_the_same_query_many_times_is_one_query():
    one = drawn_evaluations(queries=1, per_query=1, dimension=6)
    many = one.take([0] * 12)
    client = Client("one", many)
    assert not len(client.answer("cluster", CLUSTER).centres)
    assert not client.answer("cost_scale", CostScaleRequest(MODELS)).count.any()


def test_centroids_are_released_once_until_enough_queries_are_new():
    rows = drawn_evaluations(queries=200, dimension=6)
    memory = ShortMemory()

    def centres(until, seed):
        own = rows.of_queries(np.arange(until))
        return Client("one", own, memory=memory).answer("cluster", ClusterRequest(8, 2, 10, seed)).centres

    first = centres(150, seed=0)
    assert np.array_equal(centres(150, seed=1), first)
    assert np.array_equal(centres(154, seed=2), first)
    assert not np.array_equal(centres(200, seed=2), first)


@pytest.mark.parametrize(("queries", "centres"), [(30, 20), (90, 6), (300, 12)])
def test_cells_of_few_queries_join_their_nearest_and_none_is_lost(queries, centres):
    rows = drawn_evaluations(queries=queries, dimension=4)
    request = StatisticsRequest(rows.embeddings[:centres], MODELS)
    everything = Client("one", rows, OPEN).answer("statistics", request)
    sent = Client("one", rows).answer("statistics", request)
    assert everything.count.min() < 5 <= sent.count.min()
    before, after = (reply.table(centres, 3) for reply in (everything, sent))
    assert np.array_equal(before.count.sum(axis=0), after.count.sum(axis=0))
    assert np.allclose(before.accuracy.totals().sum(axis=0), after.accuracy.totals().sum(axis=0))
    kept = (before.count >= 5) & (before.count == after.count)
    assert np.array_equal(before.cost.limbs[kept], after.cost.limbs[kept])


def test_a_second_training_of_another_family_still_hears_of_every_model():
    """After cells, totals: what the cells leave of them must not be a few rows."""
    clients = [Client(f"client-{seed}", drawn_evaluations(queries=80, dimension=6, seed=seed)) for seed in range(3)]
    federation, pool = LocalFederation(clients), drawn_evaluations().pool
    FAMILIES["kmeans"].learn(federation, pool, FAMILIES["kmeans"].settings())
    replies = federation.ask("cost_scale", CostScaleRequest(MODELS))
    assert all(reply.count.sum() == 80 for reply in replies.values())


def test_sums_that_differ_by_one_query_are_not_both_sent():
    rows = drawn_evaluations(queries=60, per_query=3, dimension=4)
    target = rows.embeddings[7]
    far = np.full((1, 4), 50, np.float32)
    client = Client("one", rows)
    # One centre has everything; then a second one takes a single query away from it.
    first = client.answer("statistics", StatisticsRequest(np.concatenate([target[None] * 0, far]), MODELS))
    second = client.answer("statistics", StatisticsRequest(np.stack([target * 0 + 1e-6, target]), MODELS))
    assert (first.count == 60).all()
    gaps = 60 - second.count
    assert ((gaps == 0) | (gaps >= 5)).all()


def test_asking_the_same_again_gets_the_same_answer():
    client = Client("one", drawn_evaluations(queries=60, dimension=4))
    request = StatisticsRequest(np.eye(4, dtype=np.float32), MODELS)
    first, second = (client.answer("statistics", request) for _ in range(2))
    assert len(first.cell)
    assert first.accuracy == second.accuracy


def test_around_the_same_centres_a_growing_log_is_heard_whole_and_cells_grow_by_enough_rows():
    rows = drawn_evaluations(queries=400, dimension=4)
    memory, request = ShortMemory(), StatisticsRequest(drawn_evaluations(queries=12, dimension=4).embeddings, MODELS)
    before = np.zeros((12, 3), np.int64)
    for queries in (300, 302, 330, 331, 360, 400):
        own = rows.of_queries(np.arange(queries))
        count = Client("one", own, memory=memory).answer("statistics", request).table(12, 3).count
        grown = count - before
        assert ((grown == 0) | (grown >= 5)).all()
        waiting = queries - count.sum()
        assert waiting < 5 * len(MODELS)
        before = count


def test_one_new_row_waits_until_there_are_enough(tmp_path):
    rows = drawn_evaluations(queries=80, per_query=1, dimension=4)
    of_first = np.flatnonzero(rows.model == 0)
    others = np.flatnonzero(rows.model != 0)

    def count(new):
        journal = Journal(tmp_path / "journal.sqlite")
        own = rows.take(np.r_[others, of_first[: 10 + new]])
        reply = Client("one", own, memory=journal).answer("cost_scale", CostScaleRequest(MODELS))
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


def test_a_model_whose_cost_scale_was_withheld_is_not_trained_on():
    rows = drawn_evaluations(queries=90, dimension=6)
    client = Client("one", rows)
    scale = CostScale(np.array([30, 0, 30]), np.zeros(3), np.ones(3), np.ones(3))
    weights = initial_weights(6, (8,), 3, seed=0)
    request = TrainRequest(MODELS, weights, scale, 1, 16, 1e-3, 0.0, 1.0, 0.0, seed=0)
    update = client.answer("train", request)
    assert update.rows == (rows.model != 1).sum()
    assert np.array_equal(update.weights["cost.weight"][1], weights["cost.weight"][1])


def test_a_minimum_group_size_below_two_is_refused():
    with pytest.raises(BadInput, match="minimum group size cell: expected at least 2"):
        MinimumGroupSizes(cell=1)
    with pytest.raises(BadInput, match="minimum group size say: expected a share"):
        MinimumGroupSizes(say=0.0)
