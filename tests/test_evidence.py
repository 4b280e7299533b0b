"""Evidence adds, subtracts and scales; it is the same to the bit however it was added up."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conftest import drawn_evaluations
from fedrouter.encoders.feature_map import UNIT, FeatureMap
from fedrouter.errors import BadInput
from fedrouter.evaluations import Evaluations, Unscored
from fedrouter.evidence import ACCURACY, COST, SECONDS, Evidence, logarithm, outcome_of, total
from fedrouter.pool import ModelPool


def map_of(rows):
    return FeatureMap(rows.dimension)


def test_evidence_is_the_sums_it_says():
    rows = drawn_evaluations(queries=60)
    features = map_of(rows)
    found = Evidence.of(rows, features)
    phi = features(rows.embeddings) / UNIT
    for model in range(len(rows.pool)):
        own = rows.model == model
        x = phi[rows.query[own]]
        moments = found.moments()
        assert found.count[model] == own.sum()
        assert moments.gram[model] == pytest.approx(x.T @ x, abs=1e-9)
        y = np.stack([outcome_of(rows.accuracy[own]), logarithm(rows.cost[own], -3.0)])
        assert moments.products[model, [ACCURACY, COST]] == pytest.approx(y @ x, abs=1e-3)
        assert moments.squares[model, [ACCURACY, COST]] == pytest.approx((y**2).sum(axis=1), abs=1e-3)


@settings(max_examples=20, deadline=None)
@given(st.lists(st.integers(0, 3), min_size=50, max_size=50), st.randoms())
def test_parts_add_up_to_the_whole_in_any_order_and_subtract_again(part, shuffle):
    rows = drawn_evaluations(queries=50)
    features = map_of(rows)
    whole = Evidence.of(rows, features)
    owner = np.array(part)[rows.query]
    parts = [Evidence.of(rows.take(np.flatnonzero(owner == one)), features) for one in range(4) if (owner == one).any()]
    shuffle.shuffle(parts)
    assert total(parts) == whole
    rest = whole
    for one in parts[1:]:
        rest = rest - one
    assert rest == parts[0]


def test_what_was_never_added_cannot_be_subtracted():
    rows = drawn_evaluations(queries=30)
    other = drawn_evaluations(queries=30, seed=5)
    with pytest.raises(BadInput, match="not part of this evidence"):
        Evidence.of(rows, map_of(rows)) - (Evidence.of(rows, map_of(rows)) + Evidence.of(other, map_of(rows)))


def test_evidence_counts_for_less_when_scaled():
    rows = drawn_evaluations(queries=80)
    whole = Evidence.of(rows, map_of(rows))
    half = whole.scaled(0.5)
    assert half.moments().gram == pytest.approx(whole.moments().gram / 2, abs=1e-8)
    assert whole.scaled(1) == whole
    assert not whole.scaled(0).gram.any()
    with pytest.raises(BadInput, match="share from 0 to 1"):
        whole.scaled(2)


def test_models_are_joined_by_name():
    rows = drawn_evaluations(queries=40)
    renamed = Evaluations(
        ModelPool(["new", "model-1", "model-0"]), rows.embeddings, rows.query, rows.model, rows.accuracy, rows.cost
    )
    features = map_of(rows)
    both = total([Evidence.of(rows, features), Evidence.of(renamed, features)])
    assert both.pool.names == ("model-0", "model-1", "model-2", "new")
    counts = np.bincount(rows.model, minlength=3)
    assert both.count.tolist() == [counts[0] + counts[2], 2 * counts[1], counts[2], counts[0]]


def test_evidence_of_other_features_does_not_add():
    rows = drawn_evaluations(queries=20)
    other = FeatureMap(rows.dimension, scales=(2.0, 1.0))
    with pytest.raises(BadInput, match="another feature map"):
        Evidence.of(rows, map_of(rows)) + Evidence.of(rows, other)


def test_evidence_is_read_back_to_the_bit():
    rows = drawn_evaluations(queries=30)
    found = Evidence.of(rows, map_of(rows))
    assert Evidence.from_arrays(rows.pool, found.arrays()) == found
    with pytest.raises(BadInput, match="'gram'"):
        Evidence.from_arrays(rows.pool, {**found.arrays(), "gram": found.gram[:, 1:]})


def test_rows_without_a_score_count_for_levels_of_cost_and_seconds_only():
    rows = drawn_evaluations(queries=30)
    found = Evidence.of_unscored(Unscored(rows.pool, rows.model, rows.cost, rows.cost * 10), map_of(rows))
    assert not any(getattr(found, name).any() for name in ("gram", "products", "squares"))
    assert np.array_equal(found.levels[:, COST], Evidence.of(rows, map_of(rows)).levels[:, COST])
    levels = found.moments().levels
    assert levels[:, ACCURACY].tolist() == [[0, 0, 0]] * len(rows.pool)
    for model in range(len(rows.pool)):
        y = logarithm(rows.cost[rows.model == model] * 10, 0.5)
        assert levels[model, SECONDS] == pytest.approx([len(y), y.sum(), (y**2).sum()], abs=1e-3)


def test_seconds_are_an_outcome_where_a_log_has_them():
    rows = drawn_evaluations(queries=30)
    seconds = np.where(np.arange(len(rows)) % 3 == 0, np.nan, 2.0)
    timed = replace(rows, seconds=seconds)
    found = Evidence.of(timed, map_of(rows)).moments()
    y = logarithm(2.0, 0.5)
    count = np.bincount(rows.model[np.isfinite(seconds)], minlength=len(rows.pool))
    assert found.levels[:, SECONDS, 0] == pytest.approx(count)
    assert found.products[:, SECONDS, 0] == pytest.approx(count * y, abs=1e-3)


def test_blocks_of_queries_do_not_change_the_sums(monkeypatch):
    rows = drawn_evaluations(queries=90)
    whole = Evidence.of(rows, map_of(rows))
    monkeypatch.setattr("fedrouter.evidence.AT_ONCE", 7)
    assert Evidence.of(rows, map_of(rows)) == whole


def test_sums_that_would_overflow_are_refused():
    evidence = Evidence.of(drawn_evaluations(queries=60), map_of(drawn_evaluations(queries=1)))
    for _ in range(25):
        evidence += evidence
    assert evidence.possible
    assert evidence.count.max() > 2**29
    with pytest.raises(BadInput, match="fit in one sum"):
        evidence + evidence
