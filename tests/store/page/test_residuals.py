"""Sums by day for the test for drift: replaced as a whole, by several processes at once, and never by fewer answers."""

from concurrent.futures import ThreadPoolExecutor

from fedrouter.store.page.residuals import all_sums, put_day

DAY = 20_000
ROWS = [(DAY, 0, "one", 3, 2.0, 1.5), (DAY, 1, "two", 2, 1.0, 1.0)]


def put(store, rows):
    with store.writing() as connection:
        put_day(connection, DAY, rows)


def kept(store):
    with store.reading() as connection:
        return sorted(all_sums(connection))


def test_a_day_is_replaced_as_a_whole(store):
    put(store, ROWS)
    put(store, [(DAY, 0, "one", 6, 4.0, 3.0)])
    assert kept(store) == [(DAY, 0, "one", 6, 4.0, 3.0)]


def test_a_late_score_does_not_make_a_day_forget_answers_that_were_deleted(store):
    put(store, ROWS)
    put(store, [(DAY, 0, "one", 1, 1.0, 0.5)])
    assert kept(store) == ROWS


def test_processes_may_sum_the_same_day_at_once(store):
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: put(store, ROWS), range(40)))
    assert kept(store) == ROWS
