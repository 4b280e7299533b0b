"""The linear families: exactly centralized, from sums, in one shot."""

import numpy as np
import pytest

from conftest import drawn_evaluations
from fedrouter.engines.local import LocalFederation
from fedrouter.errors import BadInput
from fedrouter.evaluations import Evaluations
from fedrouter.federation.client import Client
from fedrouter.federation.families.linear import KernelSettings, LinearSettings, ask_moments, learn, learn_kernel
from fedrouter.federation.privacy.policy import OPEN
from fedrouter.pool import ModelPool
from fedrouter.routers.features import Projection
from fedrouter.routers.linear import symmetric

POOL = ModelPool(["model-0", "model-1", "model-2"])
PARTS = [drawn_evaluations(queries=300, seed=seed) for seed in range(4)]
QUERIES = drawn_evaluations(queries=100, seed=99).embeddings


def federation(*parts):
    return LocalFederation(Client(f"client-{place}", part, OPEN) for place, part in enumerate(parts))


def test_federated_equals_centralized_within_1e_8():
    together = learn(federation(*PARTS), POOL)
    central = learn(federation(Evaluations.concatenate(PARTS)), POOL)
    one, other = together.estimate(QUERIES), central.estimate(QUERIES)
    assert np.abs(one.accuracy - other.accuracy).max() < 1e-8
    assert np.abs(one.cost / other.cost - 1).max() < 1e-8
    assert together.sums == central.sums


def test_the_moments_are_those_of_the_rows():
    rows = PARTS[0]
    features, unit = Projection(np.eye(8, 5, dtype=np.float32)), np.array([1e-5, 1e-4, 1e-3])
    sums = ask_moments(federation(rows), POOL, features, unit)
    phi = features(rows.embeddings)[rows.query]
    for place in range(3):
        mine = rows.model == place
        assert sums.full_gram()[place] == pytest.approx(phi[mine].T @ phi[mine], abs=1e-3)
        assert sums.accuracy.totals()[place] == pytest.approx(phi[mine].T @ rows.accuracy[mine], abs=1e-3)
        relative = rows.cost[mine] / unit[place]
        assert sums.cost.totals()[place] == pytest.approx(phi[mine].T @ relative, rel=1e-3, abs=1e-3)


def test_the_message_is_as_small_as_stated_whatever_the_rows():
    sent = []

    class Scale(LocalFederation):
        def ask(self, verb, payload, to=None):
            replies = super().ask(verb, payload, to)
            sent.extend(reply.size for reply in replies.values() if verb == "moments")
            return replies

    for rows in (50, 2000):
        learn(Scale([Client("one", drawn_evaluations(queries=rows), OPEN)]), POOL)
    width = 9
    stated = 3 * (width * (width + 1) // 2 + 2 * width + 2) * 16 + 3 * 8
    assert sent[0] == sent[1] == pytest.approx(stated, abs=10)


def test_directions_are_the_leading_ones_and_no_more_than_asked():
    router = learn(federation(*PARTS), POOL, LinearSettings(directions=3))
    directions = router.features.directions
    assert directions.shape == (8, 3)
    rows = Evaluations.concatenate(PARTS).embeddings.astype(float)
    _, expected = np.linalg.eigh(rows.T @ rows)
    assert np.abs((directions * expected[:, ::-1][:, :3]).sum(axis=0)) == pytest.approx(1, abs=1e-4)


def test_predicted_dollars_agree_with_the_observed_within_a_tenth():
    rows = Evaluations.concatenate(PARTS)
    for router in (learn(federation(*PARTS), POOL), learn_kernel(federation(*PARTS), POOL)):
        predicted = router.estimate(rows.embeddings).cost[rows.query, rows.model]
        for place in range(3):
            mine = rows.model == place
            assert predicted[mine].sum() == pytest.approx(rows.cost[mine].sum(), rel=0.1)


def test_landmarks_are_clusters_and_their_features_reproduce_the_kernel():
    router = learn_kernel(federation(*PARTS), POOL, KernelSettings(landmarks=10))
    features = router.features
    assert features.points.shape == (10, 8)
    phi = features(features.points)[:, 1:]
    squared = ((features.points[:, None] - features.points) ** 2).sum(axis=2)
    assert phi @ phi.T == pytest.approx(np.exp(-features.sharpness[0] * squared), abs=1e-3)


def test_a_triangle_unfolds_to_its_matrix():
    matrix = np.array([[1.0, 2.0, 3.0], [2.0, 4.0, 5.0], [3.0, 5.0, 6.0]])
    assert np.array_equal(symmetric(matrix[np.triu_indices(3)]), matrix)


def test_embeddings_too_large_to_sum_are_refused_with_what_to_do():
    rows = PARTS[0]
    large = Evaluations(rows.pool, rows.embeddings * 1e4, rows.query, rows.model, rows.accuracy, rows.cost)
    with pytest.raises(BadInput, match=r"client client-0: embeddings .* normalize them to length one"):
        learn(federation(large), POOL)


def test_settings_that_make_no_sense_are_refused():
    with pytest.raises(BadInput, match="directions"):
        LinearSettings(directions=0)
    with pytest.raises(BadInput, match="landmarks"):
        KernelSettings(landmarks=0)
