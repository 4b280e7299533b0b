"""The folders of a federation: who may read them, what is in them, and what they refuse."""

import json
import os
import stat
import subprocess
import sys
import time

import pytest

pytest.importorskip("cryptography")

from fedrouter.deployment import claims, homes, private_files
from fedrouter.deployment.credentials import read_public_key
from fedrouter.deployment.settings import Charter, check_address, check_name, listening_on
from fedrouter.errors import BadInput

SECRETS = {"ca.key", "server.key", "client.key", "federation.json", "client.json"}


@pytest.fixture
def coordinator(tmp_path):
    return homes.make_coordinator_home(tmp_path / "coordinator", ("router.example.org", "192.0.2.7"))


@pytest.fixture
def client(tmp_path, coordinator):
    return homes.make_client_home(tmp_path / "client", "north", "router.example.org:9092", coordinator.authority)


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


def test_folders_and_secrets_are_their_owners_alone_whatever_the_umask(tmp_path):
    before = os.umask(0)
    try:
        coordinator = homes.make_coordinator_home(tmp_path / "coordinator", ("localhost",))
        client = homes.make_client_home(tmp_path / "client", "north", "localhost:9092", coordinator.authority)
    finally:
        os.umask(before)
    for home in (coordinator, client):
        found = [home.path, *home.path.rglob("*")]
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
            private_files.write_new(path, b"x" * 10_000_000)
            assert process.stdout.readline() == "0o600\n"
    finally:
        os.umask(before)


def test_nothing_of_a_private_key_is_in_any_other_file(coordinator, client):
    for home in (coordinator, client):
        keys = [path for path in home.path.iterdir() if path.suffix == ".key"]
        assert keys
        for key in keys:
            middle = key.read_bytes().splitlines()[2]
            others = [path for path in home.path.rglob("*") if path.is_file() and path != key]
            assert not [path for path in others if middle in path.read_bytes()]


def test_a_home_is_not_overwritten(tmp_path, coordinator, client):
    before = {
        path: path.read_bytes() for home in (coordinator, client) for path in home.path.iterdir() if path.is_file()
    }
    with pytest.raises(BadInput, match=r"not empty"):
        homes.make_coordinator_home(coordinator.path, ("localhost",))
    with pytest.raises(BadInput, match=r"not empty"):
        homes.make_client_home(client.path, "north", "localhost:9092", coordinator.authority)
    assert {path: path.read_bytes() for path in before} == before


def test_a_file_that_is_there_or_a_link_in_its_place_is_not_written_through(tmp_path):
    target = tmp_path / "target"
    (tmp_path / "link").symlink_to(target)
    with pytest.raises(BadInput, match=r"is there already"):
        private_files.write_new(tmp_path / "link", b"secret")
    assert not target.exists()


def test_a_refused_client_leaves_no_folder(tmp_path, coordinator):
    for name, address, authority in [
        ("../up", "localhost:9092", coordinator.authority),
        ("north", "localhost", coordinator.authority),
        ("north", "localhost:9092", coordinator.certificate),
    ]:
        with pytest.raises(BadInput):
            homes.make_client_home(tmp_path / "refused", name, address, authority)
    assert not (tmp_path / "refused").exists()


def test_what_is_written_is_read_again(coordinator, client):
    key = read_public_key(client.public_key)
    with coordinator.changing() as charter:
        coordinator.write_charter(charter.with_client("north", key, 2**64 - 1))
    charter = homes.open_coordinator(coordinator.path).charter()
    assert charter.names() == {2**64 - 1: "north"}
    assert charter.roster["north"].public_key == key
    assert charter.address == "router.example.org:9092"
    assert charter.without_client("north").roster == {}
    settings = homes.open_client(client.path).settings()
    assert (settings.name, settings.coordinator) == ("north", "router.example.org:9092")


def test_one_kind_of_home_is_not_taken_for_the_other(tmp_path, coordinator, client):
    with pytest.raises(BadInput, match=r"is a client's home"):
        homes.open_coordinator(client.path)
    with pytest.raises(BadInput, match=r"is the coordinator's home"):
        homes.open_client(coordinator.path)
    with pytest.raises(BadInput, match=r"no home of a federation"):
        homes.open_home(tmp_path)


@pytest.mark.parametrize("content", ["", "[]", "{", '{"hosts": []}', '{"name": "a"}', "null"])
def test_a_broken_file_is_named(coordinator, client, content):
    coordinator.charter_file.write_text(content)
    client.settings_file.write_text(content)
    with pytest.raises(BadInput, match=r"federation\.json"):
        coordinator.charter()
    with pytest.raises(BadInput, match=r"client\.json"):
        client.settings()


def test_two_who_change_the_roster_at_once_lose_nothing(coordinator):
    program = (
        "import sys\n"
        "from pathlib import Path\n"
        "from fedrouter.deployment.homes import open_coordinator\n"
        "home = open_coordinator(Path(sys.argv[1]))\n"
        "for number in range(20):\n"
        "    with home.changing() as charter:\n"
        "        home.write_charter(charter.with_client(f'{sys.argv[2]}{number}', 'ecdsa key'))\n"
    )
    both = [subprocess.Popen([sys.executable, "-c", program, coordinator.path, who]) for who in ("a", "b")]
    assert [process.wait() for process in both] == [0, 0]
    assert len(coordinator.charter().roster) == 40
    assert mode(coordinator.charter_file) == 0o600
    json.loads(coordinator.charter_file.read_bytes())


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
    assert listening_on(("localhost",), 1) == "localhost:1"
    assert listening_on(("localhost", "router.example.org"), 1) == "0.0.0.0:1"
    assert Charter(("a.example",), 443, "0.0.0.0:9092").local_address == "127.0.0.1:9092"
    assert Charter(("a.example",), 443, "[::]:9092").local_address == "[::1]:9092"


def test_a_home_has_one_process_at_a_time_and_a_crash_gives_it_up(client):
    program = (
        "import sys, time\n"
        "from pathlib import Path\n"
        "from fedrouter.deployment.claims import claimed\n"
        "with claimed(Path(sys.argv[1])):\n"
        "    print('claimed', flush=True)\n"
        "    time.sleep(60)\n"
    )
    with subprocess.Popen([sys.executable, "-c", program, client.pid_file], stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"claimed\n"
        assert claims.running(client.pid_file) == process.pid
        with pytest.raises(BadInput, match=rf"process {process.pid} is at work"), claims.claimed(client.pid_file):
            pass
        process.kill()
    assert claims.running(client.pid_file) is None
    with claims.claimed(client.pid_file):
        assert claims.running(client.pid_file) == os.getpid()
    assert claims.running(client.pid_file) is None
    assert claims.stop(client.pid_file) is False


def test_stop_asks_and_waits_until_the_process_has_ended(client):
    program = (
        "import sys, time\n"
        "from pathlib import Path\n"
        "from fedrouter.deployment.claims import claimed, stopping\n"
        "with claimed(Path(sys.argv[1])), stopping() as asked:\n"
        "    print('claimed', flush=True)\n"
        "    asked.wait()\n"
        "    time.sleep(1)\n"
        "print('in order')\n"
    )
    with subprocess.Popen([sys.executable, "-c", program, client.pid_file], stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"claimed\n"
        began = time.monotonic()
        assert claims.stop(client.pid_file) is True
        assert time.monotonic() - began > 0.9
        assert process.stdout.read() == b"in order\n"
    assert process.returncode == 0
