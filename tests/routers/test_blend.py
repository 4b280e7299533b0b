"""Blends: what a router of routers says about its training rows, and which routers can be its parts."""

import numpy as np
import pytest

from conftest import drawn_evaluations
from fedrouter.engines.local import single_owner
from fedrouter.errors import BadInput
from fedrouter.federation.families.registry import FAMILIES
from fedrouter.routers.blend import BlendRouter, pack_routers, unpack_routers

ROWS = drawn_evaluations(200)


def learn(name):
    return FAMILIES[name].learn(single_owner("one", ROWS), ROWS.pool, FAMILIES[name].settings())


@pytest.fixture(scope="module")
def blend():
    return BlendRouter(ROWS.pool, (learn("query_blind"), learn("kmeans"), learn("kernel")), (0.2, 0.3, 0.5))


def test_regions_are_those_of_the_first_part_that_knows_where_queries_lie(blend):
    blind, kmeans, kernel = blend.parts
    assert blind.regions() is None
    assert blind.cells() is None
    assert BlendRouter(ROWS.pool, (blind, learn("linear")), (0.5, 0.5)).regions() is None
    assert blend.regions() is kmeans.centres
    assert blend.cells().count is kmeans.sums.count
    assert BlendRouter(ROWS.pool, (blind, kernel), (0.5, 0.5)).regions() is kernel.features.points


def test_rows_of_each_model_are_those_of_any_part(blend):
    expected = np.bincount(ROWS.model, minlength=3)
    for router in (blend, *blend.parts):
        assert np.array_equal(router.rows_by_model(), expected)


def test_a_blend_cannot_be_part_of_a_blend(blend):
    with pytest.raises(BadInput, match="auto router: made of other routers"):
        unpack_routers(ROWS.pool, ["auto"], pack_routers([blend]))


def test_the_error_of_a_blend_has_the_parts_own_errors_and_their_disagreement(blend):
    queries = ROWS.embeddings[:20]
    found, parts = blend.estimate(queries), [part.estimate(queries) for part in blend.parts]
    own, apart = (
        sum(weight * square for weight, square in zip(blend.weights, squares, strict=True))
        for squares in ([one.error**2 for one in parts], [(one.accuracy - found.accuracy) ** 2 for one in parts])
    )
    assert found.error**2 == pytest.approx(own + apart)
    assert (apart > 0).all()
