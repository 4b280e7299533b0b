"""Peers' public keys: read from files, and only together with one's own."""

import pytest

from fedrouter.deployment.state.directories import create_client, create_coordinator
from fedrouter.deployment.state.peers import identity_of, read_peers
from fedrouter.errors import BadInput
from fedrouter.federation.privacy.memory import ShortMemory


@pytest.fixture
def directories(tmp_path):
    coordinator = create_coordinator(tmp_path / "coordinator", ("localhost",))
    return {
        name: create_client(tmp_path / name, name, "localhost:9092", coordinator.authority)
        for name in ("bank", "clinic", "school")
    }


def given(directory, folder):
    from dataclasses import replace

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
