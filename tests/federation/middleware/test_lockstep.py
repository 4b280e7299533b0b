"""Algorithms in lockstep: what they ask at the same time travels together, and nothing else changes."""

import threading

import pytest

from fedrouter.engines.local import LocalFederation
from fedrouter.federation.federation import Middleware
from fedrouter.federation.middleware.lockstep import in_lockstep
from fedrouter.federation.middleware.memo import Memo
from fedrouter.testing.engines import NAMES, REQUESTS, content
from fedrouter.testing.samples import sample_clients


class Counted(Middleware):
    """Lists the verbs of each exchange."""

    def __init__(self):
        self.federation, self.exchanges = LocalFederation(sample_clients(*NAMES)), []

    def clients(self):
        return self.federation.clients()

    def ask_all(self, questions, to=None):
        self.exchanges.append([question.verb for question in questions])
        return self.federation.ask_all(questions, to)


def asking(*verbs, to=None):
    """An algorithm that asks these verbs one after another."""
    return lambda federation: [federation.ask(verb, REQUESTS[verb], to) for verb in verbs]


def test_what_is_asked_at_the_same_time_travels_together():
    federation = Counted()
    results = in_lockstep(federation, [asking("hello"), asking("cluster", "statistics"), asking("cost_scale", "hello")])
    assert federation.exchanges == [["hello", "cluster", "cost_scale"], ["statistics", "hello"]]
    assert [len(result) for result in results] == [1, 2, 2]
    alone = LocalFederation(sample_clients(*NAMES)).ask("statistics", REQUESTS["statistics"])
    assert {name: content(reply) for name, reply in results[1][1].items()} == {
        name: content(reply) for name, reply in alone.items()
    }


def test_algorithms_that_ask_other_clients_get_exchanges_of_their_own():
    federation = Counted()
    two = asking("hello", to=["beta", "alpha"]), asking("cluster", to=["alpha", "beta"])
    results = in_lockstep(federation, [two[0], asking("hello"), two[1]])
    assert [list(replies) for replies, *_ in results] == [["alpha", "beta"], sorted(NAMES), ["alpha", "beta"]]
    assert federation.exchanges == [["hello", "cluster"], ["hello"]]


def test_lockstep_inside_lockstep():
    federation = Counted()

    def both(seat):
        return in_lockstep(seat, [asking("hello"), asking("cluster")])

    in_lockstep(federation, [both, asking("statistics", "cost_scale")])
    assert federation.exchanges == [["hello", "cluster", "statistics"], ["cost_scale"]]


def test_the_federation_is_used_by_the_callers_thread_alone():
    used = set()

    class Watching(Counted):
        def ask_all(self, questions, to=None):
            used.add(threading.current_thread())
            return super().ask_all(questions, to)

    in_lockstep(Watching(), [asking("hello", "cluster"), asking("cost_scale")])
    assert used == {threading.current_thread()}


@pytest.mark.parametrize("place", [0, 1])
def test_an_error_ends_all_and_leaves_no_thread(place):
    before = threading.active_count()
    ended = []

    def failing(federation):
        federation.ask("hello", REQUESTS["hello"])
        raise LookupError("lost")

    def patient(federation):
        try:
            asking("hello", "cluster", "statistics")(federation)
        finally:
            ended.append(True)

    algorithms = [patient, patient]
    algorithms.insert(place, failing)
    with pytest.raises(LookupError, match="lost"):
        in_lockstep(Counted(), algorithms)
    assert len(ended) == 2
    assert threading.active_count() == before


def test_an_error_of_the_federation_ends_all():
    class Broken(Counted):
        def ask_all(self, questions, to=None):
            raise OSError("network")

    before = threading.active_count()
    with pytest.raises(OSError, match="network"):
        in_lockstep(Broken(), [asking("hello"), asking("cluster")])
    assert threading.active_count() == before


def test_nothing_to_run_asks_nothing():
    federation = Counted()
    assert in_lockstep(federation, []) == []
    assert not federation.exchanges


def test_an_identical_question_is_asked_once():
    federation = Counted()
    once = Memo(federation)
    first, second = in_lockstep(once, [asking("cluster", "hello"), asking("cluster", "cost_scale")])
    assert first[0] is second[0]
    asking("hello", "cost_scale")(once)
    assert federation.exchanges == [["cluster"], ["hello", "cost_scale"]]
    assert list(asking("hello", to=["alpha"])(once)[0]) == ["alpha"]
    assert list(in_lockstep(once, [asking("hello", to=["beta"])])[0][0]) == ["beta"]


def test_a_memo_forgets_the_oldest_replies_where_there_is_no_room():
    federation = Counted()
    once = Memo(federation, most_bytes=1)
    asking("hello", "hello")(once)
    assert federation.exchanges == [["hello"], ["hello"]]
