"""Kills that a federation survives, what it leaves behind, and runs that a client refuses."""

import os
import signal
import threading
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("flwr")

from deployment.real_federation import RealFederation, descendants
from fedrouter.deployment.client.local_client import client_of
from fedrouter.deployment.coordinator.enrollment import control_of
from fedrouter.deployment.runs.job import Job
from fedrouter.deployment.runs.submission import RunFailed
from fedrouter.engines.flower import run_app, run_link

pytestmark = pytest.mark.slow
NAMES = ("alpha", "beta")
KMEANS = Job(family="kmeans", settings={"k_local": 4, "k_global": 5}, quorum=2, timeout=240, gather=240)
MLP = Job(family="mlp", settings={"rounds": 3, "hidden": [16]}, quorum=2, timeout=240, gather=240)


@pytest.fixture
def federation(world, tmp_path):
    real = RealFederation(tmp_path, world, NAMES)
    try:
        real.start_all(within=240)
        yield real
    finally:
        real.stop_all()


def local(federation, job):
    mirror = [client_of(federation.root / "mirror" / name) for name in NAMES]
    return federation.in_process(federation.root / "local", job, mirror)


def superlink(federation):
    """The pid of the coordinator's one child."""
    (child,) = descendants(federation.processes["coordinator"].pid)[1:]
    return child


def alive(pid):
    """Whether a process runs; one that ended and was not asked for its status does not."""
    with suppress(FileNotFoundError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


@pytest.mark.parametrize("stage", ["hello", "train"])
def test_a_superlink_killed_alone_is_restarted_and_the_run_goes_on_to_the_same_router(federation, stage):
    first = superlink(federation)
    killed = []

    def kill(line):
        if line["event"] == "exchange" and stage in line["verbs"] and not killed:
            killed.append(first)
            os.kill(first, signal.SIGKILL)

    bundle, lines = federation.run("superlink-killed", MLP, kill)
    assert killed
    assert superlink(federation) != first
    assert not [line for line in lines if line["event"] == "dropped"]
    assert bundle == local(federation, MLP)
    said = (federation.root / "coordinator.output").read_text()
    assert "the SuperLink ended; restarting it" in said
    assert "the SuperLink is back" in said


def test_nobody_waits_for_a_client_that_was_killed_while_it_answered_and_started_again(federation):
    unanswered = federation.clients["beta"].unanswered

    def kill_while_it_answers():
        pid = federation.processes["beta"].pid
        while True:
            os.kill(pid, signal.SIGSTOP)
            if unanswered.exists():
                break
            os.kill(pid, signal.SIGCONT)
            time.sleep(0.01)
        federation.kill("beta")
        federation.start("beta")

    thread = threading.Thread(target=kill_while_it_answers)
    thread.start()
    _, lines = federation.run("client-killed", replace(MLP, quorum=1))
    thread.join()
    assert {line["reason"] for line in lines if line["event"] == "dropped"} == {"was killed while it answered"}
    assert not unanswered.exists()


def test_a_superlink_killed_while_clients_compute_still_gets_their_answers(federation):
    def kill_soon():
        time.sleep(0.3)
        os.kill(superlink(federation), signal.SIGKILL)

    def kill(line):
        if line["event"] == "exchange" and "hello" in line["verbs"]:
            threading.Thread(target=kill_soon).start()

    bundle, _ = federation.run("killed-in-between", KMEANS, kill)
    assert bundle == local(federation, KMEANS)


def test_no_process_outlives_a_kill(federation):
    coordinator, client = (federation.processes[name].pid for name in ("coordinator", "alpha"))
    child = superlink(federation)
    assert descendants(client) == [client]  # a client is one process
    os.kill(coordinator, signal.SIGKILL)
    federation.processes.pop("coordinator").wait()
    federation.until(lambda: not alive(child), "the SuperLink ends with its coordinator", 60)
    os.kill(client, signal.SIGKILL)
    federation.processes.pop("alpha").wait()
    ours = {str(federation.root).encode()}
    left = [
        path
        for path in Path("/proc").glob("[0-9]*/cmdline")
        if any(each in read(path) for each in ours) and alive(path.parent.name)
    ]
    beta = federation.processes["beta"].pid
    assert [int(path.parent.name) for path in left] == [beta]


def read(path):
    try:
        return path.read_bytes()
    except OSError:
        return b""


def test_a_client_killed_and_started_again_is_connected_at_once(federation):
    federation.kill("alpha")
    began = time.monotonic()
    federation.start("alpha")
    federation.until(lambda: federation.connections("alpha") == 2, "it is connected again", 45)
    assert "does not admit" not in (federation.root / "alpha.output").read_text()
    assert time.monotonic() - began < 45  # a SuperLink believes a killed client online for 60 s


def test_a_client_that_is_stopped_signs_out(federation):
    federation.processes["alpha"].terminate()
    assert federation.processes.pop("alpha").wait(60) == 0
    federation.until(lambda: federation.online() == {"beta"}, "it is offline at once", 20)


def test_a_run_with_another_app_is_refused_in_one_line_on_both_sides(federation, monkeypatch):
    tampered = run_app.PROJECT.replace("A run of", "Another run of")
    monkeypatch.setattr(run_app, "PROJECT", tampered)
    other = run_app.build_app.__wrapped__()
    assert other != run_app.build_app()
    monkeypatch.setattr(run_link, "build_app", lambda: other)
    with pytest.raises(RunFailed):
        federation.run("tampered", replace(KMEANS, quorum=1))
    progress = (federation.coordinator.runs / "tampered" / "progress.jsonl").read_text()
    assert progress.count("refused: the run's app is not the one of its own fedrouter") >= len(NAMES)
    for name in NAMES:
        assert (
            "refused a run: its app is not the one of this fedrouter\n"
            in (federation.root / f"{name}.output").read_text()
        )
        assert not list(federation.clients[name].path.rglob("*.fab"))


def test_the_runtime_api_asks_for_the_secret(federation):
    directory = federation.coordinator
    control = control_of(directory)
    address = directory.config().local_address
    with (
        pytest.raises(Exception, match="401"),
        run_link.open_run(control, address, directory.authority, b"another secret", lambda connected: None),
    ):
        pytest.fail("a run was started without the secret")
