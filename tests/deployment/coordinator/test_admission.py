"""Admission to a federation: a real SuperLink with TLS, and SuperNodes of every kind that try to connect."""

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

from fedrouter.deployment.coordinator.enrollment import control_of, enroll, nodes_by_name, unenroll
from fedrouter.deployment.state import process_lock
from fedrouter.deployment.state.credentials import read_public_key
from fedrouter.deployment.state.directories import create_client, create_coordinator
from fedrouter.engines.flower.processes import environment

pytestmark = pytest.mark.slow
COMMAND = [sys.executable, "-c", "from fedrouter.cli.federation.manage import app; app()"]
CLIENT = (
    "import sys\nfrom pathlib import Path\n"
    "from fedrouter.deployment.client.run_client import run_client\n"
    "from fedrouter.deployment.state.directories import open_client\n"
    "run_client(open_client(Path(sys.argv[1])), lambda: None, lambda text: print(text, flush=True))\n"
)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextmanager
def running_coordinator(directory):
    """A coordinator as a user starts it, ready."""
    process = subprocess.Popen(
        [*COMMAND, "coordinator", directory.path, "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        assert json.loads(process.stdout.readline())["ready"]
        yield process
    finally:
        process.terminate()
        process.wait(40)
        process.stdout.close()


@contextmanager
def running_client(directory):
    process = subprocess.Popen([sys.executable, "-c", CLIENT, directory.path], stdout=subprocess.DEVNULL)
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


def online(directory):
    return {
        name for name, node in nodes_by_name(directory.config(), control_of(directory).nodes()).items() if node.online
    }


def connect(directory, *arguments):
    """A SuperNode of Flower's own, started by hand; its exit status and what it said."""
    command = [Path(sys.executable).parent / "flower-supernode", f"--port={free_port()}", *arguments]
    folder = directory.path.parent / "stranger"
    folder.mkdir(exist_ok=True)
    # To a file: its own subprocess may hold on to a pipe for longer than it lives.
    with (folder / "said").open("w+") as said:
        process = subprocess.Popen(
            [*command, f"--superlink={directory.config().address}", "--max-retries=1"],
            # A SuperNode starts a command of Flower's by its name.
            env=environment(folder) | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"},
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


def ask(directory, path, **headers):
    """The status of a bare request over TLS."""
    host, port = directory.config().local_address.split(":")
    context = ssl.create_default_context(cafile=directory.authority)
    connection = http.client.HTTPSConnection(host, int(port), context=context, timeout=10)
    try:
        connection.request("POST", path, b"", {"content-type": "application/protobuf", **headers})
        return connection.getresponse().status
    finally:
        connection.close()


@pytest.fixture(scope="module")
def federation(tmp_path_factory):
    """A coordinator at work with one client on its roster, which is connected."""
    folder = tmp_path_factory.mktemp("admission")
    directory = create_coordinator(folder / "coordinator", ("localhost",), free_port())
    address = directory.config().address
    client = create_client(folder / "a client", "north", address, directory.authority)
    enroll(directory, "north", read_public_key(client.public_key))
    with running_coordinator(directory), running_client(client):
        until(lambda: online(directory) == {"north"})
        yield directory


@pytest.fixture
def other_client(federation, tmp_path):
    return create_client(tmp_path / "other", "other", federation.config().address, federation.authority)


def test_a_client_on_the_roster_is_online(federation):
    assert online(federation) == {"north"}
    done = subprocess.run([*COMMAND, "status", federation.path, "--json"], capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    assert found["running"]
    assert [(one["name"], one["online"]) for one in found["clients"]] == [("north", True)]


def test_a_key_that_is_not_enrolled_is_refused(federation, other_client):
    status, said = connect(
        federation,
        f"--root-certificates={federation.authority}",
        f"--auth-supernode-private-key={other_client.key}",
    )
    assert status != 0
    assert "Failed to activate SuperNode" in said
    assert "SuperNode ID" not in said
    assert len(control_of(federation).nodes()) == 1


def test_a_client_without_a_key_is_refused(federation):
    status, said = connect(federation, f"--root-certificates={federation.authority}")
    assert status != 0
    assert "must be registered" in said
    assert "SuperNode ID" not in said
    assert len(control_of(federation).nodes()) == 1


def test_a_client_that_speaks_plaintext_is_refused(federation):
    status, said = connect(federation, "--insecure")
    assert status != 0
    assert "SuperNode ID" not in said
    assert len(control_of(federation).nodes()) == 1


def test_a_client_of_another_federation_does_not_talk_to_this_one(federation, tmp_path):
    stranger = create_coordinator(tmp_path / "stranger", ("localhost",))
    status, said = connect(federation, f"--root-certificates={stranger.authority}")
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


def test_a_second_coordinator_in_the_same_directory_is_refused(federation):
    done = subprocess.run([*COMMAND, "coordinator", federation.path], capture_output=True, text=True)
    assert done.returncode != 0
    assert "is already running in this directory" in " ".join(done.stderr.split())


def test_a_client_comes_by_enrollment_and_goes_by_its_end(federation, other_client):
    with running_client(other_client):
        time.sleep(5)
        assert online(federation) == {"north"}
        enroll(federation, "other", read_public_key(other_client.public_key))
        until(lambda: online(federation) == {"north", "other"})
        unenroll(federation, "other")
        assert online(federation) == {"north"}
        time.sleep(5)
        assert len(control_of(federation).nodes()) == 1
        assert "other" not in federation.config().roster


def test_nothing_in_the_directories_can_be_read_by_others(federation):
    for path in federation.path.rglob("*"):
        if path.name not in ("ca.pem", "server.pem"):
            assert path.stat().st_mode & 0o077 == 0, path.name


def test_a_killed_coordinator_leaves_nothing_and_one_with_a_lost_database_knows_its_roster(tmp_path):
    directory = create_coordinator(tmp_path / "coordinator", ("localhost",), free_port())
    clients = [create_client(tmp_path / name, name, directory.config().address, directory.authority) for name in "ab"]
    for client in clients:
        enroll(directory, client.config().name, read_public_key(client.public_key))
    with running_coordinator(directory) as process, running_client(clients[0]):
        until(lambda: online(directory) == {"a"})
        first = set(directory.config().nodes().values())
        process.kill()
        process.wait()
        until(lambda: not control_of(directory).ready(), 20)
        assert process_lock.running(directory.pid_file) is None
        time.sleep(2)
        for path in directory.path.glob("superlink.db*"):
            os.unlink(path)
        unenroll(directory, "b")
        with running_coordinator(directory):
            until(lambda: online(directory) == {"a"}, 120)
            assert set(directory.config().nodes()) == {"a"}
            assert set(directory.config().nodes().values()).isdisjoint(first)


def test_stop_ends_a_coordinator_in_order_and_frees_its_port(tmp_path):
    directory = create_coordinator(tmp_path / "coordinator", ("localhost",), free_port())
    with running_coordinator(directory) as process:
        assert process_lock.stop(directory.pid_file)
        assert process.wait(5) == 0
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", directory.config().port))
