"""Routers prepared for serving: those made of others, where one of these does not know a model."""

import numpy as np
import pytest

from conftest import drawn_evaluations
from fedrouter.engines.local import single_owner
from fedrouter.federation.families.registry import FAMILIES
from fedrouter.routers.blend import BlendRouter
from fedrouter.routers.personal import PersonalRouter

ROWS = drawn_evaluations(200)
LAST = len(ROWS.pool) - 1
WITHOUT_LAST = ROWS.take(np.flatnonzero(ROWS.model != LAST))


def learn(name, rows=ROWS):
    return FAMILIES[name].learn(single_owner("one", rows), rows.pool, FAMILIES[name].settings())


def composite(partly):
    """Routers with a part that does not know the last model, or with none that does."""
    other = ROWS if partly else WITHOUT_LAST
    own = np.array([0.3, 1.0, 0.0])
    return (
        BlendRouter(ROWS.pool, (learn("kmeans", WITHOUT_LAST), learn("linear", other)), (0.4, 0.6)),
        BlendRouter(ROWS.pool, (learn("kernel", WITHOUT_LAST), learn("query_blind", other)), (0.5, 0.5)),
        PersonalRouter(ROWS.pool, learn("kernel", other), learn("kmeans", WITHOUT_LAST), own, own / 2),
    )


@pytest.mark.parametrize("partly", [True, False])
@pytest.mark.parametrize("index", range(3))
def test_a_part_that_does_not_know_a_model_has_no_say_in_it(partly, index):
    router = composite(partly)[index]
    queries, models = ROWS.embeddings[:7], np.array([LAST, 1, 0])
    expected, prepared = router.estimate(queries), router.prepared(models)
    found = prepared(queries)
    assert prepared.known.tolist() == expected.usable[models].tolist() == [partly, True, True]
    assert np.isfinite(found.means).all()
    assert np.isfinite(found.error(slice(None))).all()
    known = np.flatnonzero(prepared.known)
    for values, name in (
        (found.means[:, :3], "accuracy"),
        (found.means[:, 3:], "cost"),
        (found.error(slice(None)), "error"),
    ):
        np.testing.assert_allclose(values[:, known], getattr(expected, name)[:, models[known]], rtol=1e-5)
