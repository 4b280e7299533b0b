"""The client for upstreams, against raw servers: what it sends, what it reads, and which connections it keeps."""

import asyncio
import socket
import struct
import threading
import time
from contextlib import asynccontextmanager, suppress

import pytest

from fedrouter.gateway.upstream import http_client
from fedrouter.gateway.upstream.http_client import (
    HEAD_LIMIT,
    PIECE,
    Broken,
    Connection,
    HttpClient,
    Target,
    Unreachable,
)

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"
CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"


class Upstream:
    """Answers each request with the next of some bytes; None closes the connection."""

    def __init__(self, *answers):
        self._answers = list(answers)
        self.requests, self.connections, self.tasks = [], 0, []

    async def connected(self, reader, writer):
        self.connections += 1
        self.tasks.append(asyncio.current_task())
        try:
            await self.serve(reader, writer)
        finally:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()

    async def serve(self, reader, writer):
        try:
            while self._answers:
                head = await reader.readuntil(b"\r\n\r\n")
                length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
                self.requests.append((head, await reader.readexactly(length)))
                answer = self._answers.pop(0)
                if answer is None:
                    break
                writer.write(answer)
                if b"length" not in answer and b"chunked" not in answer:
                    break
        except (asyncio.IncompleteReadError, ConnectionError):
            pass


@asynccontextmanager
async def running(upstream):
    server = await asyncio.start_server(upstream.connected, "127.0.0.1", 0, limit=1 << 20)
    port, client = server.sockets[0].getsockname()[1], HttpClient(5.0)
    try:
        yield client, Target(f"http://127.0.0.1:{port}/v1/chat?a=b", {"user-agent": "fedrouter", "x-own": "1"})
    finally:
        client.close()
        server.close()
        await asyncio.gather(*upstream.tasks)
        await asyncio.sleep(0)


async def read(client, target, body=b"{}", headers=None):
    response = await client.post(target, headers or {}, body)
    parts = []
    try:
        while part := await response.readany():
            parts.append(part)
    finally:
        response.release()
    return response.status, b"".join(parts)


def exchange(upstream, *bodies):
    """What each of some requests, one after the other, gets."""

    async def all():
        async with running(upstream) as (client, target):
            return [await read(client, target, body) for body in bodies]

    return asyncio.run(all())


def test_a_request_has_the_targets_headers_and_the_clients_in_their_place():
    upstream = Upstream(OK, OK)

    async def both():
        async with running(upstream) as (client, target):
            await read(client, target)
            await read(client, target, b"[]", {"x-own": "2", "traceparent": "t"})

    asyncio.run(both())
    (first, _), (second, body) = upstream.requests
    assert first.startswith(b"POST /v1/chat?a=b HTTP/1.1\r\nhost: 127.0.0.1:")
    assert b"\r\nx-own: 1\r\ncontent-length: 2\r\n\r\n" in first
    assert b"x-own: 1" not in second
    assert b"\r\nx-own: 2\r\ntraceparent: t\r\n" in second
    assert body == b"[]"
    with pytest.raises(ValueError, match="line break"):
        Target("http://a", {"x": "1\r\ny: 2"}).head({}, 0)


@pytest.mark.parametrize(
    ("address", "line", "host"),
    [
        ("https://api.example.org/v1/chat", b"/v1/chat", b"api.example.org"),
        ("https://api.example.org:444/v1?version=2%201&a=b+c", b"/v1?version=2%201&a=b+c", b"api.example.org:444"),
        ("http://[::1]:80", b"/", b"[::1]"),
        (
            "http://b\N{LATIN SMALL LETTER U WITH DIAERESIS}cher.example/v 1/\N{SNOWMAN}",
            b"/v%201/%E2%98%83",
            b"xn--bcher-kva.example",
        ),
    ],
)
def test_the_line_and_the_host_of_an_address(address, line, host):
    head = Target(address, {}).head({}, 0)
    assert head.startswith(b"POST %b HTTP/1.1\r\nhost: %b\r\n" % (line, host))


def test_a_connection_is_used_again():
    chunked = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\nx-after: 1\r\n\r\n"
    upstream = Upstream(OK, chunked, b"HTTP/1.1 100 Continue\r\n\r\n" + OK, OK)
    assert exchange(upstream, b"{}", b"{}", b"{}", b"{}") == [(200, b"ok"), (200, b"abcde"), (200, b"ok"), (200, b"ok")]
    assert upstream.connections == 1


@pytest.mark.parametrize(
    "first",
    [
        b"HTTP/1.1 200 OK\r\n\r\nok",  # ends with its connection
        b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\nok",
        OK + b"HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\nforged",  # an answer that nobody asked for
    ],
)
def test_a_connection_that_may_not_be_used_again_is_not(first):
    upstream = Upstream(first, OK)
    assert exchange(upstream, b"{}", b"{}") == [(200, b"ok"), (200, b"ok")]
    assert upstream.connections == 2


@pytest.mark.parametrize(
    "answer",
    [
        None,
        b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n",
        b"not HTTP at all, whatever its length: 1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nx: " + b"y" * (2 * HEAD_LIMIT),
        CHUNKED + b"2\r\nok\r\n0\r\nx: " + b"y" * (16 * HEAD_LIMIT),  # after the body
        b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-length: 5\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nx: y\rset-cookie: z\r\ncontent-length: 2\r\n\r\nok",
        b"HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n" + OK,
    ],
)
def test_an_answer_that_breaks_off_or_is_none_is_an_error(answer):
    with pytest.raises(Broken):
        exchange(Upstream(answer), b"{}")


def test_nothing_is_sent_to_an_address_where_nobody_listens():
    async def ask():
        server = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        server.close()
        await server.wait_closed()
        await HttpClient(5.0).post(Target(f"http://127.0.0.1:{port}/", {}), {}, b"")

    with pytest.raises(Unreachable):
        asyncio.run(ask())


def test_a_large_body_arrives_whole_and_one_that_is_refused_midway_is_not_sent_on():
    large = b"x" * (8 * PIECE + 1)
    upstream = Upstream(OK, OK)
    assert exchange(upstream, large, b"{}") == [(200, b"ok"), (200, b"ok")]
    assert upstream.requests[0][1] == large
    assert upstream.connections == 1

    async def refuse(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 413 Too Large\r\ncontent-length: 2\r\n\r\nno")
        with suppress(ConnectionError):
            await reader.read()  # until the client goes

    refusing = Upstream()
    refusing.serve = refuse

    async def ask():
        async with running(refusing) as (client, target):
            response = await client.post(target, {}, b"x" * (256 * PIECE))
            found = response.status, await response.readany()
            response.release()
            assert not any(client._idle.values())
            return found

    assert asyncio.run(ask()) == (413, b"no")


def test_what_was_released_cannot_close_the_next_requests_connection():
    async def ask():
        async with running(Upstream(OK, OK)) as (client, target):
            first = await client.post(target, {}, b"{}")
            assert await first.readany() == b"ok"
            assert first.at_eof()
            first.release()
            second = await client.post(target, {}, b"{}")
            first.close()
            first.release()
            found = await second.readany()
            second.release()
            return found

    assert asyncio.run(ask()) == b"ok"


def test_a_reader_is_woken_when_the_response_is_closed():
    async def ask():
        async with running(Upstream(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n")) as (client, target):
            response = await client.post(target, {}, b"{}")
            asyncio.get_running_loop().call_soon(response.close)
            await response.readany()  # as the server goes on waiting for a request

    with pytest.raises(Broken):
        asyncio.run(ask())


def test_a_status_below_100_is_a_response_and_no_part_of_the_next_one():
    forged = b"HTTP/1.1 099 Early\r\ncontent-length: 6\r\n\r\nforged"
    assert exchange(Upstream(forged + OK, OK), b"{}", b"{}") == [(99, b"forged"), (200, b"ok")]


def accepted(listening, ends):
    """Answer the first request of each connection; then the event says when it is closed."""
    for end in ends:
        connection, _ = listening.accept()
        with connection:
            connection.recv(1 << 16)
            connection.sendall(OK)
            end.wait(30)


def test_a_connection_that_the_upstream_has_closed_is_not_used_though_the_event_loop_does_not_know_yet():
    ends = threading.Event(), threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listening:
        upstream = threading.Thread(target=accepted, args=(listening, ends), daemon=True)
        upstream.start()

        async def both():
            client, target = HttpClient(5.0), Target(f"http://127.0.0.1:{listening.getsockname()[1]}/", {})
            found = [await read(client, target)]
            [[kept]] = client._idle.values()
            ends[0].set()
            until = time.monotonic() + 30
            while kept.quiet and time.monotonic() < until:
                pass  # without giving the event loop a turn
            assert kept.usable
            found.append(await read(client, target))
            client.close()
            return found

        try:
            assert asyncio.run(both()) == [(200, b"ok"), (200, b"ok")]
        finally:
            for end in ends:
                end.set()
            upstream.join(10)


class Taken:
    """A transport that takes what is written, and knows whether it was closed."""

    closed = False

    def write(self, data):
        pass

    def abort(self):
        self.closed = True

    def is_closing(self):
        return self.closed


@pytest.mark.parametrize(
    "answer",
    [
        OK,
        CHUNKED + b"2;x=y\r\nok\r\n0\r\nx-after: 1\r\n\r\n",
        b"HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n" + OK,
        b"HTTP/1.1 204 No Content\r\n\r\n",
    ],
)
@pytest.mark.parametrize("more", [OK, b"HTTP/1.1 100 Continue\r\n\r\n", b"0\r\n\r\n", b"\r\nx", b"\0"])
def test_more_than_an_answer_never_stays_for_the_next_request_wherever_it_is_cut(answer, more):
    whole = answer + more
    listening, other = socket.socketpair()

    async def received(*pieces):
        connection, transport = Connection(listening), Taken()
        connection.connection_made(transport)
        sending = asyncio.ensure_future(connection.send(b"", b""))
        await asyncio.sleep(0)
        for piece in pieces:
            connection.data_received(piece)
        with suppress(Broken):
            await sending
        return connection

    async def all():
        assert (await received(answer)).reusable
        for cut in range(1, len(whole)):
            connection = await received(whole[:cut], whole[cut:])
            assert not connection.reusable
            assert b"".join(connection._parts) in (b"", b"ok")

    with listening, other:
        asyncio.run(all())


def test_an_upstream_that_closes_its_half_and_reads_nothing_is_not_waited_for(caplog):
    ended = threading.Event()

    def half_close(listening):
        connection, _ = listening.accept()
        with connection:
            connection.recv(1)
            connection.shutdown(socket.SHUT_WR)
            ended.wait(30)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        upstream = threading.Thread(target=half_close, args=(listening,), daemon=True)
        upstream.start()

        async def ask():
            client, target = HttpClient(5.0), Target(f"http://127.0.0.1:{listening.getsockname()[1]}/", {})
            async with asyncio.timeout(20):
                await client.post(target, {}, b"x" * (256 * PIECE))

        try:
            with pytest.raises(Broken):
                asyncio.run(ask())
        finally:
            ended.set()
            upstream.join(10)
    assert not caplog.records  # asyncio complains of writing to what is closed


class Closing(Upstream):
    """Answers the first request of its first connection, and closes it on the next; ``then`` for other connections."""

    def __init__(self, last, then):
        super().__init__()
        self._last, self._then = last, then

    async def serve(self, reader, writer):
        answers = [OK, self._last] if self.connections == 1 else [self._then]
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            for answer in answers:
                self.requests.append(await reader.readuntil(b"\r\n\r\n{}"))
                if answer is None:  # as a process that is killed: with a reset
                    linger = struct.pack("ii", 1, 0)
                    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                writer.write(answer or b"")


@pytest.mark.parametrize("last", [b"", None])
def test_a_request_that_crosses_the_close_of_a_kept_connection_is_sent_again(last, monkeypatch):
    monkeypatch.setattr(http_client, "CROSSING", 60.0)  # however slow this machine is
    upstream = Closing(last, OK)
    assert exchange(upstream, b"{}", b"{}") == [(200, b"ok"), (200, b"ok")]
    assert (upstream.connections, len(upstream.requests)) == (2, 3)


@pytest.mark.parametrize(
    ("last", "then", "seconds", "sent"),
    [
        (b"", b"", 60.0, 3),  # once only
        (b"H", OK, 60.0, 2),  # it has begun to answer
        (b"", OK, -1.0, 2),  # it has had time to work on it
    ],
)
def test_a_request_that_may_have_been_processed_is_not_sent_again(last, then, seconds, sent, monkeypatch):
    monkeypatch.setattr(http_client, "CROSSING", seconds)
    upstream = Closing(last, then)
    with pytest.raises(Broken):
        exchange(upstream, b"{}", b"{}")
    assert len(upstream.requests) == sent


def test_requests_that_come_together_share_a_lookup_and_addresses_take_turns(monkeypatch):
    lookups, tried = [], []

    async def first(addresses, **_):
        tried.append(addresses[0][4][0])
        raise ConnectionRefusedError

    async def ask():
        client, target = HttpClient(5.0), Target("http://name.invalid/", {})

        async def getaddrinfo(*_, **__):
            lookups.append(1)
            await asyncio.sleep(0)
            if len(lookups) == 1:
                raise socket.gaierror
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (host, 80)) for host in ("127.0.0.2", "127.0.0.3")]

        monkeypatch.setattr("aiohappyeyeballs.start_connection", first)
        with monkeypatch.context() as patched:
            patched.setattr(asyncio.get_running_loop(), "getaddrinfo", getaddrinfo)
            for _ in range(2):
                asking = [client.post(target, {}, b"") for _ in range(20)]
                found = await asyncio.gather(*asking, return_exceptions=True)
                assert all(isinstance(error, Unreachable) for error in found)

    asyncio.run(ask())
    assert len(lookups) == 2  # the first failed, and is not remembered
    assert sorted(tried) == ["127.0.0.2"] * 10 + ["127.0.0.3"] * 10
