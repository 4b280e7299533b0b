"""Activity over time equals sums over the rows, for one key or all, in both databases."""

import pytest

from fedrouter.store.page.activity import activity
from fedrouter.store.records import Record, new_id


def record(at: float, **more) -> Record:
    values = {"key": "a", "chosen": "small", "reason": "best", "cost": 0.1, "baseline_cost": 1.0} | more
    return Record(new_id(at), at, bundle="b", version=1, family="kmeans", tradeoff=1.0, **values)


def test_activity_is_summed_by_bucket_model_and_whether_it_was_routed(store):
    store.append(
        [
            record(100.0, score=0.5),
            record(159.9, score=1.0, cost=0.3),
            record(160.0, served="large"),
            record(170.0, reason="named", served="large", baseline_cost=None),
            record(171.0, key="b", status="timeout", cost=None),
        ]
    )
    with store.reading() as connection:
        rows = activity(connection, 60.0, 60.0)
        own = activity(connection, 60.0, 60.0, "b")
        late = activity(connection, 165.0, 60.0)
    found = {(row.start, row.model, row.routed): row for row in rows}
    first, second = found[60.0, "small", True], found[120.0, "small", True]
    assert (first.requests, first.scored, first.score, first.squares) == (1, 1, 0.5, 0.25)
    assert (second.requests, second.errors) == (2, 1)
    assert (second.cost, second.compared_cost, second.baseline_cost) == pytest.approx((0.3, 0.3, 1.0))
    assert found[120.0, "large", False].baseline_cost == 0
    assert found[120.0, "large", True].requests == 1
    assert [(row.requests, row.errors) for row in own] == [(1, 1)]
    assert sum(row.requests for row in late) == 2
