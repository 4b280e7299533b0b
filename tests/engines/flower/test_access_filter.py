"""Which requests a coordinator answers, and to whom."""

import asyncio

import pytest

from fedrouter.engines.flower.access_filter import (
    CLIENT_PATHS,
    MOST_OTHERWISE,
    MOST_UPLOADED,
    UPLOAD,
    AccessFilter,
    from_own_machine,
)

STRANGER, LOOPBACK = ("203.0.113.7", 50000), ("127.0.0.1", 50000)
SERVER = ("192.0.2.1", 9092)


def asked(path, client, method="POST", kind="http", server=SERVER, lengths=("10",)):
    """Whether a request comes through, and else what is answered."""
    sent = []

    async def behind(scope, receive, send):
        sent.append("through")

    async def send(event):
        sent.append(event.get("status", event["type"]))

    scope = {"type": kind, "path": path, "method": method, "client": client, "server": server}
    scope["headers"] = [(b"host", b"coordinator"), *((b"content-length", length.encode()) for length in lengths)]
    asyncio.run(AccessFilter(behind)(scope, None, send))
    return sent[0]


@pytest.mark.parametrize("path", sorted(CLIENT_PATHS))
def test_a_stranger_reaches_what_nodes_need(path):
    assert asked(path, STRANGER) == "through"


@pytest.mark.parametrize(
    "path",
    [
        "/v1/control/start-run",
        "/v1/control/register-node",
        "/v1/runtime/push-task-output",
        "/v1/fleet/register-node",
        "/v1/fleet/../control/start-run",
        "/v1/fleet/pull-messages/",
        "/v1/fleet/pull-messages/../../control/start-run",
        "//v1/control/start-run",
        "/health",
        "/docs",
        "/openapi.json",
        "/",
        "",
    ],
)
def test_to_a_stranger_nothing_else_is_there(path):
    assert asked(path, STRANGER) == 404
    assert asked(path, None) == 404
    assert asked(path, ("no address", 0)) == 404


def test_a_stranger_cannot_ask_otherwise_than_nodes_do():
    assert asked("/v1/fleet/pull-messages", STRANGER, method="GET") == 404
    assert asked("/v1/fleet/pull-messages", STRANGER, kind="websocket") == "websocket.close"


def test_the_coordinators_own_machine_reaches_everything():
    assert asked("/v1/control/start-run", LOOPBACK) == "through"
    assert asked("/v1/control/start-run", ("::1", 1)) == "through"
    assert asked("/v1/control/start-run", ("::ffff:127.0.0.1", 1)) == "through"
    assert asked("/v1/control/start-run", (SERVER[0], 50000)) == "through"


def test_an_address_of_the_same_network_is_a_strangers():
    assert not from_own_machine({"client": ("192.0.2.2", 1), "server": SERVER})
    assert not from_own_machine({"client": ("::ffff:192.0.2.1", 1), "server": None})


@pytest.mark.parametrize("client", [STRANGER, LOOPBACK])
def test_a_body_too_large_or_of_unstated_size_is_refused_before_it_is_read(client):
    for path in sorted(CLIENT_PATHS):
        most = MOST_UPLOADED if path == UPLOAD else MOST_OTHERWISE
        assert asked(path, client, lengths=(str(most),)) == "through"
        for lengths in ((str(most + 1),), ("1e3",), ("-1",), ("",), (), ("1", "2")):
            assert asked(path, client, lengths=lengths) == 413


def test_the_filter_lets_the_server_start():
    assert asked("", None, kind="lifespan") == "through"


def test_flower_still_serves_what_nodes_need_where_the_filter_has_it():
    fleet = pytest.importorskip("flwr.superlink.routers.fleet.router")
    served = {route.path for route in fleet.router.routes}
    unneeded = {"/v1/fleet/register-node", "/v1/fleet/unregister-node", "/v1/fleet/get-fab"}
    assert served - CLIENT_PATHS == unneeded
    assert served >= CLIENT_PATHS
