"""Accepted bundles reach enrolled clients over TLS, and nobody else; candidates and rejected ones reach nobody."""

import base64
import http.client
import shutil
import ssl
import threading
import time
from contextlib import contextmanager

import pytest

pytest.importorskip("flwr")
import uvicorn

from cli import command
from conftest import drawn_evaluations
from fedrouter.bundle import load
from fedrouter.deployment.coordinator.enrollment import enroll
from fedrouter.deployment.delivery.endpoint import PATH, endpoint
from fedrouter.deployment.delivery.pull import DeliveryFailed, pull
from fedrouter.deployment.delivery.signature import LIFETIME, SIGNATURE, sign, signed_by
from fedrouter.deployment.runs import job as jobs
from fedrouter.deployment.runs.acceptance import decide
from fedrouter.deployment.runs.job import Job
from fedrouter.deployment.runs.perform import perform
from fedrouter.deployment.runs.progress import ProgressLog
from fedrouter.deployment.state.directories import create_client, create_coordinator
from fedrouter.engines.local import LocalFederation
from fedrouter.errors import BadBundle
from fedrouter.federation.client import Client


async def nothing_else(scope, receive, send):
    """What stands for the SuperLink behind the endpoint."""
    if scope["type"] == "http":
        await send({"type": "http.response.start", "status": 418, "headers": []})
        await send({"type": "http.response.body", "body": b""})


@contextmanager
def serving(coordinator):
    """The endpoint with the coordinator's certificate; its port."""
    config = uvicorn.Config(
        endpoint(nothing_else, str(coordinator.flower)),
        host="127.0.0.1",
        port=0,
        ssl_certfile=coordinator.certificate,
        ssl_keyfile=coordinator.key,
        log_level="error",
        lifespan="off",
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    try:
        yield server.servers[0].sockets[0].getsockname()[1]
    finally:
        server.should_exit = True
        thread.join()


@pytest.fixture(scope="module")
def federation(tmp_path_factory):
    """A coordinator with two finished runs, an enrolled client and one that is not."""
    root = tmp_path_factory.mktemp("delivery")
    coordinator = create_coordinator(root / "coordinator", ("127.0.0.1",))
    with serving(coordinator) as port:
        members = {}
        for name in ("north", "stranger"):
            members[name] = create_client(root / name, name, f"127.0.0.1:{port}", coordinator.authority)
        enroll(coordinator, "north", members["north"].public_key.read_text().strip())
        for seed, run in enumerate(("run-1", "run-2")):
            job = Job(family="kmeans", settings={"k_local": 3, "k_global": 3}, seed=seed)
            jobs.write(job, coordinator.runs / run)
            local = LocalFederation([Client("north", drawn_evaluations(queries=60))])
            perform(job, local, coordinator.runs / run, ProgressLog(coordinator.runs / run))
            decide(coordinator.runs / run, "candidate", "whatever the vote was")
        yield coordinator, members, port


def get(federation, path, headers=None, method="GET"):
    coordinator, _, port = federation
    context = ssl.create_default_context(cafile=str(coordinator.authority))
    connection = http.client.HTTPSConnection("127.0.0.1", port, context=context)
    try:
        connection.request(method, path, headers=headers or {})
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def test_a_client_pulls_what_was_accepted_last_and_goes_back_when_it_is_withdrawn(federation):
    coordinator, members, _ = federation
    north = members["north"]
    assert pull(north) is None
    assert north.delivered() is None
    decide(coordinator.runs / "run-1", "accepted", "")
    first = pull(north)
    assert load(first).manifest == load(coordinator.runs / "run-1/bundle").manifest
    assert first.stat().st_mode & 0o077 == 0 or first.parent.stat().st_mode & 0o077 == 0
    decide(coordinator.runs / "run-2", "accepted", "")
    second = pull(north)
    assert second != first
    assert north.delivered()["run"] == "run-2"
    decide(coordinator.runs / "run-2", "rejected", "")
    assert pull(north) == first
    assert north.delivered()["bundle"] == str(first)


def test_status_tells_a_client_whether_it_is_admitted_and_which_bundle_it_serves(federation):
    coordinator, members, _ = federation
    stranger = command.run("federation", "status", members["stranger"].path).stdout
    assert f"does not admit this key: send it {members['stranger'].public_key} to enroll" in " ".join(stranger.split())
    assert "none was delivered yet" in stranger
    decide(coordinator.runs / "run-1", "accepted", "")
    folder = pull(members["north"])
    found = command.answer("federation", "status", members["north"].path)
    assert (found["reachable"], found["admitted"], found["bundle"]["bundle"]) == (True, True, str(folder))


def test_others_get_404_whatever_they_ask(federation):
    coordinator, members, _ = federation
    decide(coordinator.runs / "run-1", "accepted", "")
    with pytest.raises(DeliveryFailed, match="not enrolled"):
        pull(members["stranger"])
    key = members["north"].key.read_bytes()
    file = f"{PATH}/run-1/bundle.json"
    assert get(federation, file, sign(key, "north", file))[0] == 200
    forged = {**sign(key, "north", file), SIGNATURE: base64.b64encode(b"x" * 100).decode()}
    old = sign(key, "north", file, lambda: time.time() - LIFETIME - 5)
    other = sign(members["stranger"].key.read_bytes(), "north", file)
    elsewhere = sign(key, "north", PATH)
    for headers in ({}, forged, old, other, elsewhere, {**forged, SIGNATURE: "no base64!"}):
        assert get(federation, file, headers) == (404, b"")
    assert get(federation, file, sign(key, "north", file), "POST")[0] == 404
    assert get(federation, "/v1/control/list-nodes")[0] == 418  # everything else goes to the SuperLink


@pytest.mark.parametrize(
    "name", ["run-1/job.json", "run-1/../../ca.key", "../ca.key", "run-2/bundle.json", "run-9/x", ""]
)
def test_only_the_files_of_accepted_bundles_are_sent(federation, name):
    coordinator, members, _ = federation
    decide(coordinator.runs / "run-1", "accepted", "")
    decide(coordinator.runs / "run-2", "rejected", "")
    path = f"{PATH}/{name}"
    assert get(federation, path, sign(members["north"].key.read_bytes(), "north", path))[0] == 404


def test_a_bundle_that_was_changed_on_the_way_is_refused_and_leaves_nothing(federation):
    coordinator, members, _ = federation
    arrays = coordinator.runs / "run-2/bundle/router.safetensors"
    kept = arrays.read_bytes()
    north = members["north"]
    decide(coordinator.runs / "run-2", "accepted", "")
    shutil.rmtree(north.bundles, ignore_errors=True)
    arrays.write_bytes(kept[:-1] + bytes([kept[-1] ^ 1]))
    try:
        with pytest.raises(BadBundle, match="truncated or replaced"):
            pull(north)
    finally:
        arrays.write_bytes(kept)
    assert list(north.bundles.iterdir()) == []


def test_a_signature_is_for_one_name_path_and_time(federation):
    _, members, _ = federation
    keys = {"north": members["north"].public_key.read_text().strip()}
    headers = sign(members["north"].key.read_bytes(), "north", PATH)
    assert signed_by(headers, PATH, keys) == "north"
    assert signed_by(headers, f"{PATH}/x", keys) is None
    assert signed_by(headers, PATH, {}) is None
    assert signed_by(headers, PATH, keys, lambda: time.time() + LIFETIME + 5) is None
    assert signed_by({**headers, "x-fedrouter-time": "9" * 400}, PATH, keys) is None
