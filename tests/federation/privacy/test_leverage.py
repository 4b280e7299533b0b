"""Leverage: how much say a row has in the best combination of what is asked, and what is left out because of it."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedrouter.federation.privacy.leverage import SumsSoFar, heard_evenly, leverage


def test_leverage_is_the_diagonal_of_the_projection_on_the_columns():
    columns = np.random.default_rng(0).normal(size=(40, 5))
    expected = np.diagonal(columns @ np.linalg.pinv(columns))
    assert np.allclose(leverage(columns), expected)
    assert leverage(columns).sum() == pytest.approx(5)


def test_a_row_that_two_columns_single_out_has_all_the_say_however_small_the_gap():
    columns = np.repeat(np.random.default_rng(0).normal(size=(200, 1)), 2, axis=1)
    assert leverage(columns).max() < 0.2
    columns[7, 1] += 2.0**-20  # the least that products can show
    assert leverage(columns)[7] == pytest.approx(1, abs=1e-6)


def test_columns_of_zeros_and_repeated_columns_ask_nothing_more():
    columns = np.random.default_rng(0).normal(size=(40, 3))
    more = np.column_stack([columns, np.zeros(40), columns @ [1, 2, 3]])
    assert np.allclose(leverage(more), leverage(columns), atol=1e-9)
    assert not leverage(np.zeros((4, 2))).any()


@given(st.integers(0, 1000), st.integers(1, 12))
def test_no_query_that_is_heard_has_more_than_its_share(seed, width):
    draw = np.random.default_rng(seed)
    columns = draw.normal(size=(80, width)) * draw.lognormal(0, 2, size=(80, 1))
    query = draw.integers(0, 60, 80)
    kept = heard_evenly(columns, query, 0.2)
    say = np.bincount(query[kept], leverage(columns[kept]), 60) if len(kept) else np.zeros(60)
    assert (say <= 0.2 + 1e-6).all()


def test_three_sums_that_are_one_row_together_are_not_all_admitted():
    p, r, x = (np.arange(21) // 10 == part for part in range(3))
    labels = np.stack([np.where(p | x, 0, -1), np.where(r | x, 0, -1), np.where(p | r, 0, -1)], axis=1)
    sums = SumsSoFar(labels, new=1)
    assert not sums.admits(p | r, 0.5)
    assert sums.admits(p | x, 0.5)  # says nothing new


@given(st.lists(st.lists(st.booleans(), min_size=12, max_size=12), min_size=1, max_size=6))
def test_what_is_admitted_leaves_no_row_more_say_than_allowed(sets):
    asked = np.array(sets)
    admitted: list[np.ndarray] = []
    for rows in asked:
        labels = np.stack([np.where(one, 0, -1) for one in (*admitted, rows)], axis=1)
        if rows.any() and SumsSoFar(labels, new=1).admits(rows, 0.5):
            admitted.append(rows)
    if admitted:
        assert leverage(np.stack(admitted, axis=1).astype(float)).max() <= 0.5 + 1e-6
