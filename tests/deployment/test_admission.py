"""Who is let in: a real SuperLink with TLS, and SuperNodes of every kind that knock."""

import http.client
import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

pytest.importorskip("flwr")

from fedrouter.deployment import claims
from fedrouter.deployment.control import Control
from fedrouter.deployment.coordinator import enroll, nodes_by_name, unenroll
from fedrouter.deployment.credentials import read_public_key
from fedrouter.deployment.homes import make_client_home, make_coordinator_home
from fedrouter.deployment.processes import environment

pytestmark = pytest.mark.slow
COMMAND = [sys.executable, "-c", "from fedrouter.cli.federation.manage import app; app()"]
ATTEND = (
    "import sys\nfrom pathlib import Path\nfrom fedrouter.deployment import homes, node\n"
    "node.attend(homes.open_client(Path(sys.argv[1])), lambda: None, lambda words: print(words, flush=True))\n"
)


def free_port():
    with socket.socket() as door:
        door.bind(("127.0.0.1", 0))
        return door.getsockname()[1]


@contextmanager
def coordinating(home):
    """A coordinator as a user starts it, ready."""
    process = subprocess.Popen(
        [*COMMAND, "coordinator", home.path, "--json"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    try:
        assert json.loads(process.stdout.readline())["ready"]
        yield process
    finally:
        process.terminate()
        process.wait(40)
        process.stdout.close()


@contextmanager
def attending(home):
    process = subprocess.Popen([sys.executable, "-c", ATTEND, home.path], stdout=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.terminate()
        process.wait(40)


def until(condition, seconds=60):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come to pass"
        time.sleep(0.3)


def online(home):
    return {name for name, node in nodes_by_name(home.charter(), Control(home).nodes()).items() if node.online}


def knock(home, *arguments):
    """A SuperNode of Flower's own, started by hand; its exit status and what it said."""
    command = [Path(sys.executable).parent / "flower-supernode", f"--port={free_port()}", *arguments]
    folder = home.path.parent / "stranger"
    folder.mkdir(exist_ok=True)
    # To a file: its own subprocess may hold on to a pipe for longer than it lives.
    with (folder / "said").open("w+") as said:
        process = subprocess.Popen(
            [*command, f"--superlink={home.charter().address}", "--max-retries=1"],
            env=environment(folder),
            stdout=said,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            status = process.wait(120)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        said.seek(0)
        return status, said.read()


def ask(home, path, **headers):
    """The status of a bare request over TLS."""
    host, port = home.charter().local_address.split(":")
    context = ssl.create_default_context(cafile=home.authority)
    connection = http.client.HTTPSConnection(host, int(port), context=context, timeout=10)
    try:
        connection.request("POST", path, b"", {"content-type": "application/protobuf", **headers})
        return connection.getresponse().status
    finally:
        connection.close()


@pytest.fixture(scope="module")
def federation(tmp_path_factory):
    """A coordinator at work with one client on its roster, which attends."""
    folder = tmp_path_factory.mktemp("admission")
    home = make_coordinator_home(folder / "coordinator", ("localhost",), free_port())
    address = home.charter().address
    client = make_client_home(folder / "a client", "north", address, home.authority)
    enroll(home, "north", read_public_key(client.public_key))
    with coordinating(home), attending(client):
        until(lambda: online(home) == {"north"})
        yield home


@pytest.fixture
def other_client(federation, tmp_path):
    return make_client_home(tmp_path / "other", "other", federation.charter().address, federation.authority)


def test_a_client_on_the_roster_is_online(federation):
    assert online(federation) == {"north"}
    done = subprocess.run([*COMMAND, "status", federation.path, "--json"], capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    assert found["running"]
    assert [(one["name"], one["online"]) for one in found["clients"]] == [("north", True)]


def test_a_key_that_is_not_enrolled_is_refused(federation, other_client):
    status, said = knock(
        federation,
        f"--root-certificates={federation.authority}",
        f"--auth-supernode-private-key={other_client.key}",
    )
    assert status != 0
    assert "Failed to activate SuperNode" in said
    assert "SuperNode ID" not in said
    assert len(Control(federation).nodes()) == 1


def test_a_client_without_a_key_is_refused(federation):
    status, said = knock(federation, f"--root-certificates={federation.authority}")
    assert status != 0
    assert "must be registered" in said
    assert "SuperNode ID" not in said
    assert len(Control(federation).nodes()) == 1


def test_a_client_that_speaks_plaintext_is_refused(federation):
    status, said = knock(federation, "--insecure")
    assert status != 0
    assert "SuperNode ID" not in said
    assert len(Control(federation).nodes()) == 1


def test_a_client_of_another_federation_does_not_talk_to_this_one(federation, tmp_path):
    stranger = make_coordinator_home(tmp_path / "stranger", ("localhost",))
    status, said = knock(federation, f"--root-certificates={stranger.authority}")
    assert status != 0
    assert "SSL/TLS handshake error" in said


def test_a_request_that_nobody_signed_is_refused(federation):
    for name in ("pull-messages", "push-messages", "get-fab", "push-object"):
        assert ask(federation, f"/v1/fleet/{name}") == 401


def test_another_machine_finds_no_way_to_start_runs(federation):
    # A forwarded address is believed from this machine, as a reverse proxy on it would send one.
    elsewhere = {"x-forwarded-for": "203.0.113.7"}
    for path in ("/v1/control/list-nodes", "/v1/control/start-run", "/v1/runtime/get-nodes", "/docs", "/health"):
        assert ask(federation, path, **elsewhere) == 404
    assert ask(federation, "/v1/control/list-nodes") == 200
    assert ask(federation, "/v1/fleet/pull-messages", **elsewhere) == 401


def test_a_second_coordinator_in_the_same_home_is_refused(federation):
    done = subprocess.run([*COMMAND, "coordinator", federation.path], capture_output=True, text=True)
    assert done.returncode != 0
    assert "at work in it already" in " ".join(done.stderr.split())


def test_a_client_comes_by_enrolment_and_goes_by_its_end(federation, other_client):
    with attending(other_client):
        time.sleep(5)
        assert online(federation) == {"north"}
        enroll(federation, "other", read_public_key(other_client.public_key))
        until(lambda: online(federation) == {"north", "other"})
        unenroll(federation, "other")
        assert online(federation) == {"north"}
        time.sleep(5)
        assert len(Control(federation).nodes()) == 1
        assert "other" not in federation.charter().roster


def test_nothing_in_the_homes_can_be_read_by_others(federation):
    for path in federation.path.rglob("*"):
        if path.name not in ("ca.pem", "server.pem"):
            assert path.stat().st_mode & 0o077 == 0, path.name


def test_a_killed_coordinator_leaves_nothing_and_one_with_a_lost_database_knows_its_roster(tmp_path):
    home = make_coordinator_home(tmp_path / "coordinator", ("localhost",), free_port())
    clients = [make_client_home(tmp_path / name, name, home.charter().address, home.authority) for name in "ab"]
    for client in clients:
        enroll(home, client.settings().name, read_public_key(client.public_key))
    with coordinating(home) as process, attending(clients[0]):
        until(lambda: online(home) == {"a"})
        first = home.charter().names()
        process.kill()
        process.wait()
        until(lambda: not Control(home).ready(), 20)
        assert claims.running(home.pid_file) is None
        time.sleep(2)
        for path in home.path.glob("superlink.db*"):
            os.unlink(path)
        unenroll(home, "b")
        with coordinating(home):
            until(lambda: online(home) == {"a"}, 120)
            assert set(home.charter().names().values()) == {"a"}
            assert set(home.charter().names()).isdisjoint(first)


def test_stop_ends_a_coordinator_in_order_and_frees_its_port(tmp_path):
    home = make_coordinator_home(tmp_path / "coordinator", ("localhost",), free_port())
    with coordinating(home) as process:
        assert claims.stop(home.pid_file)
        assert process.wait(5) == 0
        with socket.socket() as door:
            door.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            door.bind(("127.0.0.1", home.charter().port))
