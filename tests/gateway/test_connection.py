"""Connections of clients that send too much, too slowly or too little, or do not read: each is answered or ended."""

import asyncio
import contextlib
import json
import resource
import select
import socket
import threading
import time
from urllib.parse import urlsplit

import pytest

from fedrouter.gateway import connection as connection_module
from fedrouter.gateway.config import ServerConfig
from gateway.running import SQL, config_for, eventually
from gateway.wire import Reply, send

LIMITS = ServerConfig(port=0, header_limit_kb=16, request_timeout=1, write_timeout=1, body_limit_mb=1)
CHAT = json.dumps({"model": "atlas-mini", "messages": [{"role": "user", "content": SQL}]}).encode()


@pytest.fixture(scope="module")
def gateway(start, bundle, upstream, tmp_path_factory):
    folder = tmp_path_factory.mktemp("connections")
    return start(config_for(folder, bundle, upstream.url, {"atlas-max": "flood"}, server=LIMITS))


def connected(gateway) -> socket.socket:
    parts = urlsplit(gateway.url)
    return socket.create_connection((parts.hostname, parts.port), timeout=20)


def heard(connection: socket.socket) -> bytes:
    """All that comes until the gateway closes the connection."""
    said = b""
    while piece := connection.recv(1 << 16):
        said += piece
    return said


def post(gateway, path, size, with_key=True) -> bytes:
    key = f"authorization: Bearer {gateway.key}\r\n" if with_key else ""
    return f"POST {path} HTTP/1.1\r\nhost: x\r\n{key}content-length: {size}\r\n\r\n".encode()


@pytest.mark.parametrize(
    ("path", "with_key", "status"),
    [("/v1/feedback", True, 413), ("/v1/chat/completions", True, 413), ("/v1/feedback", False, 401), ("/x", True, 404)],
)
def test_a_client_that_reads_only_after_it_has_sent_a_large_body_sees_why_it_was_refused(
    gateway, path, with_key, status
):
    size = 8 << 20
    with connected(gateway) as connection:
        connection.sendall(post(gateway, path, size, with_key))
        for _ in range(8):
            connection.sendall(b"a" * (size // 8))
            time.sleep(0.05)  # the gateway has long answered
        assert heard(connection).startswith(f"HTTP/1.1 {status} ".encode())


def test_a_refused_request_whose_body_came_with_it_keeps_its_connection(gateway):
    with connected(gateway) as connection:
        for _ in range(2):
            connection.sendall(post(gateway, "/v1/feedback", 4, with_key=False) + b"{}{}")
            assert connection.recv(1 << 16).startswith(b"HTTP/1.1 401 ")


def test_a_client_that_waits_for_permission_to_send_is_refused_without_it(gateway):
    with connected(gateway) as connection:
        head = post(gateway, "/v1/feedback", 100, with_key=False)
        connection.sendall(head.replace(b"\r\n\r\n", b"\r\nexpect: 100-continue\r\n\r\n"))
        assert heard(connection).startswith(b"HTTP/1.1 401 ")


@pytest.mark.parametrize("shape", ["many", "one", "path"])
def test_headers_are_limited_before_there_is_a_key(gateway, shape):
    lines = {"many": b"x: y\r\n" * 200_000, "one": b"x: " + b"y" * (8 << 20) + b"\r\n", "path": b""}[shape]
    path = b"/" + b"p" * (1 << 20) if shape == "path" else b"/v1/models"
    reply = asyncio.run(send(gateway.url, b"GET " + path + b" HTTP/1.1\r\nhost: x\r\n" + lines + b"\r\n"))
    assert (reply.status, reply.error()["code"]) == (431, "headers_too_large")


def test_what_is_not_http_is_answered_in_the_shape_of_every_error(gateway):
    reply = asyncio.run(send(gateway.url, b"GET / HTTP/1.1\r\nhost: x\r\nno header\r\n\r\n"))
    assert (reply.status, reply.error()["code"]) == (400, "invalid_http")


@pytest.mark.parametrize("begun", [b"", b"GET /v1/models HTTP/1.1\r\nhost", b"\r\n"])
def test_a_half_open_connection_is_closed(gateway, begun):
    with connected(gateway) as connection:
        connection.sendall(begun)
        said = heard(connection)
    assert said.startswith(b"HTTP/1.1 408 ") if begun.strip() else said == b""


def test_a_body_that_does_not_come_is_not_waited_for(gateway):
    with connected(gateway) as connection:
        connection.sendall(post(gateway, "/v1/feedback", 100) + b"{")
        assert connection.recv(1 << 16).startswith(b"HTTP/1.1 408 ")


def ended(connection: socket.socket) -> bool:
    """Whether the gateway has closed a connection without a word."""
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True


def dripped(connection: socket.socket, piece: bytes) -> bytes:
    """What the gateway says to a client that sends this piece again and again, faster than its timeout."""
    connection.setblocking(False)
    for _ in range(200):  # 20 s
        if select.select([connection], [], [], 0.1)[0]:
            return connection.recv(1 << 16)
        connection.sendall(piece)
    return b"still open"


def test_a_head_that_comes_byte_by_byte_is_not_waited_for(gateway):
    with connected(gateway) as connection:
        connection.sendall(b"GET /v1/models HTTP/1.1\r\nx: ")
        assert dripped(connection, b"y").startswith(b"HTTP/1.1 408 ")


@pytest.mark.parametrize("path", ["/v1/feedback", "/page/api/session"])  # nobody needs a key for the second one
def test_a_body_that_comes_byte_by_byte_is_not_waited_for(gateway, path):
    with connected(gateway) as connection:
        connection.sendall(post(gateway, path, 60_000).replace(b"host: x", b"x-page-request: 1"))
        assert dripped(connection, b" ").startswith(b"HTTP/1.1 408 ")


LIVE = b"GET /health/live HTTP/1.1\r\nhost: x\r\n\r\n"


def test_half_open_and_idle_connections_make_room_for_others(start, bundle, upstream, tmp_path, monkeypatch):
    monkeypatch.setattr(connection_module, "GRACE", 0.0)
    server = LIMITS.replace(connections=3, request_timeout=30)
    gateway = start(config_for(tmp_path, bundle, upstream.url, server=server))
    with contextlib.ExitStack() as connections:

        def connect() -> socket.socket:
            return connections.enter_context(connected(gateway))

        def lives(connection: socket.socket) -> bool:
            connection.sendall(LIVE)
            return connection.recv(1 << 16).startswith(b"HTTP/1.1 200 ")

        idle = connect()
        assert lives(idle)
        half_open = [connect() for _ in range(2)]
        for connection in half_open:
            connection.sendall(LIVE[:20])
        for _ in range(5):
            assert asyncio.run(send(gateway.url, LIVE)).status == 200
        assert ended(half_open[0])
        assert lives(idle)  # it was kept: half-open ones go first
        for _ in range(3):
            assert lives(connect())
        assert ended(idle)


def test_connections_are_limited_and_free_again(start, bundle, upstream, tmp_path):
    server = LIMITS.replace(connections=3, request_timeout=30)
    gateway = start(config_for(tmp_path, bundle, upstream.url, server=server))
    held = [connected(gateway) for _ in range(3)]
    for connection in held:  # each has a request whose body does not come
        connection.sendall(post(gateway, "/v1/feedback", 100) + b"{")

    def asked() -> Reply:
        head = f"GET /v1/models HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {gateway.key}\r\n\r\n"
        return asyncio.run(send(gateway.url, head.encode()))

    assert eventually(lambda: asked().status == 503)
    refused = asked()
    assert refused.error()["code"] == "too_many_connections"
    assert (refused.headers["retry-after"], refused.headers["connection"]) == ("1", "close")
    assert asyncio.run(send(gateway.url, LIVE)).status == 200  # an overload is no reason to restart it
    assert asyncio.run(send(gateway.url, post(gateway, "/v1/feedback", 1 << 20) + b" " * (1 << 20))).status == 503
    for connection in held:
        connection.close()
    assert eventually(lambda: asked().status == 200)


def test_in_a_burst_of_connections_each_request_is_answered(start, bundle, upstream, tmp_path, monkeypatch):
    """Those beyond the limit, too: nobody is cut off because others come."""
    monkeypatch.setattr(connection_module, "GRACE", 60.0)  # however slow this machine is
    gateway = start(config_for(tmp_path, bundle, upstream.url, server=LIMITS.replace(connections=20)))
    request = post(gateway, "/v1/chat/completions", len(CHAT)) + CHAT
    told = threading.Event()
    upstream.forget()

    async def hold_the_event_loop():
        told.wait(30)

    loop = gateway.app.servers[0].get_loop()
    asyncio.run_coroutine_threadsafe(hold_the_event_loop(), loop)
    with contextlib.ExitStack() as opened:
        burst = [opened.enter_context(connected(gateway)) for _ in range(40)]
        for each in burst[::2]:
            each.sendall(request)
        told.set()  # all of them are seen at the same time, the requests of every other one later
        for each in burst[1::2]:
            each.sendall(request)
        found = [each.recv(1 << 16) for each in burst]
    refused = [answer for answer in found if answer.startswith(b"HTTP/1.1 503 ")]
    assert all(b"\r\nretry-after: 1\r\n" in answer for answer in refused)
    assert sum(answer.startswith(b"HTTP/1.1 200 ") for answer in found) == 40 - len(refused) >= 20
    assert upstream.asked["instant"] == 40 - len(refused)  # nobody pays for what is refused
    assert all(answer.startswith(b"HTTP/1.1 200 ") for answer in found[:20])


@pytest.mark.parametrize(
    ("soft", "hard", "most", "raised"),
    [
        (1024, 4096, 500, 2256),
        (1024, resource.RLIM_INFINITY, 500, 2256),
        (4096, 4096, 500, None),
        (1024, 1056, 200, 1056),
        (resource.RLIM_INFINITY, resource.RLIM_INFINITY, 500, None),
    ],
)
def test_a_process_gets_the_open_files_that_its_connections_need_or_serves_fewer(
    monkeypatch, caplog, soft, hard, most, raised
):
    set_to = []
    monkeypatch.setattr(resource, "getrlimit", lambda _: (soft, hard))
    monkeypatch.setattr(resource, "setrlimit", lambda _, both: set_to.append(both))
    assert connection_module.allowed_connections(500) == most
    assert set_to == ([] if raised is None else [(raised, hard)])
    assert ("server.connections: 200 of 500" in caplog.text) == (most < 500)


def test_a_client_that_stops_reading_does_not_hold_its_upstream(gateway, upstream):
    upstream.forget()
    body = b'{"model": "atlas-max", "stream": true, "messages": [{"role": "user", "content": "%s"}]}' % SQL.encode()
    with connected(gateway) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.sendall(post(gateway, "/v1/chat/completions", len(body)) + body)
        assert connection.recv(100)
        assert upstream.closed_early.wait(20)
    assert eventually(lambda: [record.status for record in gateway.store.rows()] == ["client_gone"])
