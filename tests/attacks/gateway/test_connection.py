"""Connections of clients that send too much, too slowly or too little, or do not read: each is answered or ended."""

import asyncio
import contextlib
import json
import resource
import select
import socket
import time
from urllib.parse import urlsplit

import pytest

from fedrouter.gateway import http, http_server
from fedrouter.gateway.config import ServerConfig
from gateway.running import SQL, config_for, eventually
from gateway.wire import send

LIMITS = ServerConfig(port=0, body_limit_mb=1)
CHAT = json.dumps({"model": "atlas-mini", "messages": [{"role": "user", "content": SQL}]}).encode()


@pytest.fixture(scope="module")
def gateway(start, bundle, upstream, tmp_path_factory):
    folder = tmp_path_factory.mktemp("connections")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(http_server, "HEAD_LIMIT", 16 << 10)
        patch.setattr(http_server, "WRITE_SECONDS", 1.0)
        patch.setattr(http, "REQUEST_SECONDS", 1.0)
        yield start(config_for(folder, bundle, upstream.url, {"atlas-max": "flood"}, server=LIMITS))


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
    assert reply.status in (414, 431)


def test_what_is_not_http_is_refused(gateway):
    reply = asyncio.run(send(gateway.url, b"GET / HTTP/1.1\r\nhost: x\r\nno header\r\n\r\n"))
    assert reply.status == 400


@pytest.mark.parametrize("begun", [b"", b"GET /v1/models HTTP/1.1\r\nhost", b"\r\n"])
def test_a_half_open_connection_is_closed(gateway, begun):
    with connected(gateway) as connection:
        connection.sendall(begun)
        assert heard(connection) == b""


def test_a_body_that_does_not_come_is_not_waited_for(gateway):
    with connected(gateway) as connection:
        connection.sendall(post(gateway, "/v1/feedback", 100) + b"{")
        assert connection.recv(1 << 16).startswith(b"HTTP/1.1 408 ")


def dripped(connection: socket.socket, piece: bytes) -> bytes:
    """What the gateway says to a client that sends this piece again and again, faster than its timeout."""
    connection.setblocking(False)
    for _ in range(200):  # 20 s
        if select.select([connection], [], [], 0.1)[0]:
            return connection.recv(1 << 16)
        with contextlib.suppress(ConnectionError):  # closed meanwhile
            connection.sendall(piece)
    return b"still open"


def test_a_head_that_comes_byte_by_byte_is_not_waited_for(gateway):
    with connected(gateway) as connection:
        connection.sendall(b"GET /v1/models HTTP/1.1\r\nx: ")
        assert dripped(connection, b"y") == b""


@pytest.mark.parametrize("path", ["/v1/feedback", "/page/api/session"])  # nobody needs a key for the second one
def test_a_body_that_comes_byte_by_byte_is_not_waited_for(gateway, path):
    with connected(gateway) as connection:
        connection.sendall(post(gateway, path, 60_000).replace(b"host: x", b"host: x\r\nx-page-request: 1"))
        assert dripped(connection, b" ").startswith(b"HTTP/1.1 408 ")


LIVE = b"GET /health/live HTTP/1.1\r\nhost: x\r\n\r\n"


def test_connections_beyond_the_limit_wait_until_half_open_ones_are_closed(
    start, bundle, upstream, tmp_path, monkeypatch
):
    monkeypatch.setattr(http, "REQUEST_SECONDS", 1.0)
    monkeypatch.setattr(http_server, "CONNECTIONS", 3)
    gateway = start(config_for(tmp_path, bundle, upstream.url, server=LIMITS))
    with contextlib.ExitStack() as connections:
        for _ in range(9):
            connections.enter_context(connected(gateway)).sendall(LIVE[:20])
        assert asyncio.run(send(gateway.url, LIVE)).status == 200


def test_two_thousand_connections_are_served_at_the_same_time(start, bundle, upstream, tmp_path, monkeypatch):
    monkeypatch.setattr(http, "REQUEST_SECONDS", 120.0)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, 16_384)), hard))
    monkeypatch.setattr(http_server, "CONNECTIONS", 2500)
    gateway = start(config_for(tmp_path, bundle, upstream.url))
    with contextlib.ExitStack() as opened:
        held = [opened.enter_context(connected(gateway)) for _ in range(2000)]
        for _ in range(2):  # each is kept after its first answer
            for each in held:
                each.sendall(LIVE)
            assert all(each.recv(1 << 16).startswith(b"HTTP/1.1 200 ") for each in held)


@pytest.mark.parametrize(
    ("soft", "hard", "most", "raised"),
    [
        (1024, 4096, 500, 1256),
        (1024, resource.RLIM_INFINITY, 500, 1256),
        (4096, 4096, 500, None),
        (512, 656, 200, 656),
        (resource.RLIM_INFINITY, resource.RLIM_INFINITY, 500, None),
    ],
)
def test_a_process_gets_the_open_files_that_its_connections_need_or_serves_fewer(
    monkeypatch, caplog, soft, hard, most, raised
):
    set_to = []
    monkeypatch.setattr(resource, "getrlimit", lambda _: (soft, hard))
    monkeypatch.setattr(resource, "setrlimit", lambda _, both: set_to.append(both))
    assert http_server.allowed_connections(500) == most
    assert set_to == ([] if raised is None else [(raised, hard)])
    assert ("connections: 200 of 500" in caplog.text) == (most < 500)


def test_a_client_that_stops_reading_does_not_hold_its_upstream(gateway, upstream):
    upstream.forget()
    body = b'{"model": "atlas-max", "stream": true, "messages": [{"role": "user", "content": "%s"}]}' % SQL.encode()
    with connected(gateway) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.sendall(post(gateway, "/v1/chat/completions", len(body)) + body)
        assert connection.recv(100)
        assert upstream.closed_early.wait(20)
    assert eventually(lambda: [record.status for record in gateway.store.rows()] == ["client_gone"])
