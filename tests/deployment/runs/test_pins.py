"""Runs of clients that know each other's keys from the coordinator alone: new keys, and keys that it replaces."""

from contextlib import closing
from dataclasses import replace

import pytest

pytest.importorskip("cryptography")

from cli import command
from conftest import drawn_evaluations
from fedrouter.deployment.runs.job import Job
from fedrouter.deployment.runs.perform import perform
from fedrouter.deployment.runs.progress import ProgressLog, Tail
from fedrouter.deployment.state.credentials import make_client_key, read_public_key
from fedrouter.deployment.state.directories import create_client, create_coordinator
from fedrouter.deployment.state.keys import pinned_keys
from fedrouter.engines.local import LocalFederation
from fedrouter.errors import Refused
from fedrouter.federation.client import Client
from fedrouter.federation.privacy.journal import Journal
from fedrouter.federation.privacy.memory import ShortMemory
from fedrouter.federation.rederivation import Rederivation
from fedrouter.federation.secagg.identity import Identity
from fedrouter.federation.secagg.pinned_keys import PinnedKeys, roster_fingerprint, succession

KMEANS = Job(family="kmeans", settings={"k_local": 4, "k_global": 5}, secure=2 / 3)
NAMES = "abcd"


class Members:
    """Clients whose memories outlive runs, and the roster of their coordinator."""

    def __init__(self, root):
        self.root, self.runs = root, 0
        self.memories = {name: ShortMemory() for name in NAMES}
        self.private, self.roster = {}, {}
        for name in NAMES:
            self.new_key(name)

    def new_key(self, name, signed=False):
        key, before = make_client_key(), self.private.get(name)
        line = key.public.decode().strip()
        if signed:
            line = succession(name, Identity.read(before, {}), self.roster[name], line)
        self.private[name], self.roster[name] = key.private, line

    def client(self, name):
        pins = PinnedKeys(self.memories[name], name, self.roster[name])
        identity = replace(Identity.read(self.private[name], {}), pins=pins)
        return Client(
            name,
            drawn_evaluations(queries=120, seed=ord(name)),
            memory=self.memories[name],
            encoder="one",
            identity=identity,
            rederivation=Rederivation(name, identity),
        )

    def run(self, **changes):
        folder = self.root / str(self.runs)
        self.runs += 1
        folder.mkdir()
        clients = LocalFederation([self.client(name) for name in NAMES])
        result = perform(
            replace(KMEANS, **changes),
            clients,
            folder,
            ProgressLog(folder),
            centroids=self.root / "centroids",
            keys=self.roster,
        )
        return result, [line for line in Tail(folder).lines() if line["event"] == "centroids"]


@pytest.fixture
def members(tmp_path):
    return Members(tmp_path)


def test_a_member_with_a_key_that_its_old_one_signed_goes_on_and_kept_centroids_stay(members):
    first, _ = members.run()
    members.new_key("b", signed=True)
    second, _ = members.run()
    assert second["rows"] == first["rows"] == 480
    assert members.run()[0]["rows"] == 480


def test_a_key_that_the_coordinator_replaces_stops_the_run_every_time(members):
    members.run()
    members.new_key("b")
    for _ in range(2):
        with pytest.raises(Refused, match="another key of b"):
            members.run()


def test_status_shows_a_client_the_fingerprint_of_all_keys_that_it_was_told(tmp_path):
    coordinator = create_coordinator(tmp_path / "coordinator", ("localhost",))
    north, south = (
        create_client(tmp_path / name, name, "localhost:9092", coordinator.authority) for name in ("north", "south")
    )
    stated = {one.config().name: read_public_key(one.public_key) for one in (north, south)}
    with closing(Journal(north.journal)) as journal:
        pinned_keys(north, journal).admit(stated)
    assert roster_fingerprint(stated) in command.run("federation", "status", north.path).stdout


def test_keys_are_known_after_the_first_run(members):
    members.run()
    for name in NAMES:
        assert set(PinnedKeys(members.memories[name], name, members.roster[name]).known()) == set(NAMES)
