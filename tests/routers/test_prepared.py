"""Routers prepared for serving: those made of others, one of which does not know a model, and queries much alike."""

from dataclasses import replace

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


def close_together(rows, distance=0.003):
    """The same rows with embeddings of length one that are all close to one another, as by one long template."""
    away = np.zeros(rows.embeddings.shape[1])
    away[0] = 1.0
    embeddings = away + distance * rows.embeddings / np.linalg.norm(rows.embeddings, axis=1, keepdims=True)
    embeddings /= np.linalg.norm(embeddings, axis=1, keepdims=True)
    return replace(rows, embeddings=embeddings.astype(np.float32))


@pytest.mark.parametrize("name", ["kmeans", "kernel", "linear"])
def test_queries_that_are_much_alike_are_told_apart(name):
    rows = close_together(drawn_evaluations(400))
    routers = [learn(name, rows)]
    if name == "kmeans":
        routers.append(replace(routers[0], soft=True))
    for router in routers:
        expected, found = router.estimate(rows.embeddings), router.prepared(np.arange(3))(rows.embeddings)
        np.testing.assert_allclose(found.means[:, :3], expected.accuracy, atol=1e-3)
        np.testing.assert_allclose(found.means[:, 3:], expected.cost, rtol=1e-3)
        np.testing.assert_allclose(found.error(slice(None)), expected.error, atol=1e-3)
