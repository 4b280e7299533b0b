"""A client that leaves a federation across machines takes its own sums with it, exactly, and nobody else is asked."""

from dataclasses import replace

import pytest

from conftest import drawn_evaluations
from fedrouter.bundle import load
from fedrouter.deployment.runs.job import Job
from fedrouter.deployment.runs.perform import perform
from fedrouter.deployment.runs.progress import ProgressLog
from fedrouter.engines.local import LocalFederation
from fedrouter.errors import BadInput
from fedrouter.federation.client import Client

KMEANS = Job(family="kmeans", settings={"k_local": 4, "k_global": 5})


def member(name):
    return Client(name, drawn_evaluations(queries=120, seed=ord(name)), encoder="one")


def done(job, clients, folder):
    folder.mkdir(parents=True, exist_ok=True)
    return perform(job, LocalFederation(clients), folder, ProgressLog(folder))


@pytest.fixture
def learned(tmp_path):
    """A router of two founders and one that joined; its bundle, and the clients as they are afterwards."""
    members = {name: member(name) for name in "abc"}
    done(KMEANS, [members["a"], members["b"]], tmp_path / "learned")
    join = Job("add_clients", "kmeans", base=str(tmp_path / "learned/bundle"))
    done(join, [members["c"]], tmp_path / "joined")
    return tmp_path / "joined/bundle", members


def leaving(base, *names):
    return Job("remove_clients", "kmeans", base=str(base), clients=names)


def test_leaving_restores_the_router_before_the_client_joined_to_the_bit(learned, tmp_path):
    base, members = learned
    result = done(leaving(base, "c"), [members["c"]], tmp_path / "left")
    assert result["version"] == 3
    assert [entry["name"] for entry in result["clients"]] == ["a", "b"]
    before, after = (tmp_path / name / "bundle/router.safetensors" for name in ("learned", "left"))
    assert after.read_bytes() == before.read_bytes()
    assert load(tmp_path / "left/bundle").manifest["change"] == {"verb": "client leave", "clients": ["c"]}


def test_a_founder_can_leave_as_well(learned, tmp_path):
    base, members = learned
    counts = load(base).router.sums.count.sum()
    rows = load(base).clients["a"]["rows"]
    done(leaving(base, "a"), [members["a"]], tmp_path / "left")
    assert load(tmp_path / "left/bundle").router.sums.count.sum() == counts - rows


def test_a_client_whose_log_has_changed_is_refused_and_nothing_is_written(learned, tmp_path):
    base, _ = learned
    grown = Client("c", drawn_evaluations(queries=100, seed=ord("c")), encoder="one")
    with pytest.raises(BadInput, match=r"not part of this router|its log has changed"):
        done(leaving(base, "c"), [grown], tmp_path / "left")
    assert not (tmp_path / "left/bundle").exists()


def test_who_may_leave_is_checked_before_anyone_is_asked(learned, tmp_path):
    base, members = learned
    with pytest.raises(BadInput, match="z: not a client of this router, which has a, b, c"):
        done(leaving(base, "z"), [member("z")], tmp_path / "stranger")
    with pytest.raises(BadInput, match="nothing would be left"):
        done(leaving(base, "a", "b", "c"), list(members.values()), tmp_path / "all")
    with pytest.raises(BadInput, match="b: did not answer"):
        done(leaving(base, "b", "c"), [members["c"]], tmp_path / "some")
    with pytest.raises(BadInput, match="names of the clients that leave"):
        replace(leaving(base, "a"), clients=())
