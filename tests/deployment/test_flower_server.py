"""Who takes part in a run: those on the roster that are connected, or come in time."""

from dataclasses import replace

import pytest

from fedrouter.deployment.flower_server import gather, wanted
from fedrouter.deployment.homes import make_coordinator_home
from fedrouter.deployment.jobs import Job
from fedrouter.errors import BadInput

MEMBERS = {"beta": 2, "alpha": 1, "gamma": 3}


class Doorway:
    """What of a grid is looked at: who is connected, at each look one more."""

    def __init__(self, *looks):
        self.looks = list(looks)

    def get_node_ids(self):
        return self.looks.pop(0) if len(self.looks) > 1 else self.looks[0]


def test_all_take_part_once_all_are_connected():
    told = []
    found = gather(MEMBERS, Job(gather=60), Doorway([1], [1, 2, 3, 99]), lambda *words: told.append(words))
    assert found == ("alpha", "beta", "gamma")
    assert told == []


def test_who_does_not_come_in_time_is_named_and_left_out():
    told = []
    found = gather(MEMBERS, Job(gather=0), Doorway([3, 1]), lambda *words: told.append(words))
    assert found == ("alpha", "gamma")
    assert told == [("beta", "hello", "not connected")]


def test_only_those_a_job_names_are_wanted_and_they_must_be_enrolled(tmp_path):
    home = make_coordinator_home(tmp_path / "home", ("localhost",))
    charter = home.charter()
    for name, node in MEMBERS.items():
        charter = charter.with_client(name, f"key of {name}", node)
    home.write_charter(charter)
    assert wanted(home, Job()) == MEMBERS
    assert wanted(home, Job(clients=("gamma",))) == {"gamma": 3}
    with pytest.raises(BadInput, match="zeta: not on the roster"):
        wanted(home, replace(Job(), clients=("gamma", "zeta")))
