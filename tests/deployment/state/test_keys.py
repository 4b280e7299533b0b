"""Keys that clients exchanged, and new keys, with which everything that was learned before stays."""

import ssl
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

pytest.importorskip("cryptography")
from cryptography import x509

from conftest import drawn_evaluations
from fedrouter.deployment.coordinator.enrollment import enroll
from fedrouter.deployment.state.credentials import read_public_key, valid_until
from fedrouter.deployment.state.directories import create_client, create_coordinator
from fedrouter.deployment.state.keys import identity_of, read_peers, rekey_client, rekey_coordinator
from fedrouter.deployment.state.process_lock import process_lock
from fedrouter.errors import BadInput
from fedrouter.federation.client import Client
from fedrouter.federation.families.mlp import CostsRequest
from fedrouter.federation.privacy.journal import Journal
from fedrouter.federation.privacy.memory import ShortMemory
from fedrouter.federation.privacy.policy import CLEAR


@pytest.fixture
def pair(tmp_path):
    coordinator = create_coordinator(tmp_path / "coordinator", ("localhost",))
    return coordinator, create_client(tmp_path / "north", "north", "localhost:9092", coordinator.authority)


def test_a_client_with_a_new_key_keeps_its_journal(pair):
    coordinator, north = pair
    enroll(coordinator, "north", read_public_key(north.public_key))
    journal = Journal(north.journal)
    Client("north", drawn_evaluations(), CLEAR, journal).answer("costs", CostsRequest(("model-0",)))
    kept = north.journal.read_bytes()
    journal.close()
    north.write_config(replace(north.config(), peers={"north": north.public_key.read_text(), "south": "other"}))
    old = read_public_key(north.public_key)
    rekey_client(north)
    new = read_public_key(north.public_key)
    assert new != old
    assert north.journal.read_bytes() == kept
    assert north.config().peers == {"north": north.public_key.read_text().strip(), "south": "other"}
    north.write_config(replace(north.config(), peers={"north": new}))
    identity = identity_of(north, ShortMemory())
    assert identity.signed("north", identity.sign("x"), "x")
    with pytest.raises(BadInput, match="--new-key replaces its key"):
        enroll(coordinator, "north", new)
    with pytest.raises(BadInput, match="not on the roster"):
        enroll(coordinator, "south", new, new_key=True)
    enroll(coordinator, "north", new, new_key=True)
    assert coordinator.config().roster["north"].public_key == new


def test_a_renewed_certificate_has_more_hosts_and_is_trusted_by_the_same_authority(pair):
    coordinator, north = pair
    authority, key = coordinator.authority.read_bytes(), coordinator.key.read_bytes()
    rekey_coordinator(coordinator, ("router.example.org", "10.0.0.7"))
    assert coordinator.authority.read_bytes() == authority == north.authority.read_bytes()
    assert coordinator.key.read_bytes() != key
    assert coordinator.key.stat().st_mode & 0o777 == 0o600
    assert coordinator.config().hosts == ("localhost", "router.example.org", "10.0.0.7")
    certificate = x509.load_pem_x509_certificate(coordinator.certificate.read_bytes())
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert "router.example.org" in names.get_values_for_type(x509.DNSName)
    certificate.verify_directly_issued_by(x509.load_pem_x509_certificate(authority))
    ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(coordinator.certificate, coordinator.key)
    assert valid_until(coordinator.certificate.read_bytes()) > datetime.now(UTC) + timedelta(days=3000)


def test_keys_are_not_changed_under_a_running_process_or_for_a_host_that_is_none(pair):
    coordinator, north = pair
    before = [path.read_bytes() for path in (coordinator.key, coordinator.certificate, north.key)]
    with process_lock(coordinator.pid_file), pytest.raises(BadInput, match="already running"):
        rekey_coordinator(coordinator)
    with process_lock(north.pid_file), pytest.raises(BadInput, match="already running"):
        rekey_client(north)
    with pytest.raises(BadInput, match="expected a DNS name"):
        rekey_coordinator(coordinator, ("no host",))
    assert [path.read_bytes() for path in (coordinator.key, coordinator.certificate, north.key)] == before


@pytest.fixture
def directories(tmp_path):
    coordinator = create_coordinator(tmp_path / "coordinator", ("localhost",))
    return {
        name: create_client(tmp_path / name, name, "localhost:9092", coordinator.authority)
        for name in ("bank", "clinic", "school")
    }


def given(directory, folder):
    directory.write_config(replace(directory.config(), peers=read_peers(folder)))
    return identity_of(directory, ShortMemory())


def test_clients_know_each_other_by_the_keys_they_exchanged(directories, tmp_path):
    folder = tmp_path / "peers"
    folder.mkdir()
    for name, directory in directories.items():
        (folder / f"{name}.pub").write_bytes(directory.public_key.read_bytes())
    bank, clinic = given(directories["bank"], folder), given(directories["clinic"], folder)
    signature = bank.sign("keys", "session")
    assert clinic.signed("bank", signature, "keys", "session")
    assert not clinic.signed("school", signature, "keys", "session")


def test_without_peers_a_client_signs_and_pins_what_the_coordinator_states(directories):
    bank = identity_of(directories["bank"], ShortMemory())
    assert not bank.exchanged
    stated = {name: directory.public_key.read_text().strip() for name, directory in directories.items()}
    clinic = identity_of(directories["clinic"], ShortMemory())
    assert not bank.signed("clinic", clinic.sign("x"), "x")
    assert bank.meeting(stated).signed("clinic", clinic.sign("x"), "x")


def test_a_roster_without_oneself_is_refused(directories, tmp_path):
    folder = tmp_path / "peers"
    folder.mkdir()
    (folder / "clinic.pub").write_bytes(directories["clinic"].public_key.read_bytes())
    with pytest.raises(BadInput, match="the public key of bank itself"):
        given(directories["bank"], folder)


def test_a_folder_without_keys_is_refused(tmp_path):
    with pytest.raises(BadInput, match=r"expected a folder with a file NAME\.pub"):
        read_peers(tmp_path)
