"""What the page reads and keeps, in both databases: activity over time, searches of the log, the history of quality."""

import pytest

from fedrouter.store import page
from fedrouter.store.page import HOUR, Filters, Point, activity, note_quality, quality_since, search, spent_by_key
from fedrouter.store.records import Record, new_id
from fedrouter.store.store import Store


@pytest.fixture
def store(url):
    """An open, empty store, in each database."""
    with Store.open(url) as opened:
        yield opened


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


def test_spending_is_summed_by_key(store):
    store.append([record(10.0), record(20.0, cost=None), record(20.0, key="b"), record(1.0)])
    with store.reading() as connection:
        assert spent_by_key(connection, 5.0) == pytest.approx({"a": 0.1, "b": 0.1})
        assert spent_by_key(connection, 5.0, "b") == pytest.approx({"b": 0.1})


@pytest.fixture
def filled(store):
    store.append(
        [
            record(1.0, key="a", served="small", score=0.2),
            record(2.0, key="b", served="large", reason="named", cost=2.0, text="Is a 100%_sure?"),
            record(3.0, key="a", chosen="large", served=None, status="timeout", cost=None),
            record(4.0, key="a", served="small", score=1.0, text="x" * 1000),
        ]
    )
    return store


@pytest.mark.parametrize(
    ("filters", "times"),
    [
        (Filters(), [4, 3, 2, 1]),
        (Filters(key="a"), [4, 3, 1]),
        (Filters(model="large"), [3, 2]),
        (Filters(reason="named"), [2]),
        (Filters(status="timeout"), [3]),
        (Filters(scored="yes"), [4, 1]),
        (Filters(scored="low"), [1]),
        (Filters(scored="no"), [3, 2]),
        (Filters(least_cost=1.0), [2]),
        (Filters(key="b", scored="yes"), []),
        (Filters(text="A 100%_"), [2]),
        (Filters(text="100%%"), []),
    ],
)
def test_filters_restrict_the_list(filled, filters, times):
    with filled.reading() as connection:
        assert [row["time"] for row in search(connection, filters, 10).rows] == times


def test_pages_follow_each_other_and_end(filled):
    with filled.reading() as connection:
        first = search(connection, Filters(), 3)
        rest = search(connection, Filters(), 3, first.next)
    assert [row["time"] for row in first.rows + rest.rows] == [4, 3, 2, 1]
    assert rest.next is None


def test_a_search_looks_at_a_bounded_part_of_the_log_and_says_where_to_continue(filled, monkeypatch):
    monkeypatch.setattr(page, "LOOKED_AT", 2)
    with filled.reading() as connection:
        first = search(connection, Filters(reason="named"), 10)
        rest = search(connection, Filters(reason="named"), 10, first.next)
    assert first.rows == []
    assert [row["time"] for row in rest.rows] == [2]


def test_lists_have_the_beginning_of_a_prompt_and_no_embedding(filled):
    with filled.reading() as connection:
        row = search(connection, Filters(), 1).rows[0]
    assert row["text"] == "x" * page.SHOWN_TEXT
    assert "embedding" not in row


def test_an_hour_has_its_latest_measurement_and_earlier_hours_stay(store):
    def point(hour: int, minute: int, kept: float) -> Point:
        return Point(hour, float(hour * HOUR + 60 * minute), kept, kept - 0.1, kept + 0.1, 0.3, 0.0)

    for each in (point(1, 5, 0.9), point(1, 55, 0.8), point(2, 1, 0.95)):
        with store.writing() as connection:
            note_quality(connection, each)
    with store.reading() as connection:
        assert quality_since(connection, 0.0) == [point(1, 55, 0.8), point(2, 1, 0.95)]
        assert quality_since(connection, 2.0 * HOUR) == [point(2, 1, 0.95)]
