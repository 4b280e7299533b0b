"""Clients cluster together as they do alone: the same draws, steps and choice among restarts."""

import numpy as np
import pytest

from fedrouter.engines.batched import clustering
from fedrouter.engines.batched.clustering import cluster_together
from fedrouter.engines.batched.engine import BatchedFederation
from fedrouter.engines.local import LocalFederation
from fedrouter.federation.client import Client
from fedrouter.federation.clustering import ClusterJob, cluster
from fedrouter.federation.privacy.policy import OPEN
from fedrouter.federation.verbs.cluster import ClusterRequest
from fedrouter.testing.samples import sample_evaluations

torch = pytest.importorskip("torch")

SIZES = (40, 67, 33, 9, 300, 64)


def points(rows, seed, dimension=16):
    draw = np.random.default_rng(seed)
    topics = draw.normal(size=(6, dimension))
    found = topics[draw.integers(0, 6, rows)] + draw.normal(size=(rows, dimension))
    return (found / np.linalg.norm(found, axis=1, keepdims=True)).astype(np.float32)


def jobs(clusters=5, restarts=3, iterations=100):
    return [ClusterJob(points(size, size), clusters, restarts, iterations, 100 + size) for size in SIZES]


def alone(job):
    return cluster(job.points, job.clusters, job.restarts, job.iterations, job.seed)


@pytest.mark.parametrize("asked", [(5, 3, 100), (1, 2, 100), (8, 4, 2)])
def test_clients_of_different_sizes_cluster_together_as_they_do_alone(asked):
    for job, centres in zip(jobs(*asked), cluster_together(jobs(*asked)), strict=True):
        assert centres.dtype == np.float32
        assert np.abs(centres - alone(job)).max() < 1e-6


def test_the_steps_are_those_of_scikit_learn_in_float64():
    """Both in float64, so that only the mathematics can differ."""
    from sklearn.cluster import KMeans

    for job, centres in zip(jobs(), cluster_together(jobs(), precision="float64", rounded=False), strict=True):
        model = KMeans(job.clusters, n_init=job.restarts, max_iter=job.iterations, random_state=job.seed)
        expected = model.fit(job.points.astype(np.float64)).cluster_centers_
        assert centres.dtype == np.float64
        assert np.abs(centres - expected).max() < 1e-9


def test_how_many_cluster_together_does_not_matter(monkeypatch):
    together = cluster_together(jobs())
    monkeypatch.setattr(clustering, "NUMBERS", 1)
    for ours, others in zip(together, cluster_together(jobs()), strict=True):
        assert np.abs(ours - others).max() < 1e-6


def test_a_client_with_a_cluster_that_loses_its_points_is_clustered_alone(monkeypatch):
    """With all first centres at one point, all but one cluster are empty."""
    asked = jobs()[:2]
    monkeypatch.setattr(clustering, "_first_centres", lambda _, some: torch.zeros(len(some), 3, 5, dtype=torch.int64))
    for job, centres in zip(asked, cluster_together(asked), strict=True):
        assert np.array_equal(centres, alone(job))


ROWS = {f"client-{number}": sample_evaluations(60 + 30 * number, seed=number) for number in range(4)}
ASKED = ClusterRequest(clusters=4, restarts=2, iterations=50, seed=3)


def replies(kind, **policy):
    clients = [Client(name, rows, **policy) for name, rows in ROWS.items()]
    return kind([*clients, Client("few", sample_evaluations(3, seed=9), **policy)]).ask("cluster", ASKED)


def test_under_minimum_group_sizes_replies_are_equal_to_the_bit():
    """Centroids are the means of the queries in each cluster, whichever engine put them there."""
    for ours, expected in zip(replies(BatchedFederation).values(), replies(LocalFederation).values(), strict=True):
        assert np.array_equal(ours.centres, expected.centres)
        assert np.array_equal(ours.sizes, expected.sizes)


def test_without_minimum_group_sizes_replies_agree():
    ours, expected = replies(BatchedFederation, privacy=OPEN), replies(LocalFederation, privacy=OPEN)
    assert list(ours) == list(expected)
    for name, reply in expected.items():
        assert np.allclose(ours[name].centres, reply.centres, atol=1e-6)
        assert np.array_equal(ours[name].sizes, reply.sizes)


def test_the_verb_is_answered_by_one_computation(monkeypatch):
    from fedrouter.engines.batched import engine

    counts = []

    def counted(tasks, device, precision):
        tasks = [*tasks]
        counts.append(len(tasks))
        return cluster_together(tasks, device, precision)

    monkeypatch.setitem(engine.BATCHED, "cluster", engine.Computation("cluster", engine.CLUSTERER, counted))
    replies(BatchedFederation, privacy=OPEN)
    assert counts == [len(ROWS)]  # and the client with three queries has no job
