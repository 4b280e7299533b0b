"""A client's folds: a query keeps its own as the log grows, whoever else is in it, and they are about equally large."""

import numpy as np

from conftest import drawn_evaluations
from fedrouter.evaluations import Evaluations
from fedrouter.federation.client import Client
from fedrouter.federation.privacy.policy import OPEN
from fedrouter.federation.privacy.rows import FOLDS, PrivateRows, folds
from fedrouter.federation.verbs.second_moment import SecondMomentRequest

ROWS = drawn_evaluations(queries=300, seed=2)
MORE = drawn_evaluations(queries=77, seed=3)


def test_a_query_keeps_its_fold_as_the_log_grows_or_shrinks():
    before = folds(ROWS.embeddings, "alpha")
    grown = Evaluations.concatenate([ROWS, MORE])
    assert np.array_equal(folds(grown.embeddings, "alpha")[: ROWS.queries], before)
    assert np.array_equal(folds(ROWS.embeddings[::-1], "alpha"), before[::-1])
    kept = np.arange(0, ROWS.queries, 3)
    assert np.array_equal(folds(ROWS.embeddings[kept], "alpha"), before[kept])


def test_sums_without_a_fold_change_by_the_new_queries_alone():
    asked = SecondMomentRequest(fold=1)
    first, grown, new = (
        Client("alpha", rows, OPEN).answer("second_moment", asked)
        for rows in (ROWS, Evaluations.concatenate([ROWS, MORE]), MORE)
    )
    assert grown.count - first.count == new.count
    assert ((first + new).total.limbs == grown.total.limbs).all()


def test_folds_are_about_equally_large_and_differ_between_clients():
    many = drawn_evaluations(queries=5000, seed=5).embeddings
    sizes = np.bincount(folds(many, "alpha"), minlength=FOLDS)
    # Four standard deviations of a multinomial draw.
    assert np.abs(sizes - 1000).max() < 4 * np.sqrt(5000 * 0.2 * 0.8)
    assert 0.1 < (folds(many, "alpha") == folds(many, "beta")).mean() < 0.3


def test_a_query_that_was_asked_twice_is_in_one_fold():
    twice = np.concatenate([ROWS.embeddings, ROWS.embeddings[:50]])
    found = folds(twice, "alpha")
    assert np.array_equal(found[:50], found[-50:])


def test_every_row_is_in_one_fold_and_outside_the_others():
    rows = PrivateRows("alpha", ROWS, None)
    inside = [rows.of_models(SecondMomentRequest(fold=fold), ROWS.pool.names, in_fold=True) for fold in range(FOLDS)]
    outside = [rows.of_models(SecondMomentRequest(fold=fold), ROWS.pool.names) for fold in range(FOLDS)]
    assert sum(map(len, inside)) == len(ROWS)
    assert all(len(one) + len(rest) == len(ROWS) for one, rest in zip(inside, outside, strict=True))
