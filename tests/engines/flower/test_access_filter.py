"""Which requests a coordinator answers, and to whom."""

import asyncio
from types import SimpleNamespace

import pytest

from fedrouter.engines.flower.access_filter import (
    CLIENT_PATHS,
    MOST_OTHERWISE,
    MOST_UPLOADED,
    UPLOAD,
    AccessFilter,
    from_own_machine,
    signed_by_node,
)

STRANGER, LOOPBACK = ("203.0.113.7", 50000), ("127.0.0.1", 50000)
SERVER = ("192.0.2.1", 9092)


def asked(path, client, method="POST", kind="http", server=SERVER, lengths=("10",), more=(), signed=True):
    """Whether a request comes through, and else what is answered."""
    sent = []

    async def behind(scope, receive, send):
        sent.append("through")

    async def send(event):
        sent.append(event.get("status", event["type"]))

    scope = {"type": kind, "path": path, "method": method, "client": client, "server": server}
    scope["headers"] = [(b"host", b"coordinator"), *((b"content-length", length.encode()) for length in lengths)]
    scope["headers"] += more
    asyncio.run(AccessFilter(behind, lambda _: signed)(scope, None, send))
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


def test_a_body_in_pieces_is_of_unstated_size_whatever_length_it_states_besides():
    """Of the two headers the server that is used where httptools is missing, h11, believes the other one."""
    for path in sorted(CLIENT_PATHS):
        assert asked(path, STRANGER, more=[(b"transfer-encoding", b"chunked")]) == 413


def test_a_large_body_is_read_only_from_an_enrolled_client():
    """Flower checks the signature after it has read the body: strangers could fill the coordinator's memory."""
    large = (str(MOST_OTHERWISE + 1),)
    assert asked(UPLOAD, STRANGER, lengths=large, signed=False) == 401
    assert asked(UPLOAD, STRANGER, lengths=large) == "through"
    assert asked(UPLOAD, STRANGER, signed=False) == "through"  # Flower refuses it


def test_flowers_own_check_tells_enrolled_clients_from_others():
    pytest.importorskip("flwr")
    import httpx
    from cryptography.hazmat.primitives.asymmetric import ec
    from flwr.supercore.primitives.asymmetric import public_key_to_bytes
    from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor

    member, stranger = (ec.generate_private_key(ec.SECP384R1()) for _ in range(2))
    nodes = {public_key_to_bytes(member.public_key()): 7}
    state = SimpleNamespace(get_node_id_by_public_key=nodes.get)
    app = SimpleNamespace(state=SimpleNamespace(linkstate_factory=SimpleNamespace(state=lambda: state)))

    def signed(key, claimed):
        context = SimpleNamespace(request=httpx.Request("POST", f"https://coordinator{UPLOAD}"))
        NodeAuthHttpInterceptor(key, claimed.public_key()).intercept(context, lambda _: None)
        return signed_by_node(
            {
                "type": "http",
                "headers": [(name.lower(), value) for name, value in context.request.headers.raw],
                "app": app,
            }
        )

    assert signed(member, member)
    assert not signed(stranger, stranger)
    assert not signed(stranger, member)
    assert not signed_by_node({"type": "http", "headers": [], "app": app})


def test_the_filter_lets_the_server_start():
    assert asked("", None, kind="lifespan") == "through"


def test_flower_still_serves_what_nodes_need_where_the_filter_has_it():
    fleet = pytest.importorskip("flwr.superlink.routers.fleet.router")
    served = {route.path for route in fleet.router.routes}
    unneeded = {"/v1/fleet/register-node", "/v1/fleet/unregister-node", "/v1/fleet/get-fab"}
    assert served - CLIENT_PATHS == unneeded
    assert served >= CLIENT_PATHS
