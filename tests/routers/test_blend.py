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


def test_regions_are_those_of_the_first_part_that_has_several(blend):
    blind, kmeans, kernel = blend.parts
    assert len(blind.regions()) == 1
    assert blind.cells() is None
    assert BlendRouter(ROWS.pool, (blind, learn("linear")), (0.5, 0.5)).regions() is blind.centres
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
