"""Algorithm 2: exactness of the sums, and what is sent."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conftest import drawn_evaluations
from fedrouter.engines.local import LocalFederation
from fedrouter.errors import BadInput
from fedrouter.evaluations import Evaluations
from fedrouter.federation.families.kmeans import (
    NUMBERS,
    Centroids,
    ClusterRequest,
    KMeansSettings,
    StatisticsRequest,
    cell_sums,
    centroids,
    global_centres,
    held_out_error,
    learn,
    statistics,
)
from fedrouter.federation.families.kmeans import ask_statistics as ask_all_statistics
from fedrouter.federation.verb import Own
from fedrouter.pool import ModelPool

POOL = ModelPool(["model-0", "model-1", "model-2"])


def ask_statistics(members, centres, pool):
    return cell_sums(ask_all_statistics(members, [centres], pool))


def federation(*parts):
    return LocalFederation({f"client-{place}": part for place, part in enumerate(parts)})


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
    assert KMeansSettings() == KMeansSettings(k_local=15, k_global=0, restarts=3, iterations=30)
    parts = federation(*(drawn_evaluations(queries=200, seed=seed) for seed in range(3)))
    router = learn(parts, POOL, KMeansSettings(k_global=20))
    assert router.centres.shape == (20, 8)


def test_a_client_sends_its_cluster_sizes():
    rows = drawn_evaluations(queries=100)
    reply = centroids(Own("one", rows), ClusterRequest(15, 3, 30, 0))
    assert isinstance(reply, Centroids)
    assert len(reply.centres) == 15
    assert reply.sizes.sum() == 100


def test_nothing_is_sent_for_empty_cells():
    rows = drawn_evaluations(queries=6)
    reply = statistics(Own("one", rows), StatisticsRequest(rows.embeddings, POOL.names))
    assert reply.count.shape == (1, 6, 3)
    assert reply.count.sum() == reply.rows[0] == 6
    assert not reply.accuracy[reply.count == 0].limbs.any()


def test_more_clusters_than_points_gives_as_many_as_there_are():
    members = federation(drawn_evaluations(queries=4), drawn_evaluations(queries=3, seed=1))
    router = learn(members, POOL, KMeansSettings(k_global=20))
    assert len(router.centres) == 7


def test_repeated_queries_count_as_one_point():
    rows = drawn_evaluations(queries=3)
    twice = Evaluations.concatenate([rows] * 10)
    assert len(learn(federation(twice), POOL, KMeansSettings(k_global=20)).centres) == 3


@pytest.mark.parametrize("wrong", [{"k_local": 0}, {"k_global": -1}, {"restarts": 0}, {"iterations": 0}])
def test_settings_that_make_no_sense_are_refused(wrong):
    with pytest.raises(BadInput, match=f"{next(iter(wrong))}: expected at least [01]"):
        KMeansSettings(**wrong)


def centroids_of(clients, seed=0):
    draw = np.random.default_rng(seed)
    centres = (draw.normal(size=(15, 64)).astype(np.float32) for _ in range(clients))
    return {f"client-{place}": Centroids(one, draw.integers(1, 9, 15)) for place, one in enumerate(centres)}


@pytest.mark.parametrize("clients", [1, 40])
def test_clustering_their_centroids_leaves_the_replies_as_they_came(clients):
    replies = centroids_of(clients)
    before = {name: reply.centres.copy() for name, reply in replies.items()}
    twice = [global_centres(replies, KMeansSettings(k_global=8), seed=3)[0] for _ in range(2)]
    assert twice[0].tobytes() == twice[1].tobytes()
    assert all(np.array_equal(reply.centres, before[name]) for name, reply in replies.items())


# --- K by validation ------------------------------------------------------------------------------------------------


def in_groups(groups, queries=600, seed=0, spread=0.2):
    """Rows of as many kinds of queries, of which each has its own best model."""
    draw = np.random.default_rng(seed)
    rows = drawn_evaluations(queries=queries, seed=seed)
    kind = draw.integers(groups, size=queries)
    middle = np.random.default_rng(99).normal(size=(groups, 8))
    embeddings = (middle[kind] + spread * draw.normal(size=(queries, 8))).astype(np.float32)
    right = 0.2 + 0.7 * (kind[rows.query] % 3 == rows.model)
    accuracy = (draw.random(len(rows)) < right).astype(np.float64)
    return Evaluations(rows.pool, embeddings, rows.query, rows.model, accuracy, rows.cost)


@pytest.mark.parametrize("groups", [1, 3])
def test_as_many_clusters_are_chosen_as_there_are_kinds_of_queries(groups):
    router = learn(federation(*(in_groups(groups, seed=seed) for seed in range(3))), POOL)
    assert len(router.centres) == groups


def test_the_number_of_clusters_can_be_fixed():
    parts = [in_groups(3, seed=seed) for seed in range(3)]
    assert len(learn(federation(*parts), POOL, KMeansSettings(k_global=8)).centres) == 8


def test_the_chosen_router_is_the_one_of_that_number_fixed():
    parts = federation(*(in_groups(3, seed=seed) for seed in range(3)))
    chosen = learn(parts, POOL, seed=4)
    fixed = learn(parts, POOL, KMeansSettings(k_global=len(chosen.centres)), seed=4)
    assert chosen.sums == fixed.sums
    assert chosen.centres.tobytes() == fixed.centres.tobytes()


def test_the_held_out_error_is_the_squared_error_of_rows_that_the_means_have_not_seen():
    rows = in_groups(3, queries=200)
    members = federation(rows)
    centres = rows.embeddings[:4]
    total = ask_all_statistics(members, [centres], POOL, 5)
    from fedrouter.federation.families.kmeans import fold_of

    fold = fold_of(rows.embeddings, 5)[rows.query]
    cell = np.linalg.norm(rows.embeddings[:, None] - centres, axis=2).argmin(axis=1)[rows.query]
    error = 0.0
    for held in range(5):
        rest = fold != held
        for k in range(4):
            for m in range(3):
                inside, model = rest & (cell == k) & (rows.model == m), rest & (rows.model == m)
                mean = rows.accuracy[inside if inside.any() else model].mean()
                error += ((rows.accuracy - mean)[~rest & (cell == k) & (rows.model == m)] ** 2).sum()
    ours = held_out_error(total.count, total.accuracy.totals()) + (rows.accuracy**2).sum()
    assert ours == pytest.approx(error)


def test_one_owner_clusters_its_queries_themselves():
    rows = in_groups(3)
    settings = KMeansSettings(k_global=3).single_client()
    router = learn(federation(rows), POOL, settings)
    nearest = np.linalg.norm(rows.embeddings[:, None] - router.centres, axis=2).argmin(axis=1)
    means = [rows.embeddings[nearest == k].mean(axis=0) for k in range(3)]
    assert np.abs(router.centres - means).max() < 1e-5


def test_a_client_alone_has_no_more_clusters_than_it_would_send():
    assert KMeansSettings(k_global=20).client_local().k_global == 15
    assert KMeansSettings().client_local().k_global == 0
    assert max(NUMBERS) == 20


# --- What a client sends --------------------------------------------------------------------------------------------


def test_no_centroid_stands_for_fewer_queries_than_the_client_wants():
    rows = in_groups(3, queries=60, spread=1.0)
    request = ClusterRequest(15, 3, 30, 0)
    free, strict = centroids(Own("one", rows, 1), request), centroids(Own("one", rows, 5), request)
    assert free.sizes.min() < 5 <= strict.sizes.min()
    assert free.sizes.sum() == strict.sizes.sum() == 60
    nearest = np.linalg.norm(rows.embeddings[:, None] - strict.centres, axis=2).argmin(axis=1)
    assert np.bincount(nearest, minlength=len(strict.centres)).min() >= 3  # means of groups, recomputed once


def test_a_query_that_was_asked_often_is_one_query():
    rows = drawn_evaluations(queries=4)
    often = Evaluations.concatenate([rows] * 10)
    assert not len(centroids(Own("one", often, 5), ClusterRequest(4, 1, 5, 0)).centres)


def test_an_answer_is_a_function_of_rows_and_request():
    rows = in_groups(3)
    first, second = (centroids(Own("one", rows), ClusterRequest(5, 1, 5, 0)) for _ in range(2))
    assert first.centres.tobytes() == second.centres.tobytes()
