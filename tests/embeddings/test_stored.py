"""Embeddings in a file behave as an array does, and a client whose log is in one answers as if it were in memory."""

from dataclasses import replace

import numpy as np
import pytest

from fedrouter.embeddings import stored
from fedrouter.embeddings.fingerprints import fingerprints
from fedrouter.embeddings.stored import EmbeddingsBuffer, EmbeddingsWriter, StoredEmbeddings, blocks
from fedrouter.engines.local import LocalFederation
from fedrouter.engines.summed import SummedFederation
from fedrouter.federation.client import Client
from fedrouter.federation.clustering import cluster
from fedrouter.federation.families.registry import family as family_record
from fedrouter.federation.privacy.policy import CLEAR, OPEN
from fedrouter.testing.samples import sample_evaluations


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    """Seven rows of width eight, so that everything crosses the border of a block."""
    monkeypatch.setattr(stored, "BLOCK_BYTES", 7 * 8 * 4)


def in_file(rows):
    writer = EmbeddingsWriter()
    for start in range(0, len(rows), 11):
        writer.write(rows[start : start + 11])
    return writer.stored()


def stored_log(evaluations):
    return replace(evaluations, embeddings=in_file(evaluations.embeddings))


def test_rows_in_a_file_are_those_that_were_written():
    rows = np.random.default_rng(0).normal(size=(50, 8)).astype(np.float32)
    kept = in_file(rows)
    assert kept.shape == rows.shape
    assert len(kept) == 50
    assert np.array_equal(np.asarray(kept), rows)
    chosen = np.array([40, 3, 3, 49, 0, 12, 13])
    assert isinstance(kept[chosen], StoredEmbeddings)
    assert np.array_equal(kept[chosen][np.array([1, 0, 6])].read(), rows[chosen][[1, 0, 6]])
    assert np.array_equal(kept[rows[:, 0] > 0].read(2, 5), rows[rows[:, 0] > 0][2:5])
    assert np.array_equal(kept[chosen].fingerprints, fingerprints(rows[chosen]))
    assert np.allclose(kept[chosen].mean(axis=0), rows[chosen].mean(axis=0))
    assert np.array_equal(np.concatenate([part for _, part in blocks(kept)]), rows)


def test_a_block_holds_all_evaluations_of_its_queries():
    whole = sample_evaluations(40)
    shuffled = replace(whole, **{
        name: getattr(whole, name)[np.random.default_rng(1).permutation(len(whole))] for name in ("query",)
    })  # fmt: skip
    seen = []
    for rows, query, embeddings in shuffled.blocks():
        assert np.array_equal(embeddings[query], whole.embeddings[shuffled.query[rows]])
        seen.append(set(shuffled.query[rows].tolist()))
    assert not any(one & other for place, one in enumerate(seen) for other in seen[:place])
    assert sum(map(len, seen)) == len(set(shuffled.query.tolist()))


@pytest.mark.parametrize("policy", [OPEN, CLEAR], ids=["open", "default"])
@pytest.mark.parametrize("engine", [LocalFederation, SummedFederation])
@pytest.mark.parametrize("family", ["query_blind", "linear"])
def test_a_log_in_a_file_gives_the_router_of_the_log_in_memory_to_the_bit(family, engine, policy):
    logs = {name: sample_evaluations(400, seed=seed) for seed, name in enumerate("abc")}
    how = family_record(family)
    routers = [
        how.learn(engine([Client(name, of(log), policy) for name, log in logs.items()]), logs["a"].pool)
        for of in (lambda log: log, stored_log)
    ]
    for name, array in routers[0].arrays().items():
        assert np.array_equal(array, routers[1].arrays()[name]), name


@pytest.mark.parametrize("policy", [OPEN, CLEAR], ids=["open", "default"])
def test_a_network_trained_from_a_file_is_the_one_trained_from_memory(policy):
    pytest.importorskip("torch")
    from fedrouter.federation.families.mlp import MLPSettings

    log = sample_evaluations(90)
    settings = MLPSettings(hidden=(12, 8), rounds=2, participation=1.0)
    first, second = (
        family_record("mlp").learn(LocalFederation([Client("a", rows, policy)]), log.pool, settings)
        for rows in (log, stored_log(log))
    )
    for name, array in first.arrays().items():
        assert np.array_equal(array, second.arrays()[name]), name


@pytest.mark.parametrize("clusters", [1, 5, 12])
def test_lloyd_over_blocks_finds_the_centres_of_scikit_learn(clusters):
    draw = np.random.default_rng(clusters)
    middles = draw.normal(size=(9, 8))
    points = (middles[draw.integers(0, 9, 300)] + 0.2 * draw.normal(size=(300, 8))).astype(np.float32)
    for seed in range(3):
        whole, parts = (cluster(some, clusters, 3, 30, seed) for some in (points, in_file(points)))
        assert np.allclose(whole, parts, atol=1e-6)


def test_fewer_distinct_points_than_clusters_are_the_centres():
    points = np.repeat(np.eye(8, dtype=np.float32)[:3], 20, axis=0)
    assert np.array_equal(cluster(in_file(points), 5, 3, 30, 0), cluster(points, 5, 3, 30, 0))


def test_a_cluster_that_loses_its_points_is_filled_again():
    points = np.concatenate([np.zeros((30, 8)), np.ones((30, 8)), np.full((1, 8), 9.0)]).astype(np.float32)
    found = cluster(in_file(points), 3, 1, 30, 0)
    assert np.allclose(np.sort(found[:, 0]), [0, 1, 9])


def test_k_means_with_minimum_group_sizes_is_the_same_but_for_rounding():
    log = sample_evaluations(120)
    first, second = (
        family_record("kmeans").learn(LocalFederation([Client("a", rows)]), log.pool) for rows in (log, stored_log(log))
    )
    assert np.allclose(first.centres, second.centres, atol=1e-6)
    assert np.array_equal(first.sums.count, second.sums.count)
    assert first.sums == second.sums


@pytest.mark.parametrize("most", [0, 100, 2**20])
def test_embeddings_that_come_one_by_one_go_to_a_file_when_they_are_too_many(most):
    rows = np.random.default_rng(0).normal(size=(50, 8)).astype(np.float32)
    buffer = EmbeddingsBuffer(most)
    for row in rows:
        buffer.append(row)
    found = buffer.rows(8)
    assert isinstance(found, StoredEmbeddings) == (most < 2**20)
    assert np.array_equal(np.asarray(found), rows)


def test_no_embeddings_are_an_empty_array():
    assert EmbeddingsBuffer().rows(8).shape == (0, 8)
