"""Responses that are sent in one write: byte for byte those of uvicorn, and nothing else can be slipped into them."""

import re
import socket
import threading

import pytest
import uvicorn

from fedrouter.gateway.config import ServerConfig
from fedrouter.gateway.connection import AT_ONCE, connections
from fedrouter.gateway.http import Sender, send_response
from gateway.running import eventually

HEADERS = [(b"content-type", b"text/plain"), (b"X-Odd", b" \xe9\t ")]
ANSWERS = {
    "plain": (200, b"hello", HEADERS),
    "empty": (200, b"", HEADERS),
    "error": (429, b"{}", HEADERS),
    "nothing": (204, b"", []),
    "large": (200, b"x" * (AT_ONCE + 1), HEADERS),
    "leaves": (200, b"bye", [*HEADERS, (b"connection", b"close")]),
    "line": (200, b"hello", [(b"x-model", b"a\r\nset-cookie: stolen=1")]),
    "response": (200, b"hello", [(b"x-model", b"a\r\ncontent-length: 0\r\n\r\nHTTP/1.1 200 OK\r\n\r\nstolen")]),
    "lone": (200, b"hello", [(b"x-model", b"a\nset-cookie: stolen=1")]),
    "return": (200, b"hello", [(b"x-model", b"a\rset-cookie: stolen=1")]),
    "zero": (200, b"hello", [(b"x-model", b"a\0stolen")]),
}


class Watched(Sender):
    """Notes whether it could send a response at once."""

    noted: list[bool]

    def at_once(self, *given):
        self.noted.append(super().at_once(*given))
        return self.noted[-1]


class App:
    """Answers `/HOW/NAME` with one of the answers: as a whole if it can be, or in uvicorn's two parts."""

    def __init__(self) -> None:
        self.at_once: list[bool] = []

    async def __call__(self, scope, receive, send):
        how, name = scope["path"].split("/")[1:]
        sender = Watched(scope, send, [(b"vary", b"origin")])
        sender.noted = self.at_once
        if how == "whole":
            await send_response(sender, *ANSWERS[name])
            return
        status, body, headers = ANSWERS[name]
        length = (b"content-length", b"%d" % len(body))
        await sender({"type": "http.response.start", "status": status, "headers": [*headers, length]})
        await sender({"type": "http.response.body", "body": body})


@pytest.fixture(scope="module")
def served():
    app = App()
    config = uvicorn.Config(
        app,
        port=0,
        http=connections(ServerConfig(port=0)),
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    assert eventually(lambda: server.started, 30)
    app.port = server.servers[0].sockets[0].getsockname()[1]
    yield app
    server.should_exit = True
    thread.join(20)


def heard(port: int, sent: bytes, responses: int = 1) -> bytes:
    """As many responses as are wanted, or what comes until the connection ends; without the time of day."""
    said = b""
    with socket.create_connection(("127.0.0.1", port), timeout=20) as connection, connection.makefile("rb") as file:
        connection.sendall(sent)
        for _ in range(responses):
            head = b""
            while not head.endswith(b"\r\n\r\n") and (line := file.readline()):
                head += line
            length = re.search(rb"content-length: (\d+)", head)
            said += head + (file.read(int(length[1])) if length and not sent.startswith(b"HEAD") else b"")
    return re.sub(rb"date: [^\r]*\r\n", b"", said)


def request(how: str, name: str, method: str = "GET", version: str = "1.1", more: str = "") -> bytes:
    return f"{method} /{how}/{name} HTTP/{version}\r\nhost: x\r\n{more}\r\n".encode()


def both(served, **more) -> tuple[bytes, bytes, bool]:
    """What comes as a whole and in parts, and whether the former really did."""
    served.at_once.clear()
    whole, parts = (heard(served.port, request(how, **more)) for how in ("whole", "parts"))
    [at_once] = served.at_once
    return whole, parts, at_once


@pytest.mark.parametrize("name", ["plain", "empty", "error"])
def test_a_response_in_one_write_is_uvicorn_s(served, name):
    whole, parts, at_once = both(served, name=name)
    assert at_once
    assert whole.lower() == parts.lower()  # names of headers, of which uvicorn makes lower case
    assert b"vary: origin\r\n" in whole


@pytest.mark.parametrize(
    "more",
    [
        {"name": "nothing"},
        {"name": "large"},
        {"name": "leaves"},
        {"name": "plain", "method": "HEAD"},
        {"name": "plain", "version": "1.0"},
        {"name": "plain", "more": "connection: close\r\n"},
    ],
)
def test_what_is_out_of_the_ordinary_goes_uvicorn_s_way(served, more):
    whole, parts, at_once = both(served, **more)
    assert not at_once
    assert whole == parts
    assert whole.startswith(b"HTTP/1.1 20")


@pytest.mark.parametrize("name", ["line", "response", "lone", "return", "zero"])
def test_a_value_that_would_be_another_header_or_response_is_never_sent(served, name):
    whole, parts, at_once = both(served, name=name)
    assert not at_once
    assert whole == parts
    assert b"stolen" not in whole
    assert whole.count(b"HTTP/1.1") <= 1


def test_pipelined_requests_are_answered_in_their_order(served):
    names = ["plain", "error", "empty", "plain", "large", "error"]
    whole, parts = (
        heard(served.port, b"".join(request(how, name) for name in names), len(names)) for how in ("whole", "parts")
    )
    assert whole.lower() == parts.lower()
    assert re.findall(rb"HTTP/1.1 (\d+)", whole) == [b"200", b"429", b"200", b"200", b"200", b"429"]
