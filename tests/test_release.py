"""The release: what one query can move, whatever it holds, and what a posterior makes of totals with noise."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conftest import drawn_evaluations
from fedrouter.encoders.cells import Cells
from fedrouter.encoders.feature_map import UNIT, FeatureMap
from fedrouter.errors import BadInput
from fedrouter.evaluations import Evaluations
from fedrouter.evidence import ACCURACY, Evidence
from fedrouter.pool import ModelPool
from fedrouter.release import SENSITIVITY, Release

DIMENSION = 6
MAP = FeatureMap(DIMENSION, scales=(0.05, 1.0))  # so short a scale that ψ always has length one


def of_one_query(models, seed, repeats=1, extreme=True):
    draw = np.random.default_rng(seed)
    pool = ModelPool([f"model-{one}" for one in range(11)])
    model = np.tile(draw.permutation(11)[:models], repeats)
    size = len(model)
    accuracy = draw.integers(0, 2, size).astype(float) if extreme else draw.random(size)
    cost = np.where(draw.random(size) < 0.5, 0.0, 1e6) if extreme else 10 ** draw.uniform(-6, 1, size)
    return Evaluations(pool, draw.normal(size=(1, DIMENSION)), np.zeros(size), model, accuracy, cost)


@settings(max_examples=60, deadline=None)
@given(st.sampled_from([1, 2, 5, 11]), st.integers(0, 2**32 - 1), st.integers(1, 3), st.booleans())
def test_a_query_moves_the_vector_by_at_most_the_sensitivity(models, seed, repeats, extreme):
    vector = Release.of(of_one_query(models, seed, repeats, extreme), MAP).vector()
    assert np.linalg.norm(vector / UNIT) <= SENSITIVITY


@pytest.mark.parametrize("models", [1, 2, 5, 11])
def test_the_bound_is_reached(models):
    """ψ along one axis: then the upper triangle of ψψᵀ has length one, too."""
    rows = of_one_query(models, 0)
    rows = replace(rows, embeddings=np.eye(1, DIMENSION), accuracy=np.ones(models), cost=np.full(models, 1e6))
    straight = replace(MAP)
    object.__setattr__(straight, "_directions", np.eye(DIMENSION))
    vector = Release.of(rows, straight).vector()
    assert np.linalg.norm(vector / UNIT) == pytest.approx(SENSITIVITY, rel=1e-3)


def test_releases_of_members_add_up_to_that_of_all():
    rows = drawn_evaluations(queries=60)
    features = FeatureMap(rows.dimension)
    whole = Release.of(rows, features)
    parts = [Release.of(rows.of_queries(np.flatnonzero(np.arange(60) % 3 == one)), features) for one in range(3)]
    total = parts[0] + parts[1] + parts[2]
    assert (total.vector() == whole.vector()).all()


def test_a_member_without_rows_sends_zeros_of_the_same_length():
    rows = drawn_evaluations(queries=10)
    features = FeatureMap(rows.dimension)
    empty = Release.of(rows.take([]), features).vector()
    assert len(empty) == len(Release.of(rows, features).vector())
    assert not empty.any()


def test_repeated_evaluations_are_averaged():
    rows = drawn_evaluations(queries=12)
    twice = Evaluations(
        rows.pool,
        rows.embeddings,
        np.tile(rows.query, 2),
        np.tile(rows.model, 2),
        np.tile(rows.accuracy, 2),
        np.tile(rows.cost, 2),
    )
    features = FeatureMap(rows.dimension)
    assert (Release.of(rows, features).vector() == Release.of(twice, features).vector()).all()


def test_a_gram_matrix_is_close_to_that_of_the_rows_where_models_share_queries():
    rows = drawn_evaluations(queries=3_000)
    features = FeatureMap(rows.dimension)
    one_each = rows.take(np.unique(rows.query, return_index=True)[1])
    exact = Evidence.of(one_each, features).moments().gram
    found = Release.of(one_each, features).approximate_gram()
    assert found == pytest.approx(exact, abs=0.1 * exact.max())


def test_products_drowned_in_noise_count_for_little():
    rows = drawn_evaluations(queries=400)
    release = Release.of(rows, FeatureMap(rows.dimension))
    clear, drowned = (replace(release, noise=noise).moments(ACCURACY)[0][0, 0, 0] for noise in (0.0, 30.0))
    assert drowned < clear / 2


def test_cells_do_not_leave():
    rows = drawn_evaluations(queries=10)
    with pytest.raises(BadInput, match="do not leave"):
        Release.of(rows, FeatureMap(rows.dimension, cells=Cells(np.eye(2, rows.dimension), np.ones(2) / 2, (2,))))


def test_a_release_is_read_back():
    rows = drawn_evaluations(queries=10)
    features = FeatureMap(rows.dimension)
    release = replace(Release.of(rows, features), noise=0.5)
    again = Release.from_arrays(rows.pool, features, release.arrays())
    assert (again.vector() == release.vector()).all()
    assert again.noise == 0.5
    with pytest.raises(BadInput, match="'first'"):
        Release.from_arrays(rows.pool, features, {**release.arrays(), "first": release.first[1:]})
