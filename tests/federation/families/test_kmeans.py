"""Algorithm 2: exactness of the sums, and what is sent."""

import threading
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conftest import drawn_evaluations
from fedrouter.engines.local import LocalFederation
from fedrouter.errors import BadInput
from fedrouter.evaluations import Evaluations
from fedrouter.federation.client import Client
from fedrouter.federation.families.kmeans import KMeansSettings, ask_statistics, global_centres, learn
from fedrouter.federation.privacy.policy import OPEN
from fedrouter.federation.verbs.cluster import Centroids, ClusterRequest
from fedrouter.federation.verbs.statistics import StatisticsRequest
from fedrouter.pool import ModelPool

POOL = ModelPool(["model-0", "model-1", "model-2"])


def federation(*parts):
    return LocalFederation(Client(f"client-{place}", part, OPEN) for place, part in enumerate(parts))


@settings(max_examples=40, deadline=None)
@given(
    owner=st.lists(st.integers(0, 4), min_size=80, max_size=80),
    clusters=st.integers(1, 12),
    seed=st.integers(0, 100),
)
def test_federated_statistics_equal_pooled_statistics_however_rows_are_grouped(owner, clusters, seed):
    rows = drawn_evaluations(queries=80, seed=seed)
    centres = rows.embeddings[:clusters]
    parts = [rows.take(np.flatnonzero(np.array(owner) == client)) for client in range(5)]
    assert ask_statistics(federation(*parts), centres, POOL) == ask_statistics(federation(rows), centres, POOL)


def test_adding_a_client_and_subtracting_it_restores_the_router_exactly():
    parts = [drawn_evaluations(seed=seed) for seed in range(4)]
    router = learn(federation(*parts[:3]), POOL)
    newcomer = ask_statistics(federation(parts[3]), router.centres, POOL)
    grown = replace(router, sums=router.sums + newcomer)
    back = replace(router, sums=grown.sums - newcomer)
    assert grown.sums != router.sums
    assert back.sums == router.sums
    for name, array in router.arrays().items():
        assert array.tobytes() == back.arrays()[name].tobytes()


def test_means_are_the_plain_means_of_the_rows():
    rows = drawn_evaluations(queries=400, per_query=2)
    router = learn(federation(rows), POOL)
    cluster = np.linalg.norm(rows.embeddings[:, None] - router.centres, axis=2).argmin(axis=1)[rows.query]
    for k, m in [(0, 0), (3, 1), (7, 2)]:
        cell = (cluster == k) & (rows.model == m)
        assert router.sums.count[k, m] == cell.sum() > 0
        assert router.table.accuracy[k, m] == pytest.approx(rows.accuracy[cell].mean(), abs=1e-9)
        assert router.table.cost[k, m] == pytest.approx(rows.cost[cell].mean(), rel=1e-6)


def test_defaults_are_the_papers():
    assert KMeansSettings() == KMeansSettings(k_local=15, k_global=20, restarts=3, iterations=30)
    router = learn(federation(*(drawn_evaluations(queries=200, seed=seed) for seed in range(3))), POOL)
    assert router.centres.shape == (20, 8)


def test_a_client_sends_its_cluster_sizes():
    rows = drawn_evaluations(queries=100)
    reply = Client("one", rows, OPEN).answer("cluster", ClusterRequest(15, 3, 30, 0))
    assert isinstance(reply, Centroids)
    assert len(reply.centres) == 15
    assert reply.sizes.sum() == 100


def test_nothing_is_sent_for_empty_cells():
    rows = drawn_evaluations(queries=6)
    reply = Client("one", rows, OPEN).answer("statistics", StatisticsRequest(rows.embeddings, POOL.names))
    assert len(reply.cell) == 6  # of 6 x 3
    assert (reply.count == 1).all()


def test_more_clusters_than_points_gives_as_many_as_there_are():
    router = learn(federation(drawn_evaluations(queries=4), drawn_evaluations(queries=3, seed=1)), POOL)
    assert len(router.centres) == 7


def test_repeated_queries_count_as_one_point():
    rows = drawn_evaluations(queries=3)
    twice = Evaluations.concatenate([rows] * 10)
    assert len(learn(federation(twice), POOL).centres) == 3


@pytest.mark.parametrize("wrong", [{"k_local": 0}, {"k_global": -1}, {"restarts": 0}, {"iterations": 0}])
def test_settings_that_make_no_sense_are_refused(wrong):
    with pytest.raises(BadInput, match=f"{next(iter(wrong))}: expected at least 1"):
        KMeansSettings(**wrong)


def centroids_of(clients, seed=0):
    draw = np.random.default_rng(seed)
    centres = (draw.normal(size=(15, 64)).astype(np.float32) for _ in range(clients))
    return {f"client-{place}": Centroids(one, draw.integers(1, 9, 15)) for place, one in enumerate(centres)}


@pytest.mark.parametrize("clients", [1, 40])
def test_clustering_their_centroids_leaves_the_replies_as_they_came(clients):
    replies = centroids_of(clients)
    before = {name: reply.centres.copy() for name, reply in replies.items()}
    twice = [global_centres(replies, KMeansSettings(k_global=8), seed=3) for _ in range(2)]
    assert twice[0].tobytes() == twice[1].tobytes()
    assert all(np.array_equal(reply.centres, before[name]) for name, reply in replies.items())


def test_the_server_copies_the_centroids_once_to_cluster_them():
    replies = centroids_of(clients=400)
    size = sum(reply.centres.nbytes for reply in replies.values())
    once = KMeansSettings(restarts=1, iterations=2)
    global_centres(replies, once, 0)  # imports, and what libraries keep from their first use
    threads = threading.active_count()
    tracemalloc.start()
    try:
        global_centres(replies, once, 0)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    # A second time while scikit-learn computes their variance. Three times is what it took with its own copy.
    assert peak < 2.6 * size
    assert threading.active_count() == threads
