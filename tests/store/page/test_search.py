"""Searches of the log: filters, pages, and a bound on what one search looks at."""

import pytest

from fedrouter.store.page import search as searching
from fedrouter.store.page.search import Filters, newer, search
from fedrouter.store.records import Record, new_id


def record(at: float, **more) -> Record:
    values = {"key": "a", "chosen": "small", "reason": "best", "cost": 0.1} | more
    return Record(new_id(at), at, bundle="b", version=1, family="kmeans", tradeoff=1.0, **values)


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
    monkeypatch.setattr(searching, "LOOKED_AT", 2)
    with filled.reading() as connection:
        first = search(connection, Filters(reason="named"), 10)
        rest = search(connection, Filters(reason="named"), 10, first.next)
    assert first.rows == []
    assert [row["time"] for row in rest.rows] == [2]


def test_lists_have_the_beginning_of_a_prompt_and_no_embedding(filled):
    with filled.reading() as connection:
        row = search(connection, Filters(), 1).rows[0]
    assert row["text"] == "x" * searching.SHOWN_TEXT
    assert "embedding" not in row


def test_newer_decisions_are_those_of_a_key_after_one(filled):
    with filled.reading() as connection:
        assert [row["time"] for row in newer(connection, (2.0, "z"), None, 10)] == [4, 3]
        assert [row["time"] for row in newer(connection, (0.0, ""), "b", 10)] == [2]
