"""Runs of clients that know each other's keys from the coordinator alone: new keys, and keys that it replaces."""

from contextlib import closing
from dataclasses import replace

import pytest
from typer.testing import CliRunner

pytest.importorskip("cryptography")

from conftest import drawn_evaluations
from fedrouter.cli.federation.manage import app as federation
from fedrouter.deployment.coordinator.enrollment import enroll
from fedrouter.deployment.runs.job import Job
from fedrouter.deployment.runs.perform import perform
from fedrouter.deployment.runs.progress import ProgressLog, Tail
from fedrouter.deployment.state.credentials import make_client_key, read_public_key
from fedrouter.deployment.state.directories import create_client, create_coordinator
from fedrouter.deployment.state.peers import pinned_keys
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


def test_a_key_that_the_coordinator_replaces_stops_the_run_at_every_other_member(members, tmp_path):
    members.run()
    members.new_key("b")
    for name in "acd":  # each decides for itself
        with pytest.raises(Refused, match="another key of b"):
            members.run()
        PinnedKeys(members.memories[name], name, members.roster[name]).accept("b")
    assert members.run()[0]["rows"] == 480


def test_commands_show_accept_and_confirm_the_roster(tmp_path):
    """On both sides the same fingerprint; a key that was replaced is accepted by hand only."""
    coordinator = create_coordinator(tmp_path / "coordinator", ("localhost",))
    north, south = (
        create_client(tmp_path / name, name, "localhost:9092", coordinator.authority) for name in ("north", "south")
    )
    for one in (north, south):
        enroll(coordinator, one.config().name, read_public_key(one.public_key))
    stated = {name: client.public_key for name, client in coordinator.config().roster.items()}
    assert "No keys are known yet" not in shown("roster", coordinator.path)
    Journal(north.journal).close()
    assert "No keys are known yet" in shown("roster", north.path)
    with closing(Journal(north.journal)) as journal:
        pinned_keys(north, journal).admit(stated)
        with pytest.raises(Refused):
            pinned_keys(north, journal).admit({**stated, "south": make_client_key().public.decode().strip()})
    assert "refused: SHA256:" in shown("roster", north.path)
    shown("roster", north.path, "--accept", "south")
    said = shown("roster", north.path)
    assert "refused" not in said
    with closing(Journal(north.journal)) as journal, pytest.raises(Refused):
        pinned_keys(north, journal).admit(stated)
    shown("roster", north.path, "--accept", "south")
    fingerprint = roster_fingerprint(stated)
    assert fingerprint in shown("roster", north.path)
    assert fingerprint in shown("roster", coordinator.path)
    assert fingerprint in shown("status", north.path)
    assert "confirmed" in shown("roster", north.path, "--confirm", fingerprint)


def shown(*arguments):
    done = CliRunner().invoke(federation, [*map(str, arguments)], catch_exceptions=False)
    assert done.exit_code == 0
    return done.stdout


def test_keys_are_known_after_the_first_run(members):
    members.run()
    for name in NAMES:
        assert set(PinnedKeys(members.memories[name], name, members.roster[name]).known()) == set(NAMES)
