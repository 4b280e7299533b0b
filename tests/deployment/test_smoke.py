"""A short run of the real thing: a SuperLink and two SuperNodes over TLS learn the router of the in-process engine."""

import socket
import ssl

import pytest

pytest.importorskip("flwr")

from deployment.real_federation import RealFederation, files
from fedrouter.deployment.client.local_client import client_of
from fedrouter.deployment.delivery.pull import pull
from fedrouter.deployment.runs.acceptance import decide
from fedrouter.deployment.runs.job import Job

NAMES = ("alpha", "beta")
# Generous limits: a loaded machine makes this test slow, not red.
JOB = Job(family="kmeans", settings={"k_local": 4, "k_global": 5}, quorum=2, timeout=240, gather=240)


@pytest.fixture
def federation(world, tmp_path):
    real = RealFederation(tmp_path, world, NAMES)
    try:
        real.start_all(within=240)
        yield real
    finally:
        real.stop_all()


def test_two_clients_over_tls_learn_the_router_of_the_in_process_engine(federation):
    bundle, lines = federation.run("smoke", JOB)
    mirror = [client_of(federation.root / "mirror" / name) for name in NAMES]
    assert bundle == federation.in_process(federation.root / "local", JOB, mirror)
    steps = [line for line in lines if line["event"] == "step"]
    assert [line["answered"] for line in steps] == [list(NAMES)] * 2
    assert tls_version(federation.coordinator) == "TLSv1.3"
    # The router is delivered on the same port, while it is accepted.
    decide(federation.coordinator.runs / "smoke", "rejected", "by the test")
    assert pull(federation.clients["alpha"]) is None
    decide(federation.coordinator.runs / "smoke", "accepted", "by the test")
    assert files(pull(federation.clients["alpha"])) == bundle


def tls_version(coordinator):
    """What a client that trusts the federation's authority alone agrees on with the coordinator."""
    config = coordinator.config()
    context = ssl.create_default_context(cafile=coordinator.authority)
    with (
        socket.create_connection((config.hosts[0], config.port), timeout=30) as plain,
        context.wrap_socket(plain, server_hostname=config.hosts[0]) as connection,
    ):
        return connection.version()
