"""The feature map: fixed, bounded, and the same for a query whatever else is asked."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedrouter.encoders.cells import Cells
from fedrouter.encoders.feature_map import DIRECTIONS, UNIT, FeatureMap, directions, map_of_width
from fedrouter.encoders.shape import STATISTICS
from fedrouter.encoders.static import static_encoder
from fedrouter.errors import BadInput


def drawn(queries, dimension, seed=0):
    return np.random.default_rng(seed).normal(size=(queries, dimension)).astype(np.float32)


CELLS = Cells(drawn(7, 300, 1).astype(float), np.full(7, 1 / 4), (3, 4), 300.0)


def test_directions_are_orthogonal_and_the_same_everywhere():
    found = directions(275)
    assert found.shape == (275, DIRECTIONS)
    assert found.T @ found == pytest.approx(np.eye(DIRECTIONS), abs=1e-8)
    assert found[0, :3].tolist() == directions.__wrapped__(275)[0, :3].tolist()


def test_static_has_words_and_shape_as_blocks():
    encoder = static_encoder()
    features = map_of_width(encoder.identity().dimension)
    assert features.blocks == (DIRECTIONS, len(STATISTICS))
    found = features(encoder.encode(["What is 2 + 2?", ""]))
    assert found.shape == (2, features.width)
    assert (found[:, 0] == UNIT).all()


@pytest.mark.parametrize("dimension", [12, 64, 768])
def test_an_embedding_of_length_one_has_features_of_about_length_one(dimension):
    features = map_of_width(dimension)
    assert features.blocks == (min(dimension, DIRECTIONS),)
    queries = drawn(200, dimension)
    queries /= np.linalg.norm(queries, axis=1, keepdims=True)
    assert np.median(np.linalg.norm(features.features(queries)[:, 1:], axis=1)) == pytest.approx(1, abs=0.05)


@settings(max_examples=30, deadline=None)
@given(st.floats(1e-3, 1e4), st.integers(0, 2**32 - 1))
def test_psi_is_never_longer_than_one(scale, seed):
    features = FeatureMap(40, 5, scales=(0.1, 0.2))
    found = features(drawn(20, 40, seed) * np.float32(scale))
    assert (np.linalg.norm(found[:, 1:] / UNIT, axis=1) <= 1).all()


def test_features_of_a_query_do_not_depend_on_the_others():
    features = FeatureMap(300, 19, cells=CELLS)
    queries = drawn(500, 300)
    together = features(queries)
    for some in (slice(0, 1), slice(3, 40), slice(499, 500)):
        assert (features(queries[some]) == together[some]).all()


def test_served_features_are_those_of_the_sums_up_to_rounding():
    features = FeatureMap(300, 19, cells=CELLS)
    queries = drawn(200, 300)
    assert features.features(queries) == pytest.approx(features(queries) / UNIT, abs=1e-4)


def test_a_map_is_read_back_with_its_digest():
    features = FeatureMap(300, 19, (0.7, 0.5), CELLS)
    again = FeatureMap.from_arrays(features.arrays())
    assert again.digest == features.digest
    assert again.without_cells().digest != features.digest


@pytest.mark.parametrize(
    ("change", "words"),
    [({"shape": 30}, "fewer than 30"), ({"scales": (0.0, 1.0)}, "scales"), ({"cells": CELLS}, "the same width")],
)
def test_constants_that_do_not_fit_are_refused(change, words):
    with pytest.raises(BadInput, match=words):
        FeatureMap(**{"dimension": 30, **change})
