"""Peers' public keys: read from files, and only together with one's own."""

import pytest

from fedrouter.deployment.homes import make_client_home, make_coordinator_home
from fedrouter.deployment.peers import identity_of, read_peers
from fedrouter.errors import BadInput


@pytest.fixture
def homes(tmp_path):
    coordinator = make_coordinator_home(tmp_path / "coordinator", ("localhost",))
    return {
        name: make_client_home(tmp_path / name, name, "localhost:9092", coordinator.authority)
        for name in ("bank", "clinic", "school")
    }


def given(home, folder):
    from dataclasses import replace

    home.write_settings(replace(home.settings(), peers=read_peers(folder)))
    return identity_of(home)


def test_clients_know_each_other_by_the_keys_they_exchanged(homes, tmp_path):
    folder = tmp_path / "peers"
    folder.mkdir()
    for name, home in homes.items():
        (folder / f"{name}.pub").write_bytes(home.public_key.read_bytes())
    bank, clinic = given(homes["bank"], folder), given(homes["clinic"], folder)
    signature = bank.sign("keys", "session")
    assert clinic.signed("bank", signature, "keys", "session")
    assert not clinic.signed("school", signature, "keys", "session")


def test_without_peers_there_is_no_identity(homes):
    assert identity_of(homes["bank"]) is None


def test_a_roster_without_oneself_is_refused(homes, tmp_path):
    folder = tmp_path / "peers"
    folder.mkdir()
    (folder / "clinic.pub").write_bytes(homes["clinic"].public_key.read_bytes())
    with pytest.raises(BadInput, match="the public key of bank itself"):
        given(homes["bank"], folder)


def test_a_folder_without_keys_is_refused(tmp_path):
    with pytest.raises(BadInput, match=r"expected a folder with a file NAME\.pub"):
        read_peers(tmp_path)
