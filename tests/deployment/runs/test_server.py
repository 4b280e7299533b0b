"""Which clients take part in a run: those on the roster that are connected, or connect in time."""

from dataclasses import replace

import pytest

from fedrouter.deployment.runs.job import Job
from fedrouter.deployment.runs.server import gather, invited
from fedrouter.deployment.state.directories import create_coordinator
from fedrouter.errors import BadInput
from fedrouter.federation.middleware.quorum import QuorumLost


class Log:
    """What is written to a run's progress."""

    def __init__(self):
        self.dropouts, self.events = [], []

    def dropped(self, *report):
        self.dropouts.append(report)

    def write(self, event, **fields):
        self.events.append((event, fields))


MEMBERS = {"beta": 2, "alpha": 1, "gamma": 3}


class Connection:
    """Connected nodes, from one poll to the next."""

    def __init__(self, *polls):
        self.polls = list(polls)

    def connected_nodes(self):
        return self.polls.pop(0) if len(self.polls) > 1 else self.polls[0]


def test_all_take_part_once_all_are_connected():
    log = Log()
    found = gather(MEMBERS, Job(gather=60), Connection([1], [1], [1, 2, 3, 99]), log)
    assert found == ("alpha", "beta", "gamma")
    assert log.dropouts == []
    assert log.events == [("waiting", {"clients": ["beta", "gamma"], "seconds": 60})]


def test_who_does_not_come_in_time_is_named_and_left_out():
    log = Log()
    found = gather(MEMBERS, Job(gather=0), Connection([3, 1]), log)
    assert found == ("alpha", "gamma")
    assert log.dropouts == [("beta", "hello", "not connected")]


def test_the_quorum_counts_those_that_are_enrolled_not_those_that_happen_to_be_connected():
    with pytest.raises(QuorumLost, match="1 of 3 enrolled clients are connected, the quorum is 2"):
        gather(MEMBERS, Job(gather=0, quorum=2), Connection([3]), Log())


def test_only_those_a_job_names_are_invited_and_they_must_be_enrolled(tmp_path):
    directory = create_coordinator(tmp_path / "directory", ("localhost",))
    config = directory.config()
    for name, node in MEMBERS.items():
        config = config.with_client(name, f"key of {name}", node)
    directory.write_config(config)
    assert invited(directory, Job()) == MEMBERS
    assert invited(directory, Job(clients=("gamma",))) == {"gamma": 3}
    with pytest.raises(BadInput, match="--quorum 4: only 3 clients are enrolled"):
        invited(directory, Job(quorum=4))
    with pytest.raises(BadInput, match="zeta: not on the roster"):
        invited(directory, replace(Job(), clients=("gamma", "zeta")))
