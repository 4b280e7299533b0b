"""State directories: who may read them, what is in them, and what is refused."""

import json
import os
import stat
import subprocess
import sys

import pytest

pytest.importorskip("cryptography")

from fedrouter.deployment.state import directories
from fedrouter.deployment.state.config import FederationConfig, check_address, check_name, default_listen
from fedrouter.deployment.state.credentials import read_public_key
from fedrouter.errors import BadInput
from fedrouter.files import write_new

SECRETS = {"ca.key", "server.key", "client.key", "federation.json", "client.json"}


@pytest.fixture
def coordinator(tmp_path):
    return directories.create_coordinator(tmp_path / "coordinator", ("router.example.org", "192.0.2.7"))


@pytest.fixture
def client(tmp_path, coordinator):
    return directories.create_client(tmp_path / "client", "north", "router.example.org:9092", coordinator.authority)


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


def test_folders_and_secrets_are_their_owners_alone_whatever_the_umask(tmp_path):
    before = os.umask(0)
    try:
        coordinator = directories.create_coordinator(tmp_path / "coordinator", ("localhost",))
        client = directories.create_client(tmp_path / "client", "north", "localhost:9092", coordinator.authority)
    finally:
        os.umask(before)
    for directory in (coordinator, client):
        found = [directory.path, *directory.path.rglob("*")]
        assert {mode(path) for path in found if path.is_dir()} == {0o700}
        assert {mode(path) for path in found if path.name in SECRETS} == {0o600}
    assert mode(coordinator.authority) == mode(client.public_key) == 0o644


def test_a_secret_is_private_before_its_first_byte(tmp_path):
    # Watched from outside while it is written: a file that is made open and closed after would show.
    path = tmp_path / "secret"
    watcher = (
        "import os, sys, stat\n"
        "print('ready', flush=True)\n"
        "while True:\n"
        "    try: print(oct(stat.S_IMODE(os.stat(sys.argv[1]).st_mode))); break\n"
        "    except FileNotFoundError: pass\n"
    )
    before = os.umask(0)
    try:
        with subprocess.Popen([sys.executable, "-c", watcher, path], stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout.readline() == "ready\n"
            write_new(path, b"x" * 10_000_000)
            assert process.stdout.readline() == "0o600\n"
    finally:
        os.umask(before)


def test_nothing_of_a_private_key_is_in_any_other_file(coordinator, client):
    for directory in (coordinator, client):
        keys = [path for path in directory.path.iterdir() if path.suffix == ".key"]
        assert keys
        for key in keys:
            middle = key.read_bytes().splitlines()[2]
            others = [path for path in directory.path.rglob("*") if path.is_file() and path != key]
            assert not [path for path in others if middle in path.read_bytes()]


def test_a_state_directory_is_not_overwritten(tmp_path, coordinator, client):
    before = {
        path: path.read_bytes()
        for directory in (coordinator, client)
        for path in directory.path.iterdir()
        if path.is_file()
    }
    with pytest.raises(BadInput, match=r"not empty"):
        directories.create_coordinator(coordinator.path, ("localhost",))
    with pytest.raises(BadInput, match=r"not empty"):
        directories.create_client(client.path, "north", "localhost:9092", coordinator.authority)
    assert {path: path.read_bytes() for path in before} == before


def test_a_file_that_is_there_or_a_link_in_its_place_is_not_written_through(tmp_path):
    target = tmp_path / "target"
    (tmp_path / "link").symlink_to(target)
    with pytest.raises(BadInput, match=r"already exists"):
        write_new(tmp_path / "link", b"secret")
    assert not target.exists()


def test_a_refused_client_leaves_no_folder(tmp_path, coordinator):
    for name, address, authority in [
        ("../up", "localhost:9092", coordinator.authority),
        ("north", "localhost", coordinator.authority),
        ("north", "localhost:9092", coordinator.certificate),
    ]:
        with pytest.raises(BadInput):
            directories.create_client(tmp_path / "refused", name, address, authority)
    assert not (tmp_path / "refused").exists()


def test_what_is_written_is_read_again(coordinator, client):
    key = read_public_key(client.public_key)
    with coordinator.editing() as config:
        coordinator.write_config(config.with_client("north", key, 2**64 - 1))
    saved = directories.open_coordinator(coordinator.path).config()
    assert saved.nodes() == {"north": 2**64 - 1}
    assert saved.roster["north"].public_key == key
    assert saved.address == "router.example.org:9092"
    assert saved.without_client("north").roster == {}
    own = directories.open_client(client.path).config()
    assert (own.name, own.coordinator) == ("north", "router.example.org:9092")


def test_one_kind_of_directory_is_not_taken_for_the_other(tmp_path, coordinator, client):
    with pytest.raises(BadInput, match=r"is the state directory of a client"):
        directories.open_coordinator(client.path)
    with pytest.raises(BadInput, match=r"is the state directory of the coordinator"):
        directories.open_client(coordinator.path)
    with pytest.raises(BadInput, match=r"not a state directory"):
        directories.open_directory(tmp_path)


@pytest.mark.parametrize("content", ["", "[]", "{", '{"hosts": []}', '{"name": "a"}', "null"])
def test_a_broken_file_is_named(coordinator, client, content):
    coordinator.config_file.write_text(content)
    client.config_file.write_text(content)
    with pytest.raises(BadInput, match=r"federation\.json"):
        coordinator.config()
    with pytest.raises(BadInput, match=r"client\.json"):
        client.config()


def test_two_who_change_the_roster_at_once_lose_nothing(coordinator):
    program = (
        "import sys\n"
        "from pathlib import Path\n"
        "from fedrouter.deployment.state.directories import open_coordinator\n"
        "directory = open_coordinator(Path(sys.argv[1]))\n"
        "for number in range(20):\n"
        "    with directory.editing() as config:\n"
        "        directory.write_config(config.with_client(f'{sys.argv[2]}{number}', 'ecdsa key'))\n"
    )
    both = [subprocess.Popen([sys.executable, "-c", program, coordinator.path, who]) for who in ("a", "b")]
    assert [process.wait() for process in both] == [0, 0]
    assert len(coordinator.config().roster) == 40
    assert mode(coordinator.config_file) == 0o600
    json.loads(coordinator.config_file.read_bytes())


def test_names_and_addresses_are_checked():
    assert check_name("north-1.eu_b") == "north-1.eu_b"
    for name in ("", ".hidden", "a/b", "a b", "x" * 65, "a\n"):
        with pytest.raises(BadInput, match=r"client"):
            check_name(name)
    assert check_address("[::1]:9092") == "[::1]:9092"
    for address in ("a", "a:", ":1", "a:0", "a:65536", "a:1x", "https://a:1"):
        with pytest.raises(BadInput):
            check_address(address)


def test_a_coordinator_of_its_own_machine_alone_listens_there_alone():
    assert default_listen(("localhost",), 1) == "localhost:1"
    assert default_listen(("localhost", "router.example.org"), 1) == "0.0.0.0:1"
    assert FederationConfig(("a.example",), 443, "0.0.0.0:9092").local_address == "127.0.0.1:9092"
    assert FederationConfig(("a.example",), 443, "[::]:9092").local_address == "[::1]:9092"
